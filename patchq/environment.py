"""A target's environment on this host: its `Launch`, with every variable expanded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from patchq.document import nearest
from patchq.errors import Invalid
from patchq.lock import LockedSelection
from patchq.machine.launch import Launch
from patchq.queue.host import Host
from patchq.queue.load import Queue
from patchq.workarea import WorkArea


def environment_name(queue: Queue, target: str, given: str | None) -> str:
    """The environment that is meant: the one given, or the only one; raises `Invalid` where one has to be chosen."""
    known = list(queue.target(target).environments)
    if given is None and len(known) == 1:
        return known[0]
    if given is None:
        raise Invalid(f"the target {target} has the environments {', '.join(known)}", hint="say --env NAME")
    if given not in known:
        raise Invalid(f"the target {target} has no environment {given!r}", hint=nearest(given, known))
    return given


def import_roots(
    queue: Queue, target: str, name: str, locked: Mapping[str, LockedSelection], area: WorkArea
) -> tuple[Path, ...]:
    """The folders of work copies that go first on an environment's import path."""
    roots = []
    for upstream, use in queue.target(target).upstreams.items():
        if name in use.environments and use.sink == "work-copy":
            copy = area.copy(upstream, locked[upstream].commit)
            roots.append((copy / queue.upstream(upstream).baseline.root).absolute())
    return tuple(roots)


def launch_of(
    queue: Queue, target: str, name: str, locked: Mapping[str, LockedSelection], area: WorkArea, host: Host
) -> Launch:
    """How children of an environment are launched; raises `Invalid` for a variable that is not set."""
    declared = queue.target(target).environments[name]
    where = str(queue.root / "targets" / f"{target}.yaml")
    variables = {key: host.expand(value, where) for key, value in declared.set.items()}
    return Launch(
        title=f"target {target}, environment {name} ({area.root})",
        python=host.path(declared.python, where, queue.root.parent),
        profile=host.expand(declared.profile, where),
        import_roots=import_roots(queue, target, name, locked, area),
        pycache=area.pycache,
        ray_folder=area.ray_folder(),
        variables=tuple(sorted(variables.items())),
        forbidden=declared.forbid,
        required=declared.require,
    )
