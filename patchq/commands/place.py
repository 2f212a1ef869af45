"""Where a verb works: which queue, which store, which work area."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.document import nearest
from patchq.errors import Invalid, Prevented
from patchq.queue.host import Host
from patchq.queue.load import Queue, find_root, load_queue
from patchq.queue.target import Target
from patchq.report import State, Step
from patchq.workarea import WorkArea, known_areas

if TYPE_CHECKING:  # verbs that need no objects do not pay for what reads them
    from patchq.sources import Sources
    from patchq.store import Store

OLDEST_GIT = (2, 25)


@dataclass(frozen=True)
class Place:
    """A queue's `series/` folder and, when that folder lies in a work area, the area.

    `missed` is the folder that has no queue, where nobody named one and the one that was applied last is meant.
    """

    root: Path
    home: WorkArea | None = None
    missed: Path | None = None

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
        known = known_areas()
        area_path = (
            known.get(target) if target else next(iter(known.values()), None) if len(set(known.values())) == 1 else None
        )
        if area_path is None:
            raise Invalid("there is no queue here, and none was applied on this host",
                          where=str(start), hint="go to a folder with series/, or say --queue")  # fmt: skip
        return replace(cls._in_area(WorkArea(Path(area_path)), target), missed=start)

    @classmethod
    def _in_area(cls, area: WorkArea, target: str | None) -> Place:
        from patchq.evidence.inforce import last_apply
        from patchq.evidence.record import list_records

        applied = [record for record in list_records(area.records) if record.verb == "apply"]
        asked = [record for record in applied if target in (None, record.target)]
        mine = [
            record for name in {record.target for record in asked} if (record := last_apply(area.records, name))
        ] or asked
        if not mine:
            raise Invalid(f"nothing was applied for {target or 'any target'} in this work area", where=str(area.root))
        newest = max(mine, key=lambda record: record.id)
        return cls(area.queue(newest.lock) / "series", area)

    @cached_property
    def queue(self) -> Queue:
        return load_queue(self.root)

    def assumed(self) -> Iterator[Step]:
        """A note which queue it is, where nobody named one and none is around."""
        if self.missed:
            what = f"{self.root}, as applied last on this host: there is none at {self.missed}"
            yield Step("queue", State.NOTE, what, "queue", hint="go to a folder with series/, or say --queue")

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
        from platformdirs import user_data_path

        from patchq.store import Store, require_git

        require_git(OLDEST_GIT, "patchq")
        return Store.open(self.home.store if self.home else _user_folder(user_data_path("patchq")) / "store")

    def sources(self, given: dict[str, str] | None = None) -> Sources:
        """Where baselines come from; a queue in a work area has what the bundle brought and asks nobody."""
        from patchq.sources import Sources

        return Sources(self.store, self.host, self.checked(given or {}), offline=self.home is not None)

    def checked(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """`--source` options (name → location) as they are; raises `Invalid` for a name that nothing here has."""
        from patchq.sources import source_names

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


def _area_around(root: Path) -> WorkArea | None:
    """The work area when `root` is its `queue/DIGEST/series`, or `authoring/series`."""
    folder = root.parent.parent.parent if root.parent.parent.name == "queue" else root.parent.parent
    area = WorkArea(folder)
    is_inside = root.parent.parent == area.queues or root.parent == area.authoring
    return area if is_inside and area.store.is_dir() else None


def _user_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set XDG_DATA_HOME to a folder that can be written"
        raise Prevented(f"cannot be made: {error.strerror}", where=str(path), hint=hint) from error
    return path
