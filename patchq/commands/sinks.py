"""What `apply` and `revert` change outside work copies, and what they must not: installed files, vendor folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patchq.commands.place import Place
from patchq.errors import PatchqError, Prevented, Refused
from patchq.evidence.record import Evidence
from patchq.installed import FileChange, Installation, NotInstalled, locate, placed_bytes, state, take_back
from patchq.installed import place as place_files
from patchq.lock import LockedSelection, touched_files
from patchq.machine.lease import refuse_in_use
from patchq.queue.host import Host
from patchq.queue.target import Target
from patchq.report import State, Step
from patchq.store import Store
from patchq.workarea import WorkArea
from patchq.workcopy import digest_folder


@dataclass
class Installed:
    """The selections of one apply whose sink is `installed`: one journal an environment and upstream."""

    place: Place
    target: str
    locked: Mapping[str, LockedSelection]
    area: WorkArea
    store: Store
    host: Host
    absent: set[tuple[str, str]] = field(default_factory=set)
    fresh: list[Path] = field(default_factory=list)
    replaced: list[tuple[Installation, list[FileChange], Path]] = field(default_factory=list)

    def placed(self) -> Iterator[Step]:
        """Change the files in place; what is as locked already stays as it is."""
        for env, name, locked in self._uses():
            try:
                found = self._locate(env, name, locked)
            except (NotInstalled, Prevented) as error:
                self.absent.add((env, name))
                yield _nothing_there(env, name, error)
                continue
            changes = self._changes(locked)
            journal = self._journal(env, name, locked)
            for old in self._journals(env, name):
                if old != journal:
                    self._take_old_back(found, old, env)
            if state(found, changes) == "ours":
                yield Step(
                    f"installed {name}",
                    State.UNCHANGED,
                    f"{len(changes)} files as locked",
                    f"environment {env}",
                )
                continue
            refuse_in_use(self.area, self.target, env)
            place_files(found, changes, journal)
            self.fresh.append(journal)
            shown = f"{len(changes)} files changed below {found.root}"
            yield Step(
                f"installed {name}",
                State.PASSED,
                shown,
                f"environment {env}",
                tuple(change.path for change in changes),
            )

    def undone(self) -> Iterator[Step]:
        """Take back what this apply has changed; what was in force before it is in force again."""
        while self.fresh:
            journal = self.fresh.pop()
            files = take_back(journal)
            yield Step(f"installed {journal.name}", State.NOTE, f"{len(files)} files put back")
        while self.replaced:
            found, changes, old = self.replaced.pop()
            place_files(found, changes, old)
            yield Step(f"installed {old.name}", State.NOTE, "the selection before is in force again")

    def _take_old_back(self, found: Installation, journal: Path, env: str) -> None:
        """Make room for another selection; its files start from what was distributed."""
        refuse_in_use(self.area, self.target, env)
        changes = [FileChange(path, before, after) for path, (before, after) in placed_bytes(journal).items()]
        take_back(journal)
        self.replaced.append((found, changes, journal))

    def drift(self) -> list[Step]:
        """A failed step for every installation that is not as locked."""
        return [step for step in self.verified() if step.state is not State.PASSED]

    def verified(self) -> Iterator[Step]:
        """Whether each installation is as the lock says, read from its bytes."""
        for env, name, locked in self._uses():
            group = f"environment {env}"
            try:
                now = state(self._locate(env, name, locked), self._changes(locked))
            except (NotInstalled, Prevented) as error:
                yield _nothing_there(env, name, error)
                continue
            except PatchqError as error:
                for problem in error.problems:
                    yield Step(f"installed {name}", State.FAILED, str(problem), group)
                continue
            if now == "ours":
                yield Step(f"installed {name}", State.PASSED, f"{len(locked.files)} files as locked", group)
            else:
                yield Step(f"installed {name}", State.FAILED, "is not patched", group, hint="run: patchq apply")

    def reverted(self) -> Iterator[Step]:
        """Take every journal of the target back."""
        for env, name, _ in self._uses():
            files = tuple(path for journal in self._journals(env, name) for path in take_back(journal))
            summary = f"{len(files)} files put back" if files else "was not changed by patchq"
            yield Step(
                f"installed {name}",
                State.PASSED if files else State.NOTE,
                summary,
                f"environment {env}",
                files,
            )

    def _uses(self) -> Iterator[tuple[str, str, LockedSelection]]:
        for name, use in self.place.queue.target(self.target).upstreams.items():
            if use.sink == "installed":
                yield from ((env, name, self.locked[name]) for env in use.environments)

    def _journal(self, env: str, name: str, locked: LockedSelection) -> Path:
        return self.area.journals / f"{self.target}-{env}-{name}@{locked.commit[:12]}"

    def _journals(self, env: str, name: str) -> list[Path]:
        """The journals of an installation, whichever selection they are of."""
        return sorted(self.area.journals.glob(f"{self.target}-{env}-{name}@*"))

    def _locate(self, env: str, name: str, locked: LockedSelection) -> Installation:
        baseline = self.place.queue.upstream(name).baseline
        declared = self.place.queue.target(self.target).environments[env]
        where = self.place.target_file(self.target)
        python = self.host.path(declared.python, where, self.place.root.parent)
        assert baseline.installed
        found = locate(python, _plain_environment(), baseline.installed.distribution)
        if found.version != locked.version:
            what = f"{baseline.installed.distribution} {found.version} is installed; the queue patches {locked.version}"
            raise Refused(what, where=str(found.root))
        return found

    def _changes(self, locked: LockedSelection) -> list[FileChange]:
        pairs = touched_files(self.store, locked.base_tree, locked.tree, dict.fromkeys(locked.files))
        return [FileChange(path, locked.files[path].before, new) for path, (_, new) in pairs.items()]


@dataclass(frozen=True)
class Protected:
    """Folders that must not change while patchq works, digested before."""

    before: Mapping[str, str]
    unnamed: tuple[str, ...]

    def unchanged(self, evidence: Evidence) -> Iterator[Step]:
        """Digest them again and compare."""
        for path, digest in self.before.items():
            now = digest_folder(Path(path))
            evidence.facts.setdefault("protected_paths", {})[path] = now
            same = now == digest
            yield Step(
                path,
                State.PASSED if same else State.FAILED,
                "untouched" if same else "was changed",
                "protected paths",
            )
        for text in self.unnamed:
            yield Step(text, State.NOTE, "names no folder on this host: nothing is proved", "protected paths")


def protected(target: Target, host: Host, where: str) -> Protected:
    """Digest the protected paths of all environments of a target."""
    texts = dict.fromkeys(text for env in target.environments.values() for text in env.protected_paths)
    paths = {text: host.expand(text, where) for text in texts}
    return Protected(
        {path: digest_folder(Path(path)) for path in paths.values() if path},
        tuple(text for text, path in paths.items() if not path),
    )


def _nothing_there(env: str, name: str, error: PatchqError) -> Step:
    problem = error.problems[0]
    return Step(f"installed {name}", State.NOT_RUN, str(problem), f"environment {env}")


def _plain_environment() -> dict[str, str]:
    """This process's environment without what would steer another Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
