"""`install`: puts the target's wheels into an environment and guards what must not change there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from packaging.utils import canonicalize_name

from patchq.commands.place import Place
from patchq.commands.sinks import protected
from patchq.document import sha256_file
from patchq.environment import environment_name, launch_of
from patchq.errors import Prevented, Refused
from patchq.evidence.record import Evidence, next_stamp, record_folders, write_record
from patchq.index import Pin
from patchq.index.download import fetch
from patchq.installed.install import Result, install_wheels, layout_of
from patchq.installed.undo import newest, restore, roll_back_all, unfinished
from patchq.lock import Lock, load_lock
from patchq.machine.launch import Launch
from patchq.machine.lease import await_end, refuse_in_use
from patchq.queue.target import Environment
from patchq.report import Report, State, Step
from patchq.workarea import WorkArea, remember_area


def install(
    place: Place, target: str, env: str | None = None, *, wait: float = 0, before: Sequence[Step] = ()
) -> Report:
    """Install the locked wheels of an environment without dependencies and without an index.

    Where a protected distribution changes in any file, all is put back. Raises `Refused` where a wheel is itself
    protected, and `Prevented` while something that was launched in the environment still runs.
    """
    name = environment_name(place.queue, target, env)
    area, lock = place.area(target), load_lock(place.queue)
    await_end(area, target, name, wait=wait)
    with area.locked("install", wait):
        steps = [*before, *(Step("interrupted", State.NOTE, line) for line in roll_back_all(area))]
        refuse_in_use(area, target, name)
        locked = lock.wheels.get(f"{target}/{name}")
        if locked is None:
            return Report("install", (*steps, Step("wheels", State.NOTE, f"{target} wants none in {name}")))
        job = _Job(place, target, name, area, lock, locked.pins)
        steps += job.steps()
        report = Report("install", tuple(steps), {"target": target, "env": name, "work": str(area.root)})
        folder = write_record(area.records, report, job.evidence, target=target, variant=None, lock=lock.digest)
        remember_area(target, area)
    return Report("install", report.steps, {**report.data, "record": str(folder)})


def undo_folder(area: WorkArea, target: str, env: str) -> Path:
    """Where the ways back of an environment's installs are."""
    return area.root / "installs" / f"{target}-{env}"


def cut_short(area: WorkArea, target: str, env: str) -> Iterator[Step]:
    """A failed step where an install into an environment was cut short: its files may be of two states."""
    if unfinished(undo_folder(area, target, env)):
        yield Step("install", State.FAILED, f"into {env} was cut short: its files may be partly old and partly new",
                   f"environment {env}", hint="patchq install, apply or revert puts back what it was")  # fmt: skip


def last_install(area: WorkArea, target: str) -> Path | None:
    """The way back of the target's newest install that was not taken back, or not to the end."""
    parts = sorted((area.root / "installs").glob(f"{target}-*"))
    begun = [found for part in parts if (found := newest(part))]
    return max(begun, key=lambda path: path.name, default=None)


def take_back_install(journal: Path) -> Step:
    """Take an install back; the journal stays, until a record says so. Raises `Refused` where somebody has changed its
    files since."""
    files = restore(journal)
    return Step(
        f"install {journal.parent.name}", State.PASSED, f"{len(files)} files put back", "environment", files[:20]
    )


