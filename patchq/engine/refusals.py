"""What git would do and patchq refuses: other files or results than the patch says, lost places, links out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from patchq.engine.places import lost_places
from patchq.errors import Problem
from patchq.patch import Patch, check_link, leads_out
from patchq.store import Store
from patchq.store.apply import Applied
from patchq.store.trees import SYMLINK, Entry

OTHER_RESULT = "made for this very file, but its text gives another result than it records"


def refusals(
    store: Store, patch: Patch, before: Mapping[str, Entry], done: Applied, *, reverse: bool
) -> tuple[str, ...]:
    """Why what git did to the entries `before` is refused, seen from these entries alone; nothing where it is fine."""
    said = {change.old if reverse and change.old else change.path for change in patch.changes}
    if done.named != said:
        odd = sorted(str(name) for name in done.named.symmetric_difference(said))
        return (f"git and the patch's text disagree on the files: {', '.join(odd)}",)
    if not done.changes:
        return ("it changes nothing: all is already as the patch leaves it",)
    if reverse:
        return ()
    links = _links(store, patch, before, done.changes)
    return (*_other_results(patch, before, done.changes), *links, *lost_places(store, patch, before, done))


def links_out(store: Store, before: str, after: str, changes: Mapping[str, Entry | None]) -> Iterator[Problem]:
    """Symbolic links of the tree `after` that lead out of it through others, and did not do so in `before`.

    A link means something else when one on its way changes; so all are followed once any entry that was or is a
    link has changed.
    """
    if not changes:
        return
    had = store.entries(before, list(changes))
    if not any(entry and entry.mode == SYMLINK for entry in (*changes.values(), *had.values())):
        return
    old, new = (_targets(store, tree) for tree in (before, after))
    for path, target in new.items():
        reason = leads_out(path, new)
        if reason and not (old.get(path) == target and leads_out(path, old)):
            yield Problem(f"the symbolic link {path!r} {reason}", hint="a link has to stay inside the tree")


def _targets(store: Store, tree: str) -> dict[str, str]:
    return {path: _target(store, entry) for path, entry in store.walk(tree) if entry.mode == SYMLINK}


def _target(store: Store, entry: Entry) -> str:
    return store.read(entry.id, "blob").decode("utf-8", "surrogateescape")


def _links(
    store: Store, patch: Patch, before: Mapping[str, Entry], changes: Mapping[str, Entry | None]
) -> Iterator[str]:
    """Links that the patch adds or turns: a diff that names no mode reaches them, too."""
    known = {entry.id for entry in before.values() if entry.mode == SYMLINK}
    moved = {change.new for change in patch.changes if change.kind == "rename"}
    for path, entry in changes.items():
        if entry is None or entry.mode != SYMLINK:
            continue
        if not (path in moved and entry.id in known) and not patch.header.allow_symlink:
            yield f"{path!r} is a symbolic link; if it has to be, say so in the header: `Symlink: allowed`"
        if reason := check_link(path, _target(store, entry)):
            yield f"the symbolic link {path!r} {reason}"


def _other_results(patch: Patch, before: Mapping[str, Entry], changes: Mapping[str, Entry | None]) -> Iterator[str]:
    """Files whose pre-image is the recorded one and whose result is not."""
    for change in patch.changes:
        if not (change.old and change.new and change.old_id and change.new_id):
            continue
        pre, post = before.get(change.old), changes.get(change.new)
        if pre and post and pre.id.startswith(change.old_id) and not post.id.startswith(change.new_id):
            yield f"{change.new}: {OTHER_RESULT}"
