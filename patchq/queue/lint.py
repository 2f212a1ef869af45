"""What has to hold across the files of a queue: nothing may name what is not there, or do nothing silently."""

from __future__ import annotations

from collections.abc import Iterator

from patchq.document import nearest
from patchq.errors import Problem
from patchq.patch import lint_header
from patchq.queue.load import Queue, QueuedPatch
from patchq.queue.selection import Selection, against_guards, matches
from patchq.report import State, Step


def lint(queue: Queue) -> tuple[Step, ...]:
    """Every finding over the whole queue: errors as `malformed` steps, the rest as `warning`."""
    errors = [
        *_globs_match(queue),
        *_variants_match(queue),
        *_guards_can_hold(queue),
        *_patches_refer(queue),
    ]
    warnings = [*_traits_are_used(queue), *_layers_in_order(queue), *_headers(queue)]
    return (
        *(_step(problem, State.MALFORMED) for problem in dict.fromkeys(errors)),
        *(_step(problem, State.WARNING) for problem in dict.fromkeys(warnings)),
    )


def unsatisfied(selection: Selection) -> Iterator[Problem]:
    """`Requires:` of chosen patches that the selection does not satisfy."""
    chosen = [queued.name for queued in selection.chosen]
    for position, queued in enumerate(selection.chosen):
        for required in queued.patch.header.requires if queued.patch else ():
            if required not in chosen[:position]:
                order = "comes later" if required in chosen else "is not selected"
                yield Problem(f"{queued.name} requires {required}, which {order}", selection.scope)


def _step(problem: Problem, state: State) -> Step:
    return Step(problem.where, state, problem.what, group="queue", hint=problem.hint)


def _all_patches(queue: Queue) -> list[QueuedPatch]:
    return [queued for upstream in queue.upstreams.values() for queued in upstream.patches]


def _globs_match(queue: Queue) -> Iterator[Problem]:
    for name, target in queue.targets.items():
        own = [queued for queued in _all_patches(queue) if queued.upstream in target.upstreams]
        names = [queued.name for queued in own]
        included = target.includes()
        globs = [("exclude", at, glob) for at, glob in enumerate(target.exclude)]
        globs += [("include", at, item.match) for at, item in enumerate(included)]
        for key, at, glob in globs:
            if not any(matches(glob, patch) for patch in names):
                where = queue.place(f"targets/{name}.yaml", key, at)
                yield Problem(f"{glob!r} matches no patch", where, nearest(glob, names))
        for at, item in enumerate(included):
            for queued in own:
                against = against_guards(queued, target.traits)
                if matches(item.match, queued.name) and against and not item.force:
                    where = queue.place(f"targets/{name}.yaml", "include", at)
                    what = f"include {item.match!r} goes against {queued.name}'s {against}"
                    yield Problem(what, where, "say force: true with a reason")


def _variants_match(queue: Queue) -> Iterator[Problem]:
    research = [queued.name for queued in _all_patches(queue) if queued.entry.layer == "research"]
    for name, variant in queue.variants.items():
        for at, glob in enumerate(variant.research):
            if not any(matches(glob, patch) for patch in research):
                where = queue.place(f"variants/{name}.yaml", "research", at)
                yield Problem(f"{glob!r} matches no research patch", where, nearest(glob, research))


def _guards_can_hold(queue: Queue) -> Iterator[Problem]:
    held = {trait for target in queue.targets.values() for trait in target.traits}
    for queued in _all_patches(queue):
        for guard in queued.entry.guards:
            if guard[1:] not in held:
                where = f"{queue.root / queued.upstream / 'series'}:{queued.entry.line}"
                yield Problem(f"no target has the trait of the guard #{guard}", where, nearest(guard[1:], list(held)))


def _patches_refer(queue: Queue) -> Iterator[Problem]:
    known = [queued.name for queued in _all_patches(queue)]
    for queued in _all_patches(queue):
        yield from queued.problems
        if not queued.patch:
            continue
        path = str(queue.root / queued.name)
        for required in queued.patch.header.requires:
            if required not in known:
                where = f"{path}:{queued.patch.header.line_of('requires', required)}"
                yield Problem(f"requires {required!r}, which is not in the queue", where, nearest(required, known))
        for test in queued.patch.header.tests:
            if f"{queued.upstream}/{test}" not in queue.digests:
                tests = [name for name in queue.digests if name.startswith(f"{queued.upstream}/tests/")]
                where = f"{path}:{queued.patch.header.line_of('tests', test)}"
                yield Problem(f"names the test {test!r}, which is not there", where, nearest(test, tests))


def _traits_are_used(queue: Queue) -> Iterator[Problem]:
    named = {guard[1:] for queued in _all_patches(queue) for guard in queued.entry.guards}
    for name, target in queue.targets.items():
        for at, trait in enumerate(target.traits):
            if trait not in named:
                where = queue.place(f"targets/{name}.yaml", "traits", at)
                yield Problem(f"no guard names the trait {trait!r}", where)


def _layers_in_order(queue: Queue) -> Iterator[Problem]:
    """A device patch that was made on top of a research patch can not be chosen without it."""
    for upstream in queue.upstreams.values():
        seen = ""
        for queued in upstream.patches:
            if queued.entry.layer == "research":
                seen = queued.entry.name
            elif seen:
                where = f"{upstream.folder / 'series'}:{queued.entry.line}"
                yield Problem(f"{queued.entry.name} stands after {seen}", where, "put research patches last")


def _headers(queue: Queue) -> Iterator[Problem]:
    for queued in _all_patches(queue):
        if queued.patch:
            yield from lint_header(queued.patch, queued.entry.layer)
