"""Judging what probes answer: each answer of the training interpreter against what the target demands.

`surveying` asks several probes at once and gives the steps that follow; `changes` compares two audits.
"""

from patchq.audit.changes import COLUMNS, Change, changes, expired, last_good
from patchq.audit.subject import Subject, subject_of
from patchq.audit.survey import AUDITS, STATIC, Survey, surveying

__all__ = [
    "AUDITS",
    "COLUMNS",
    "STATIC",
    "Change",
    "Subject",
    "Survey",
    "changes",
    "expired",
    "last_good",
    "subject_of",
    "surveying",
]
