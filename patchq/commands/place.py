"""Where a verb works: which queue, which store, which work area."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from platformdirs import user_data_path, user_state_path

from patchq.document import nearest, write_atomic
from patchq.errors import Invalid, Prevented
from patchq.queue.host import Host
from patchq.queue.load import Queue, find_root, load_queue
from patchq.queue.target import Target
from patchq.record import Record, list_records
from patchq.sources import Sources, source_names
from patchq.store import Store, require_git
from patchq.workarea import WorkArea

OLDEST_GIT = (2, 25)


@dataclass(frozen=True)
class Place:
    """A queue's `series/` folder and, when that folder lies in a work area, the area."""

    root: Path
    home: WorkArea | None = None

    @classmethod
    def find(cls, given: Path | None, target: str | None = None) -> Place:
        """The queue that is meant: `given`, else the one around the current folder, else the one that was last
        applied for `target` on this host. Raises `Invalid` where there is none."""
        start = (given or Path.cwd()).absolute()
        root = find_root(start)
        if root:
            return cls(root, _area_around(root))
        if given:
            area = WorkArea(start)
            if area.records.is_dir():
                return cls._in_area(area, target)
            raise Invalid("there is no queue here", where=str(given), hint="a queue has series/queue.yaml")
        known = _known_areas()
        area_path = (
            known.get(target) if target else next(iter(known.values()), None) if len(set(known.values())) == 1 else None
        )
        if area_path is None:
            raise Invalid("there is no queue here, and none was applied on this host",
                          where=str(start), hint="go to a folder with series/, or say --queue")  # fmt: skip
        return cls._in_area(WorkArea(Path(area_path)), target)

    @classmethod
    def _in_area(cls, area: WorkArea, target: str | None) -> Place:
        applied = [record for record in list_records(area.records) if record.verb == "apply"]
        asked = [record for record in applied if target in (None, record.target)]
        mine = [record for name in {record.target for record in asked} if (record := last_apply(area, name))] or asked
        if not mine:
            raise Invalid(f"nothing was applied for {target or 'any target'} in this work area", where=str(area.root))
        newest = max(mine, key=lambda record: record.id)
        return cls(area.queue(newest.lock) / "series", area)

    @cached_property
    def queue(self) -> Queue:
        return load_queue(self.root)

    @property
    def authoring(self) -> Path:
        """The folder that a queue is changed in, with `series/` and edit copies below it.

        A queue that came in a bundle is named by its digest and stays as it came: it is changed in a copy.
        """
        return self.home.authoring if self.home else self.root.parent

    @property
    def host(self) -> Host:
        return Host.here(self.home.root if self.home else None)

    @cached_property
    def store(self) -> Store:
        """The store of the work area that the queue lies in, else the user's own.

        Raises `Prevented` where it can't be made, or git is missing or too old.
        """
        require_git(OLDEST_GIT, "patchq")
        return Store.open(self.home.store if self.home else _user_folder(user_data_path("patchq")) / "store")

    def sources(self, given: dict[str, str] | None = None) -> Sources:
        """Where baselines come from; a queue in a work area has what the bundle brought and asks nobody."""
        return Sources(self.store, self.host, self.checked(given or {}), offline=self.home is not None)

    def checked(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """`--source` options (name → location) as they are; raises `Invalid` for a name that nothing here has."""
        known = source_names(self.queue.upstreams.values())
        for name in given:
            if name not in known:
                raise Invalid(f"--source names {name!r}, which has no git baseline here", hint=nearest(name, known))
        return given

    def target_file(self, target: str) -> str:
        return str(self.root / "targets" / f"{target}.yaml")

    def area(self, target: str) -> WorkArea:
        """The work area of a target on this host."""
        if self.home:
            return self.home
        declared: Target = self.queue.target(target)
        return WorkArea(self.host.path(declared.work, self.target_file(target), self.root.parent))

    def area_host(self, target: str) -> Host:
        """This host's variables, with `host.yaml` of the target's work area."""
        return Host.here(self.area(target).root)


def remember_area(target: str, area: WorkArea) -> None:
    """Note where a target was applied, so that later verbs find it from any folder."""
    known = {**_known_areas(), target: str(area.root)}
    try:
        write_atomic(_state_file(), json.dumps(known, indent=2, sort_keys=True).encode() + b"\n")
    except (OSError, Prevented):
        return  # without a home there is nothing to remember in; --queue still works


def applies_in_force(area: WorkArea, target: str) -> list[Record]:
    """The good applies of a target that were not taken back, oldest first; one repeated at once counts once."""
    stack: list[Record] = []
    for record in list_records(area.records):
        if record.target != target:
            continue
        if record.verb == "apply" and record.exit in (0, 4):
            if stack and (stack[-1].lock, stack[-1].variant) == (record.lock, record.variant):
                stack.pop()
            stack.append(record)
        elif record.verb == "revert" and stack and record.facts.get("reverted") == stack[-1].id:
            stack.pop()
    return stack


def last_apply(area: WorkArea, target: str) -> Record | None:
    """The apply of a target that is in force, whichever its variant and lock."""
    return next(reversed(applies_in_force(area, target)), None)


def _area_around(root: Path) -> WorkArea | None:
    """The work area when `root` is its `queue/DIGEST/series`, or `authoring/series`."""
    folder = root.parent.parent.parent if root.parent.parent.name == "queue" else root.parent.parent
    area = WorkArea(folder)
    is_inside = root.parent.parent == area.queues or root.parent == area.authoring
    return area if is_inside and area.store.is_dir() else None


def _known_areas() -> dict[str, str]:
    try:
        known = json.loads(_state_file().read_text())
        return {str(target): str(area) for target, area in known.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _state_file() -> Path:
    return user_state_path("patchq") / "areas.json"


def _user_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set XDG_DATA_HOME to a folder that can be written"
        raise Prevented(f"cannot be made: {error.strerror}", where=str(path), hint=hint) from error
    return path
