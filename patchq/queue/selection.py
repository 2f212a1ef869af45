"""Which patches a target takes, in order, with the reason for every one that is in or out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from patchq.queue.baseline import BaselineForm
from patchq.queue.load import Queue, QueuedPatch, Upstream
from patchq.queue.target import Include, Target


@dataclass(frozen=True)
class Choice:
    """One patch, whether it is in, and by which rule."""

    queued: QueuedPatch
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Selection:
    """The ordered patches of one upstream for one target and variant."""

    target: str
    variant: str | None
    upstream: Upstream
    form: BaselineForm
    choices: tuple[Choice, ...]

    @property
    def key(self) -> str:
        """`TARGET[+VARIANT]/UPSTREAM`, the selection's name in locks and messages."""
        return f"{self.scope}/{self.upstream.name}"

    @property
    def scope(self) -> str:
        """`TARGET[+VARIANT]`."""
        return self.target + (f"+{self.variant}" if self.variant else "")

    @property
    def chosen(self) -> tuple[QueuedPatch, ...]:
        return tuple(choice.queued for choice in self.choices if choice.chosen)

    @property
    def excluded(self) -> tuple[Choice, ...]:
        return tuple(choice for choice in self.choices if not choice.chosen)


def select(queue: Queue, target_name: str, variant: str | None, upstream_name: str) -> Selection:
    """Resolve one selection; the rules are `docs/design.md`, "Who is in"."""
    target = queue.target(target_name)
    upstream = queue.upstream(upstream_name)
    wanted = queue.variants[variant].research if variant else ()
    choices = tuple(_choose(queued, target, variant, wanted) for queued in upstream.patches)
    return Selection(target_name, variant, upstream, target.upstreams[upstream_name].baseline, choices)


def selections(
    queue: Queue, targets: Iterable[str] | None = None, variants: Iterable[str | None] | None = None
) -> Iterator[Selection]:
    """Every declared selection: target × (no variant, each variant) × upstream, or a part of them."""
    for target in queue.targets if targets is None else targets:
        for variant in (None, *queue.variants) if variants is None else variants:
            for upstream in queue.target(target).upstreams:
                yield select(queue, target, variant, upstream)


def matches(glob: str, name: str) -> bool:
    """Whether a glob matches `UPSTREAM/LAYER/NAME`; a `.patch` at the end of the name may be left out."""
    return fnmatchcase(name, glob) or fnmatchcase(name.removesuffix(".patch"), glob)


def against_guards(queued: QueuedPatch, traits: Iterable[str]) -> str | None:
    """The guard that keeps a patch out of a machine with `traits`, in words; None where the guards agree."""
    held = set(traits)
    for trait in queued.entry.forbidden:
        if trait in held:
            return f"guard -{trait}: the target is {trait}"
    required = queued.entry.required
    if required and not held.intersection(required):
        return "guard " + " ".join(f"+{trait}" for trait in required) + ": the target is not"
    return None


def _choose(queued: QueuedPatch, target: Target, variant: str | None, wanted: Iterable[str]) -> Choice:
    excluding = next((glob for glob in target.exclude if matches(glob, queued.name)), None)
    if excluding:
        return Choice(queued, False, f"excluded by {excluding!r}")
    chosen, reason = _by_rule(queued, target.traits, variant, wanted)
    if not chosen:
        including = next((item for item in target.includes() if matches(item.match, queued.name)), None)
        if including and _may_include(including, queued, target):
            why = f" against its guard: {including.reason}" if including.force else ""
            return Choice(queued, True, f"included by {including.match!r}{why}")
    return Choice(queued, chosen, reason)


def _may_include(item: Include, queued: QueuedPatch, target: Target) -> bool:
    return item.force or against_guards(queued, target.traits) is None


def _by_rule(
    queued: QueuedPatch, traits: tuple[str, ...], variant: str | None, wanted: Iterable[str]
) -> tuple[bool, str]:
    against = against_guards(queued, traits)
    if against:
        return False, against
    if queued.entry.layer == "research":
        glob = next((glob for glob in wanted if matches(glob, queued.name)), None)
        if glob:
            return True, f"variant {variant} names it"
        return (
            False,
            f"variant {variant} does not name it" if variant else "research, and no variant was asked for",
        )
    satisfied = [f"+{trait}" for trait in queued.entry.required if trait in traits]
    return True, f"guard {satisfied[0]}" if satisfied else "no guard keeps it out"
