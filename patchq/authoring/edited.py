"""What people did in an edit copy: its commits, read as patchq's own, each a change that belongs to a patch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from patchq.authoring.merging import OLDEST_GIT, merge
from patchq.errors import DoesNotApply, Invalid, Problem, Refused
from patchq.patch import TRAILER, strip_space
from patchq.series import LAYERS
from patchq.store import Store, require_git

LAYER_TRAILER = "Patchq-Layer"
_MAX_COMMITS = 10_000
_OWN_LINE = rf"(?mi)^(?P<key>{TRAILER}|{LAYER_TRAILER}):[ \t]*(?P<value>\S+)[ \t]*\n?"
_FIXUP = r"fixup! (?:fixup! )*(?P<of>.*)"
_UNFINISHED = r"(?:squash|amend)! "

Decide = Callable[[str], bool]


@dataclass(frozen=True)
class Edit:
    """One patch as the edit copy has it: what it changes (trees), its message without patchq's trailers, its author.

    `name` is UPSTREAM/LAYER/NAME as the trailer says (empty: a new patch), `layer` what `Patchq-Layer` asks for,
    `commit` the copy's, `seconds` when it was written.
    """

    commit: str
    name: str
    layer: str
    before: str
    after: str
    subject: str
    body: str
    author: str
    seconds: int

    @property
    def title(self) -> str:
        """What to call it in a message: the patch, or the commit."""
        return self.name or f"{self.commit[:12]} ({self.subject})"


@dataclass(frozen=True)
class _Commit:
    id: str
    parents: tuple[str, ...]
    tree: str
    author: str
    seconds: int
    message: str


def read_edits(store: Store, base: str, tip: str, decide: Decide) -> tuple[Edit, ...]:
    """The edits between two commits of the store, oldest first; `fixup!` commits are folded where they belong.

    `decide` answers yes-or-no questions where a commit can be read in two ways. Raises `Refused` for merges, for a
    branch that does not begin at `base`, and where the answer was no.
    """
    edits: list[Edit] = []
    tree = store.commit(base).tree
    for commit in _chain(store, base, tip):
        edits.append(_edit(commit, tree, decide))
        tree = commit.tree
    folded = fold_fixups(store, edits)
    if folded and folded[-1].after != tree:
        raise Refused("with every fixup! in its place, the files are others than in the edit copy",
                      hint="run: git rebase -i --autosquash baseline")  # fmt: skip
    return _unique(folded, decide)


def fold(store: Store, edits: Sequence[Edit], into: int, extra: Edit) -> tuple[Edit, ...]:
    """Put the change `extra`, which stands behind all of `edits`, into one of them and rebuild what follows.

    Raises `DoesNotApply` where git cannot merge; nothing is lost then.
    """
    folded = _carry(store, extra, edits[into].after, f"the change does not go into {edits[into].title}")
    done = [*edits[:into], replace(edits[into], after=folded)]
    for edit in edits[into + 1 :]:
        before = done[-1].after
        done.append(replace(edit, before=before, after=_carry(store, edit, before, edit.title)))
    return tuple(done)


def fold_fixups(store: Store, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """`edits` with every `fixup!` in the commit that it names."""
    done: tuple[Edit, ...] = ()
    for edit in edits:
        found = re.match(_FIXUP, edit.subject)
        if not found:
            done = (*done, edit)
            continue
        into = next((n for n in reversed(range(len(done))) if _is_meant(done[n], found["of"])), None)
        if into is None:
            raise Refused(f"{edit.commit[:12]}: no commit before it is called {found['of']!r}",
                          hint="reword it, or fold it yourself with: git rebase -i baseline")  # fmt: skip
        done = fold(store, done, into, edit)
    return done


def _carry(store: Store, edit: Edit, onto: str, what: str) -> str:
    """The tree after an edit that is made on another tree than its own."""
    if onto == edit.before:
        return edit.after
    require_git(OLDEST_GIT, "folding a change into an earlier patch")
    merged = merge(store, edit.before, onto, edit.after)
    if merged.conflicts:
        hint = "fold it by hand: git commit --fixup, then git rebase -i --autosquash baseline"
        raise DoesNotApply(Problem(f"{what}: conflict", path, hint) for path in merged.conflicts)
    return merged.tree


def _chain(store: Store, base: str, tip: str) -> list[_Commit]:
    chain: list[_Commit] = []
    at = tip
    while at != base:
        commit = _read(store, at)
        if len(commit.parents) > 1:
            raise Refused(f"{at[:12]} is a merge", hint="a queue is a line: git rebase baseline")
        if not commit.parents or at in store.shallow() or len(chain) == _MAX_COMMITS:
            raise Refused("the branch does not begin at the baseline", hint="git rebase --onto baseline puts it there")
        chain.append(commit)
        at = commit.parents[0]
    return chain[::-1]


def _read(store: Store, identity: str) -> _Commit:
    """A commit object as git wrote it, its message decoded by the encoding that it names."""
    head, _, body = store.read(identity, "commit").partition(b"\n\n")
    rows = [row.partition(b" ")[::2] for row in head.split(b"\n") if not row.startswith(b" ")]
    fields = dict(reversed(rows))
    encoding = fields.get(b"encoding", b"utf-8").decode("ascii", "replace")
    author, seconds, _ = _decoded(fields[b"author"], encoding).rsplit(" ", 2)
    parents = tuple(value.decode() for key, value in rows if key == b"parent")
    return _Commit(identity, parents, fields[b"tree"].decode(), author, int(seconds), _decoded(body, encoding))


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return data.decode("latin-1")


def _edit(commit: _Commit, before: str, decide: Decide) -> Edit:
    told = [(found["key"].lower(), found["value"]) for found in re.finditer(_OWN_LINE, commit.message)]
    names = list(dict.fromkeys(value for key, value in told if key == TRAILER.lower()))
    layer = next((value for key, value in told if key == LAYER_TRAILER.lower()), "")
    if layer and layer not in LAYERS:
        raise Invalid(f"{commit.id[:12]}: {layer!r} is no layer", hint=f"one of {', '.join(LAYERS)}")
    subject, body = split_message(re.sub(_OWN_LINE, "", commit.message))
    if re.match(_UNFINISHED, subject):
        raise Refused(f"{commit.id[:12]}: {subject!r} wants its message edited",
                      hint="run: git rebase -i --autosquash baseline")  # fmt: skip
    if len(names) > 1 and not decide(f"{commit.id[:12]} names {' and '.join(names)}: is it {names[0]}?"):
        raise Refused(f"{commit.id[:12]} names {len(names)} patches: {', '.join(names)}",
                      hint=f"leave one {TRAILER} line in its message, or say --yes for the first")  # fmt: skip
    name = names[0] if names else ""
    return Edit(commit.id, name, layer, before, commit.tree, subject, body, commit.author, commit.seconds)


def split_message(message: str) -> tuple[str, str]:
    """A message's subject, and its body cleaned as `git stripspace` does."""
    text = strip_space(message.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    subject, _, body = text.partition("\n")
    return subject, body.strip("\n")


def _is_meant(edit: Edit, text: str) -> bool:
    return edit.subject == text or edit.subject.startswith(text) or edit.commit.startswith(text.strip() or " ")


def _unique(edits: Sequence[Edit], decide: Decide) -> tuple[Edit, ...]:
    """Two commits of one name: the first keeps it, the other becomes a new patch, if that is what is wanted."""
    return tuple(_named_once(edits, decide))


def _named_once(edits: Sequence[Edit], decide: Decide) -> Iterator[Edit]:
    first: dict[str, Edit] = {}
    for edit in edits:
        kept = first.setdefault(edit.name, edit) if edit.name else edit
        if kept is edit:
            yield edit
            continue
        ids = f"{kept.commit[:12]} and {edit.commit[:12]}"
        if not decide(f"{ids} are both {edit.name}: shall {edit.commit[:12]} be a new patch?"):
            raise Refused(f"{ids} are both {edit.name}",
                          hint=f"squash them, or take the {TRAILER} line out of one, or say --yes")  # fmt: skip
        yield replace(edit, name="", layer=edit.layer or edit.name.split("/")[1])
