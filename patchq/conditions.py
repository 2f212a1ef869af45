"""`Expect:` and `Forbid:`: what a patch says has to be, or not be, in a file once the whole selection is on."""

from __future__ import annotations

from collections.abc import Iterator

from patchq.errors import Problem
from patchq.patch import Condition
from patchq.queue.load import QueuedPatch
from patchq.store import Store


def broken(store: Store, tree: str, patches: tuple[QueuedPatch, ...]) -> Iterator[Problem]:
    """Every condition of `patches` that does not hold in the final `tree`."""
    for queued in patches:
        if not queued.patch:
            continue
        for condition in queued.patch.header.expect:
            found = _count(store, tree, condition)
            if found != condition.count if condition.count is not None else not found:
                wanted = f"{condition.count} times" if condition.count is not None else "at least once"
                yield Problem(f"{queued.name} expects /{condition.regex}/ {wanted}, found {found}", condition.path)
        for condition in queued.patch.header.forbid:
            found = _count(store, tree, condition)
            if found and condition.count in (None, found):
                yield Problem(f"{queued.name} forbids /{condition.regex}/, found {found} times", condition.path)


def _count(store: Store, tree: str, condition: Condition) -> int:
    entry = store.entries(tree, [condition.path]).get(condition.path)
    return condition.matches(store.read(entry.id, "blob")) if entry else 0
