"""Bringing a baseline commit into the store, once; the source is only read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from patchq.errors import Invalid, Prevented, Refused
from patchq.location import check_location
from patchq.process import Outcome, run
from patchq.store.git import UNWRITABLE, last_line
from patchq.store.limits import check_tree
from patchq.store.objects import Store

# What would lead git into another repository; configuration in variables is the user's own and stays.
_STEERING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR",
             "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CEILING_DIRECTORIES",
             "GIT_REPLACE_REF_BASE", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_QUARANTINE_PATH")  # fmt: skip
# Of the user's configuration, what would change the store rather than reach the source.
_GUARDS = ("-c", "protocol.ext.allow=never", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
           "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.prune=false",
           "-c", "fetch.writeCommitGraph=false", "-c", "fetch.showForcedUpdates=false")  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where an upstream's objects come from: a local clone or mirror, or a URL."""

    name: str
    location: str

    @property
    def path(self) -> Path | None:
        """The folder on this host that `location` names, plainly or as `file://`; None for anything else."""
        is_url = self.location.startswith("file://")
        place = Path(unquote(self.location.removeprefix("file://")) if is_url else self.location)
        return place.resolve() if place.exists() else None


def keep_ref(commit: str) -> str:
    """The ref that holds a baseline in the store: its being there says that the commit is complete."""
    return f"refs/patchq/baseline/{commit}"


def next_ref(upstream: str, name: str) -> str:
    """The ref that holds a baseline called `name`, which a bundle brought so that a series can move to it."""
    return f"refs/patchq/next/{upstream}/{name}"


def is_complete(store: Store, commit: str) -> bool:
    """Whether the store has the commit with all of its tree."""
    return store.git.try_run(("rev-parse", "--verify", "--quiet", keep_ref(commit))).ok


def fetch_commit(store: Store, source: Source, commit: str, *, history: bool = False) -> None:
    """Fetch `commit` (full id) from `source`, shallow unless `history`; nothing happens when it is there.

    A local source is read with no configuration but ours; a network source with the user's own, because
    proxies and credentials live there. Raises `Prevented` with git's reason, `Refused` where the id is no commit's.
    """
    if is_complete(store, commit) and not (history and commit in store.shallow()):
        return
    refused = check_location(source.location)
    if refused:
        raise Invalid(f"the source of {source.name} {refused}", where=source.location)
    location = str(source.path or source.location)
    depth = ("--unshallow",) if history and commit in store.shallow() else () if history else ("--depth=1",)
    fetch = ("-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
             *depth, location, f"{commit}:{keep_ref(commit)}")  # fmt: skip
    outcome = store.git.try_run(fetch) if source.path else _fetch_by_network(store, fetch)
    if not outcome.ok:
        if (said := last_line(outcome)).endswith(UNWRITABLE):
            raise Prevented(
                f"{source.name}: the baseline {commit[:12]} cannot be kept: {said}", where=str(store.folder)
            )
        raise Prevented(_reason(source, location, commit, outcome), hint=f"name one: --source {source.name}=PATH|URL")
    _check_kind(store, source, commit)


def _check_kind(store: Store, source: Source, identity: str) -> None:
    """Full ids name tags and trees as well; such a one is not kept."""
    kind = store.git.line(("cat-file", "-t", identity))
    if kind == "commit":
        try:
            check_tree(store, identity, source.location)
        except Refused:
            store.git.run(("update-ref", "-d", keep_ref(identity)))
            raise
        return
    peeled = store.git.try_run(("rev-parse", "--verify", "--quiet", f"{identity}^{{commit}}"))
    store.git.run(("update-ref", "-d", keep_ref(identity)))
    hint = f"the tag is of the commit {peeled.text.strip()}" if peeled.ok else ""
    raise Refused(f"{source.name}: {identity} is a {kind}, not a commit", hint=hint)


def _fetch_by_network(store: Store, fetch: tuple[str, ...]) -> Outcome:
    inherited = {key: value for key, value in os.environ.items() if key not in _STEERING}
    environment = {**inherited, "GIT_DIR": str(store.folder), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    with store.git.noted() as (kept, ended):
        outcome = run(("git", *_GUARDS, *fetch), env=environment, cwd=store.folder, timeout=1800, kept=kept)
        ended(outcome)
    return outcome


def _reason(source: Source, location: str, commit: str, outcome: Outcome) -> str:
    what = f"{source.name}: the baseline {commit[:12]} could not be had from {source.location}"
    config = Path(location) / ("config" if (Path(location) / "HEAD").exists() else ".git/config")
    if config.is_file() and re.search(
        r"partialclonefilter|promisor\s*=\s*true", config.read_text(errors="replace"), re.I
    ):
        return f"{what}: it is a partial clone that lacks file contents"
    said = outcome.error_text
    if re.search(r"not our ref|no such ref|couldn't find remote ref|bad object|unadvertised", said):
        return f"{what}: it has no such commit"
    return f"{what}: {last_line(outcome)}"


def resolve_name(store: Store, source: Source, name: str) -> str:
    """The full id of the commit that a branch, tag or full id of `source` names; nothing is fetched.

    Raises `Invalid` where there is no such name, `Prevented` where the source does not answer.
    """
    if re.fullmatch("[0-9a-f]{40}", name):
        return name
    refused = check_location(source.location) or ("looks like an option" if name.startswith("-") else None)
    if refused:
        raise Invalid(f"the source of {source.name} {refused}", where=source.location)
    wanted = (name, f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}")
    listing = _fetch_by_network(store, ("ls-remote", "--quiet", source.location, *wanted))
    if not listing.ok:
        raise Prevented(f"{source.name}: {source.location} does not answer: {last_line(listing)}")
    refs = dict(row.split("\t", 1)[::-1] for row in listing.text.splitlines() if "\t" in row)
    found = next((refs[form] for form in (wanted[1], wanted[2], wanted[3], wanted[0]) if form in refs), None)
    if found is None:
        raise Invalid(f"{source.name} has no {name!r}", where=source.location, hint="a tag, a branch or a full id")
    return found
