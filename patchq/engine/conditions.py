"""`Expect:` and `Forbid:`: what a patch says has to be, or not be, in a file once the whole selection is on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from patchq.errors import Problem
from patchq.patch import Condition
from patchq.queue.load import QueuedPatch
from patchq.store import Store

_MAX_SLOW = 2


def broken(store: Store, tree: str, patches: tuple[QueuedPatch, ...]) -> Iterator[Problem]:
    """Every condition of `patches` that does not hold in the final `tree`, or cannot be decided.

    After a few that take too long the others are not tried: each is said not to be decided.
    """
    slow = 0
    for queued in patches:
        header = queued.patch.header if queued.patch else None
        conditions = (*header.expect, *header.forbid) if header else ()
        for condition in conditions:
            found = _count(store, tree, condition) if slow < _MAX_SLOW else None
            if found is None:
                slow += 1
                what = f"{queued.name}: /{condition.regex}/ takes too long"
                yield Problem(what, condition.path, "an expression in which no part can match the same text twice")
            elif header and condition in header.expect and not _is_there(condition, found):
                wanted = f"{condition.count} times" if condition.count is not None else "at least once"
                yield Problem(f"{queued.name} expects /{condition.regex}/ {wanted}, found {found}", condition.path)
            elif header and condition in header.forbid and found and condition.count in (None, found):
                yield Problem(f"{queued.name} forbids /{condition.regex}/, found {found} times", condition.path)


def _is_there(condition: Condition, found: int) -> bool:
    return found == condition.count if condition.count is not None else found > 0


def _count(store: Store, tree: str, condition: Condition) -> int | None:
    entry = store.entries(tree, [condition.path]).get(condition.path)
    return _matches(store, entry.id, condition) if entry else 0


@lru_cache(maxsize=1024)
def _matches(store: Store, blob: str, condition: Condition) -> int | None:
    """Asked once, however many targets share the file: what takes long would add up."""
    return condition.matches(store.read(blob, "blob"))
