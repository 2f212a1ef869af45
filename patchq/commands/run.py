"""`run`: verify, then the command, in its environment, under a lease, recorded. It fails closed."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchq.commands.cluster import running_cluster
from patchq.commands.place import Place
from patchq.commands.ready import Ready, ready
from patchq.commands.verify import verify
from patchq.document import nearest
from patchq.errors import Invalid, Refused
from patchq.evidence.record import Evidence, write_record
from patchq.exclusive import scratch
from patchq.ladder.command import variables_of
from patchq.machine.lease import take
from patchq.mask import mask_variables, mask_words
from patchq.report import Report, State, Step

_TOOLS = ("python", "torchrun", "ray", "llamafactory-cli", "deepspeed")


def run(
    place: Place,
    target: str,
    env: str | None,
    command: Sequence[str],
    variant: str | None = None,
    *,
    accepted: Sequence[str] = (),
    wait: float = 0,
) -> Report:
    """Prove that all is as applied and launch `command` (none: the user's shell); the report's `become` is it.

    `accepted` names steps that were not run and that somebody takes upon himself. Raises `Invalid` for a name that
    is none of them, and where the environment cannot be set up.
    """
    now = ready(place, target, env, variant)
    verified = verify(place, target, now.variant, env=now.env, smoke=False, wait=wait)
    with scratch() as room:
        variables = variables_of(now.launch, cwd=room)
    job = _Job(now, tuple(command) or (os.environ.get("SHELL", "bash"),), variables, tuple(accepted))
    steps = tuple(job.steps(verified))
    data = {"target": target, "env": now.env, "variant": now.variant, "command": mask_words(job.command)}
    report = Report("run", steps, data)
    return job.started(report, wait) if report.exit_code == 0 else report


@dataclass(frozen=True)
class _Job:
    """One run: `variables` is the environment that the command will see."""

    now: Ready
    command: tuple[str, ...]
    variables: Mapping[str, str]
    accepted: tuple[str, ...]

    def steps(self, verified: Report) -> Iterator[Step]:
        """All that speaks for or against the start."""
        yield from self._accepted([*self._applied(), *_concerned(verified.steps, self.now.env)])
        yield from self._folders()
        yield self._program()
        yield from self._lease()
        yield from running_cluster(self.now.subject(Evidence()), self.variables)

    def started(self, report: Report, wait: float) -> Report:
        """Take the lease and write the record: from here on this process is the run."""
        now = self.now
        with now.area.locked("run", wait):
            self._refuse_moved()
            copies, command = tuple(now.copies.values()), shlex.join(mask_words(self.command))
            take(now.area, target=now.target, env=now.env, copies=copies, command=command)
            evidence = Evidence(facts=self._facts())
            folder = write_record(
                now.area.records, report, evidence, target=now.target, variant=now.variant, lock=now.lock.digest
            )
        argv = tuple(now.launch.argv(self.command, check=True))
        return replace(report, data={**report.data, "record": str(folder)}, become=argv)

    def _refuse_moved(self) -> None:
        """Raise `Refused` where what was verified is not in force any more: somebody came in between."""
        now = ready(self.now.place, self.now.target, self.now.env, self.now.variant)
        if (now.applied.id, now.copies) != (self.now.applied.id, self.now.copies):
            raise Refused("what was verified was replaced meanwhile", where=str(now.area.root), hint="run it again")

    def _applied(self) -> Iterator[Step]:
        """What the apply did not run, as steps of this verb."""
        for step in self.now.applied.steps:
            if step["state"] == State.NOT_RUN.value and step.get("required", True):
                group = str(step.get("group", ""))
                found = Step(str(step["name"]), State.NOT_RUN, f"at apply: {step.get('summary', '')}", group)
                yield from _concerned([found], self.now.env)

    def _accepted(self, steps: Sequence[Step]) -> Iterator[Step]:
        missing = {step.name for step in steps if step.code == State.NOT_RUN.code}
        for name in self.accepted:
            if name not in missing:
                raise Invalid(f"no step {name!r} was not run", hint=nearest(name, sorted(missing)) or "leave it out")
        for step in steps:
            if step.name in self.accepted and step.state is State.NOT_RUN:
                yield replace(step, state=State.WARNING, summary=f"not run, and accepted by name: {step.summary}")
            elif step.code == State.NOT_RUN.code:
                yield replace(step, hint=f"run it, or accept it: --accept-not-run {shlex.quote(step.name)}")
            else:
                yield step

    def _folders(self) -> Iterator[Step]:
        """The working directory and the script's come before `PYTHONPATH`: nothing of an upstream may lie there."""
        here = Path.cwd()
        packages = {name for upstream in self.now.place.queue.upstreams.values() for name in upstream.baseline.packages}
        scripts = {
            Path(word).absolute().parent for word in self.command if "/" in word or word.endswith((".py", ".sh"))
        }
        roots = {root.resolve() for root in self.now.launch.import_roots}
        for folder in sorted({here, *scripts}):
            for package in sorted(packages):
                found = next((path for path in (folder / package, folder / f"{package}.py") if path.exists()), None)
                if found and folder.resolve() not in roots:
                    which = "working directory" if folder == here else "script's directory"
                    yield Step(f"shadows {package}", State.FAILED, f"the {which} holds another {package}: {found}",
                               "launch", hint="start from another directory, or move it away")  # fmt: skip
        if inside := [copy for copy in self.now.copies.values() if here.resolve().is_relative_to(copy.resolve())]:
            yield Step("working directory", State.WARNING, f"is inside the work copy {inside[0]}", "launch",
                       hint="run outputs belong outside the work copy")  # fmt: skip

    def _program(self) -> Step:
        found = self._which(self.command[0])
        if found is None:
            return Step("command", State.FAILED, f"there is no program {self.command[0]!r} on the environment's PATH",
                        "launch")  # fmt: skip
        return Step("command", State.PASSED, f"{found}, in {self.now.launch.title}", "launch")

    def _lease(self) -> Iterator[Step]:
        """`ray start` closes what its daemons would inherit, the lease among it."""
        if Path(self.command[0]).name == "ray" and self.command[1:2] == ("start",) and "--block" not in self.command:
            what = "ends as soon as `ray start` returns, and the cluster goes on importing the work copy"
            yield Step("lease", State.WARNING, what, "launch",
                       hint="say `ray start --block`: prune and revert then leave the copy alone")  # fmt: skip

    def _which(self, name: str) -> str | None:
        return shutil.which(name, path=self.variables.get("PATH", ""))

    def _facts(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "argv": list(self.command),
            "cwd": str(Path.cwd()),
            "environment": self.now.env,
            "variables": mask_variables(self.variables),
            "resolved": {name: self._which(name) for name in (self.command[0], *_TOOLS)},
            "import_roots": [str(root) for root in self.now.launch.import_roots],
            "copies": {name: str(path) for name, path in self.now.copies.items()},
            "accepted_not_run": list(self.accepted),
        }


def _concerned(steps: Sequence[Step], env: str) -> list[Step]:
    """The steps that concern this environment; that some apply had steps that were not run is said one by one."""
    return [
        step
        for step in steps
        if (not step.group.startswith("environment ") or step.group == f"environment {env}")
        and (step.name, step.state) != ("last apply", State.NOT_RUN)
    ]
