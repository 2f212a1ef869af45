"""Patch files: read strictly, judged as git judges them, and kept byte for byte."""

from patchq.patch.condition import Condition
from patchq.patch.fields import Field
from patchq.patch.header import Header
from patchq.patch.lint import lint_header
from patchq.patch.message import TRAILER, strip_space
from patchq.patch.model import Change, Hunk, Patch
from patchq.patch.names import check_link, check_path, leads_out, quote, unquote
from patchq.patch.parse import parse_patch
from patchq.patch.view import ConflictView, conflict_view

__all__ = [
    "TRAILER",
    "Change",
    "Condition",
    "ConflictView",
    "Field",
    "Header",
    "Hunk",
    "Patch",
    "check_link",
    "check_path",
    "conflict_view",
    "leads_out",
    "lint_header",
    "parse_patch",
    "quote",
    "strip_space",
    "unquote",
]
