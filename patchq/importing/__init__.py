"""Patches on their way in: from files, mails, quilt series, clones, work trees and folders, into a queue."""

from patchq.importing.model import Incoming

__all__ = ["Incoming"]
