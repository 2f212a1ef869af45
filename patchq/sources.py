"""Baselines as commits in the store: a git commit with its submodules, an sdist imported by a fixed rule.

Once a baseline is in the store, no verb asks for its source again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from patchq.document import sha256_file
from patchq.engine import Base
from patchq.errors import Invalid, PatchqError, Prevented, Problem, Refused
from patchq.index import Pin
from patchq.location import check_location
from patchq.progress import tell
from patchq.queue.baseline import BaselineForm, GitBaseline, SdistBaseline
from patchq.queue.host import Host
from patchq.queue.load import Upstream
from patchq.store import Entry, Source, Store, fetch_commit
from patchq.store.fetch import is_complete
from patchq.store.objects import IDENTITY

# 1980-01-01, the earliest time that a zip archive can hold and the usual floor of reproducible archives.
SDIST_TIME = "315532800 +0000"


@dataclass(frozen=True)
class Sources:
    """Where baselines come from. `given` are the `--source NAME=LOCATION` of this call; `offline` asks nobody;
    `nearby` is another store of patchq on this host, asked before anybody else."""

    store: Store
    host: Host
    given: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    nearby: Store | None = None
    _known: dict[tuple[str, BaselineForm, str], Base | PatchqError] = field(default_factory=dict, compare=False)

    def base(self, upstream: Upstream, form: BaselineForm) -> Base:
        """The base of an upstream's selections; brings the baseline into the store if it is not there.

        Raises `Prevented` where it can't be had, `Refused` where it is not what the queue pins. Nobody is asked twice.
        """
        key = (upstream.name, form, upstream.baseline.model_dump_json())
        if key not in self._known:
            try:
                self._known[key] = self._base(upstream, form)
            except PatchqError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, PatchqError):
            raise known
        return known

    def _base(self, upstream: Upstream, form: BaselineForm) -> Base:
        if form == "installed":
            assert upstream.baseline.installed
            return self.base(upstream, upstream.baseline.installed.like)
        if form == "sdist":
            assert upstream.baseline.sdist
            return Base.of(self.store, self._sdist(upstream.baseline.sdist))
        assert upstream.baseline.git
        return self._git(upstream, upstream.baseline.git)

    def refused(self, upstreams: Iterable[Upstream]) -> Iterator[Problem]:
        """Sources that git may not be given, as this host's variables make them; one that is not set asks nobody."""
        for upstream in upstreams:
            git, where = upstream.baseline.git, str(upstream.folder / "baseline.yaml")
            if git is None:
                continue
            parts = {f"{upstream.name}.{path}": part.source for path, part in git.submodules.items()}
            for name, text in {upstream.name: git.source, **parts}.items():
                with suppress(Invalid):
                    reason = check_location(self.given.get(name) or self.host.expand(text, where))
                    if reason:
                        yield Problem(f"the source of {name} {reason}", where, text)

    def history(self, upstream: Upstream) -> None:
        """Bring the whole history of a git baseline into the store."""
        git = upstream.baseline.git
        assert git
        source = self._location(upstream.name, git.source, upstream)
        fetch_commit(self.store, source, git.commit, history=True)

    def _git(self, upstream: Upstream, git: GitBaseline) -> Base:
        self.bring(upstream.name, git.source, git.commit, upstream)
        base = Base.of(self.store, git.commit)
        wanted = {path: module.commit for path, module in git.submodules.items()}
        links = self.store.submodules(base.tree)
        if links != wanted:
            where = str(upstream.folder / "baseline.yaml")
            raise Refused(f"the baseline has the submodules {links}, the queue names {wanted}", where=where)
        for path, module in git.submodules.items():
            self.bring(f"{upstream.name}.{path}", module.source, module.commit, upstream)
        return base

    def bring(self, name: str, declared: str, commit: str, upstream: Upstream) -> None:
        """Have a commit complete in the store; `declared` is where it comes from."""
        if is_complete(self.store, commit):
            return
        tell(f"fetching the baseline of {name}")
        if self.nearby and is_complete(self.nearby, commit):
            fetch_commit(self.store, Source(name, str(self.nearby.folder)), commit)
        else:
            fetch_commit(self.store, self._location(name, declared, upstream), commit)

    def _location(self, name: str, declared: str, upstream: Upstream) -> Source:
        if self.offline:
            raise Prevented(f"{name}: the baseline is not in the store, and there is no source here",
                            hint="apply the bundle that carries it")  # fmt: skip
        where = str(upstream.folder / "baseline.yaml")
        return Source(name, self.given.get(name) or self.host.expand(declared, where))

    def _sdist(self, sdist: SdistBaseline) -> str:
        ref = sdist_ref(sdist.sha256)
        known = self.store.git.try_run(("rev-parse", "--verify", "--quiet", ref))
        if known.ok:
            return known.text.strip()
        kept = sdist_folder(self.nearby) / sdist.filename if self.nearby else None
        if kept and kept.is_file() and sha256_file(kept) == sdist.sha256:
            return import_sdist(self.store, kept, sdist)
        if self.offline:
            raise Prevented(f"{sdist.filename} is not in the store, and there is no package index here",
                            hint="apply the bundle that carries it")  # fmt: skip
        from patchq.index.download import fetch

        tell(f"fetching {sdist.filename}")
        return import_sdist(self.store, fetch(pin_of(sdist), sdist_folder(self.store)), sdist)


def source_names(upstreams: Iterable[Upstream]) -> list[str]:
    """What `--source` may name: upstreams with a git baseline, and submodules as `UPSTREAM.PATH`."""
    known = [(upstream.name, upstream.baseline.git) for upstream in upstreams if upstream.baseline.git]
    return [name for own, git in known for name in (own, *(f"{own}.{path}" for path in git.submodules))]


def pin_of(sdist: SdistBaseline) -> Pin:
    """The sdist as a file of the package index."""
    return Pin(name=sdist.project, version=sdist.version, filename=sdist.filename, sha256=sdist.sha256)


def sdist_ref(digest: str) -> str:
    """The ref that holds an imported sdist in the store."""
    return f"refs/patchq/sdist/{digest}"


def sdist_folder(store: Store) -> Path:
    """Where the store keeps sdists as they came."""
    return store.folder / "sdist"


def import_sdist(store: Store, path: Path, sdist: SdistBaseline) -> str:
    """Import an sdist, whose digest was checked, as one commit without parents; returns its id."""
    from patchq.sdist import read_sdist

    files = [(file.path, Entry(file.mode, store.write("blob", file.data))) for file in read_sdist(path)]
    message = f"{sdist.project} {sdist.version}\n\nSHA-256: {sdist.sha256}\n".encode()
    commit = store.write_commit(store.write_tree(files), (), IDENTITY, SDIST_TIME, SDIST_TIME, message)
    store.git.run(("update-ref", sdist_ref(sdist.sha256), commit))
    return commit