@dataclass
class _Job:
    """One installation into one environment."""

    place: Place
    target: str
    env: str
    area: WorkArea
    lock: Lock
    pins: tuple[Pin, ...]
    evidence: Evidence = field(default_factory=Evidence)
    absent: list[str] = field(default_factory=list)  # of what is protected, what is not installed

    @property
    def environment(self) -> Environment:
        return self.place.queue.target(self.target).environments[self.env]

    @property
    def group(self) -> str:
        return f"environment {self.env}"

    def steps(self) -> list[Step]:
        locked = self.lock.of(self.target, None)
        host = self.place.area_host(self.target)
        launch = launch_of(self.place.queue, self.target, self.env, locked, self.area, host)
        self._refuse_protected()
        wheels = {pin: self._wheel(pin) for pin in self.pins}
        layout = layout_of(launch, [*(pin.name for pin in self.pins), *self.environment.protected])
        there = [pin for pin in self.pins if layout.version(pin.name) == pin.version]
        steps = [Step(pin.name, State.UNCHANGED, f"{pin.version} is installed", self.group) for pin in there]
        self.absent += [name for name in self.environment.protected if layout.version(canonicalize_name(name)) is None]
        steps += [Step(name, State.NOTE, "is protected, and not installed: nothing is proved", self.group)
                  for name in self.absent]  # fmt: skip
        todo = [pin for pin in self.pins if pin not in there]
        if not todo:
            return steps
        folders = protected(self.place.queue.target(self.target), host, self.place.target_file(self.target))
        steps += self._installed(launch, {pin: wheels[pin] for pin in todo})
        return [*steps, *folders.unchanged(self.evidence)]

    def _installed(self, launch: Launch, wheels: dict[Pin, Path]) -> Iterator[Step]:
        folder = undo_folder(self.area, self.target, self.env)
        taken = (path.name for path in (*record_folders(self.area.records), *folder.glob("*")))
        journal = folder / next_stamp(datetime.now(timezone.utc), taken)
        result = install_wheels(launch, list(wheels.values()), self.environment.protected, journal)
        self.evidence.logs[f"pip-{self.env}.txt"] = result.pip.text + result.pip.error_text + "\n"
        self.evidence.facts |= {"wheels": [str(pin) for pin in wheels], "pip": list(result.pip.argv[4:])}
        for pin in wheels:
            state = State.PASSED if result.ok else State.FAILED
            what = f"{pin.version} from {pin.filename}" if result.ok else f"{pin.version} was not installed"
            yield Step(pin.name, state, what, self.group)
        if not result.pip.ok:
            state, said = State.PREVENTED if result.prevented else State.FAILED, result.pip.error_text.splitlines()[-5:]
            yield Step("pip", state, result.prevented or f"exit status {result.pip.code}", self.group, tuple(said))
        for name in result.absent:
            what = "pip ended well, and the environment does not have it"
            yield Step("pip", State.FAILED, f"{name}: {what}", self.group, hint="does a pip.conf lead it elsewhere?")
        yield from self._guarded(result)

    def _guarded(self, result: Result) -> Iterator[Step]:
        for name in (name for name in self.environment.protected if name not in self.absent):
            files = result.changed.get(canonicalize_name(name), ())
            if files:
                what = f"was changed in {len(files)} files, the first is {files[0]}"
                yield Step(f"protected {name}", State.FAILED, what, self.group, files[:20],
                           hint="leave the wheel that brings these files out of the target's wheels")  # fmt: skip
            else:
                yield Step(f"protected {name}", State.PASSED, "untouched", self.group)
        if result.put_back:
            yield Step("put back", State.NOTE, f"{result.put_back} files are as they were", self.group)
        for path in result.lost:
            yield Step(path, State.FAILED, "could not be put back", self.group, hint="restore the vendor's environment")

    def _refuse_protected(self) -> None:
        guarded = {canonicalize_name(name) for name in self.environment.protected}
        for pin in self.pins:
            if pin.name in guarded:
                where = self.place.target_file(self.target)
                raise Refused(f"{pin.name} is protected, and among the wheels too", where=where,
                              hint="take it out of one of the two")  # fmt: skip

    def _wheel(self, pin: Pin) -> Path:
        """The file of a pin: what the bundle brought, else from the package index where there is one."""
        kept = self.area.root / "wheels" / pin.filename
        if kept.is_file():
            if sha256_file(kept) != pin.sha256:
                raise Refused("does not have the SHA-256 that the lock names", where=str(kept))
            return kept
        if self.place.home:
            raise Prevented(f"{pin.filename} is not in the work area", where=str(kept), hint="say --bundle FOLDER")
        return fetch(pin, self.place.store.folder / "wheels")
