"""Work copies: immutable checkouts that training imports, made in one step, re-proved from their contents."""

from patchq.workcopy.create import create
from patchq.workcopy.digest import digest_folder
from patchq.workcopy.drift import Drift
from patchq.workcopy.inspection import Inspection, inspect
from patchq.workcopy.places import clear_current, current, move_current, set_aside
from patchq.workcopy.strangers import strangers

__all__ = [
    "Drift",
    "Inspection",
    "clear_current",
    "create",
    "current",
    "digest_folder",
    "inspect",
    "move_current",
    "set_aside",
    "strangers",
]
