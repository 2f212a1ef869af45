"""What a target declares of its ladder: per rung what its probes are asked, and commands with expectations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, JsonValue, field_validator

from patchq.document import Document, nearest

RungName = Literal["static", "service", "framework", "step", "recovery"]
RUNGS: tuple[RungName, ...] = get_args(RungName)

# Probes of `patchq.probes` that each rung asks by itself, in order: first what needs no device, then one process
# that has the device to itself, then the same below Ray.
BUILT_IN: Mapping[RungName, tuple[str, ...]] = {
    "static": ("interpreter", "variables", "origins", "packages", "pairs", "machine", "folders"),
    "service": ("memory", "allocator", "bf16", "all_reduce", "generate", "embedding"),
    "framework": ("ray", "generate_in_actor"),
    "step": ("data",),
    "recovery": ("checkpoint", "copy"),
}
# These can only be asked about something that the target names: a model, an endpoint, a folder.
NEED_SETTINGS = frozenset({"generate", "generate_in_actor", "embedding", "data", "checkpoint", "copy"})
KNOWN_PROBES = frozenset({*(name for names in BUILT_IN.values() for name in names), "cache", "fsdp"})

Expand = Callable[[str], str]


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from None
    return value


Pattern = Annotated[str, AfterValidator(_pattern)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
CommandName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Settings = dict[str, JsonValue]


class Command(Document):
    """A command of the target's own and what is expected of it. Texts may hold `${VARIABLES}`.

    It runs in the environment that `env` prints, with `set` on top, in `cwd` or else in an empty folder. Its exit
    status has to be `exit`, each of `must` has to match somewhere in its output (both streams, line by line:
    `^` and `$` mean a line's ends), none of `must_not` may; `seconds` is its time limit. With `gates` its output
    has to pass the probe `step_log` with these settings as well.
    """

    name: CommandName
    run: tuple[str, ...] = Field(min_length=1)
    cwd: str = ""
    set: dict[Variable, str] = {}
    exit: int = 0
    must: tuple[Pattern, ...] = ()
    must_not: tuple[Pattern, ...] = ()
    seconds: int = Field(default=600, gt=0)
    gates: Settings | None = None

    def expanded(self, expand: Expand) -> Command:
        """The command for one host; regular expressions stay as they are."""
        changes = {
            "run": tuple(map(expand, self.run)),
            "cwd": expand(self.cwd),
            "set": {name: expand(value) for name, value in self.set.items()},
            "gates": None if self.gates is None else _expand_settings(self.gates, expand),
        }
        return self.model_copy(update=changes)


class Rung(Document):
    """One rung: `ask` are settings for probes (which join the built-in ones if they are not among them)."""

    ask: dict[str, Settings] = {}
    commands: tuple[Command, ...] = ()

    @field_validator("ask")
    @classmethod
    def _known(cls, value: dict[str, Settings]) -> dict[str, Settings]:
        for name in value:
            if name not in KNOWN_PROBES:
                raise ValueError(f"there is no probe {name!r} ({nearest(name, list(KNOWN_PROBES))})")
        return value

    @field_validator("commands")
    @classmethod
    def _named_once(cls, value: tuple[Command, ...]) -> tuple[Command, ...]:
        names = [command.name for command in value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the command {twice[0]!r} is there twice")
        return value

    def expanded(self, expand: Expand) -> Rung:
        """The rung for one host."""
        settings = {name: _expand_settings(asked, expand) for name, asked in self.ask.items()}
        commands = tuple(command.expanded(expand) for command in self.commands)
        return self.model_copy(update={"ask": settings, "commands": commands})


class Ladder(Document):
    """The rungs of one environment.

    On a rung of `required`, something that cannot be run (no device, no Ray) stops the climb; on the others it is
    only said. The rungs of `verify` are climbed before every long run too.
    """

    required: tuple[RungName, ...] = ()
    verify: tuple[RungName, ...] = ()
    static: Rung = Rung()
    service: Rung = Rung()
    framework: Rung = Rung()
    step: Rung = Rung()
    recovery: Rung = Rung()

    def rung(self, name: RungName) -> Rung:
        """The rung called `name`."""
        rungs: dict[RungName, Rung] = {
            "static": self.static,
            "service": self.service,
            "framework": self.framework,
            "step": self.step,
            "recovery": self.recovery,
        }
        return rungs[name]

    def probes(self, name: RungName) -> tuple[str, ...]:
        """The probes of a rung: its built-in ones, then those that the target adds."""
        return tuple(dict.fromkeys((*BUILT_IN[name], *self.rung(name).ask)))


def _expand_settings(settings: Settings, expand: Expand) -> Settings:
    return {name: _expand_value(value, expand) for name, value in settings.items()}


def _expand_value(value: JsonValue, expand: Expand) -> JsonValue:
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, dict):
        return {name: _expand_value(item, expand) for name, item in value.items()}
    return [_expand_value(item, expand) for item in value] if isinstance(value, list) else value
