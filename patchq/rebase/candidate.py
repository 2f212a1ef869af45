"""A baseline that a series may move to: found by name in a clone, a store or the package index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchq.authoring.versions import version_in
from patchq.document import parse_yaml
from patchq.engine import Base
from patchq.errors import Invalid, PatchqError, Prevented, Refused
from patchq.importing.clone import Clone
from patchq.index import Pin
from patchq.index.download import fetch, find_sdist
from patchq.queue.baseline import Baseline, BaselineForm, SdistBaseline
from patchq.queue.load import Upstream
from patchq.sources import Sources, import_sdist, sdist_folder
from patchq.store import Source, fetch_commit
from patchq.store.fetch import next_ref, resolve_name


@dataclass(frozen=True)
class Candidate:
    """One form of another baseline. `label` is what it was asked for by, `pin` its file where it is an sdist."""

    label: str
    form: BaselineForm
    base: Base
    version: str
    pin: Pin | None = None


def find_candidates(sources: Sources, upstream: Upstream, name: str) -> list[Candidate]:
    """The baseline called `name` (a ref, a commit or a version), one for each form in which it can be had.

    Raises `Invalid` where it is in none, `Prevented` where nobody can be asked.
    """
    found: list[Candidate] = []
    errors: list[PatchqError] = []
    for look in (_in_git, _in_index):
        try:
            found += look(sources, upstream, name, found[0].version if found else name)
        except PatchqError as error:  # noqa: PERF203 - two rounds
            errors.append(error)
    if not found:
        raise errors[0] if errors else Invalid(f"{upstream.name} has no baseline that can move")
    return found


def clone_of(sources: Sources, upstream: Upstream) -> Clone | None:
    """The upstream's clone, where its source is one on this machine."""
    location = _location(sources, upstream)
    return Clone(Path(location).resolve(), sources.store) if location and Path(location).is_dir() else None


def _location(sources: Sources, upstream: Upstream) -> str:
    git = upstream.baseline.git
    if git is None or sources.offline:
        return ""
    where = str(upstream.folder / "baseline.yaml")
    return sources.given.get(upstream.name) or sources.host.expand(git.source, where)


def _in_git(sources: Sources, upstream: Upstream, name: str, version: str) -> Iterator[Candidate]:
    if not upstream.baseline.git:
        return
    store = sources.store
    carried = store.git.try_run(("rev-parse", "--verify", "--quiet", next_ref(upstream.name, name)))
    if carried.ok:
        commit = carried.text.strip()
    else:
        commit = _resolve(sources, upstream, name)
        fetch_commit(store, Source(upstream.name, _location(sources, upstream)), commit)
    base = Base.of(store, commit)
    yield Candidate(name, "git", base, version_in(store, base.tree, name))


def _resolve(sources: Sources, upstream: Upstream, name: str) -> str:
    location = _location(sources, upstream)
    if not location:
        raise Prevented(f"{upstream.name} {name} is not in the store, and there is no source here",
                        hint="let the bundle carry it: patchq bundle --rebase-to REF")  # fmt: skip
    clone = clone_of(sources, upstream)
    return clone.resolve(name) if clone else resolve_name(sources.store, Source(upstream.name, location), name)


def _in_index(sources: Sources, upstream: Upstream, name: str, version: str) -> Iterator[Candidate]:
    sdist = upstream.baseline.sdist
    if not sdist:
        return
    if sources.offline:
        raise Prevented(f"{sdist.project} {name}: there is no package index here")
    pin = find_sdist(sdist.project, version.removeprefix("v"))
    wanted = SdistBaseline(project=pin.name, version=pin.version, filename=pin.filename, sha256=pin.sha256)
    commit = import_sdist(sources.store, fetch(pin, sdist_folder(sources.store)), wanted)
    yield Candidate(name, "sdist", Base.of(sources.store, commit), pin.version, pin)


def moved_baseline(sources: Sources, upstream: Upstream, text: bytes, found: list[Candidate], alias: str) -> bytes:
    """`baseline.yaml` with the new baseline in it; comments and order stay.

    Raises `Refused` where a declared form has no candidate, or the file cannot be changed in place.
    """
    baseline = upstream.baseline
    by_form = {candidate.form: candidate for candidate in found}
    for form in ("git", "sdist"):
        if getattr(baseline, form) and form not in by_form:
            what = f"{upstream.name} has a {form} baseline too, which {found[0].label} is not in"
            raise Refused(what, where=str(upstream.folder / "baseline.yaml"), hint="drop that form, or move it by hand")
    new = text
    if baseline.git:
        new = _swap(new, baseline.git.commit, by_form["git"].base.commit)
        new = _swap_submodules(sources, baseline, new, by_form["git"])
    pin = by_form["sdist"].pin if "sdist" in by_form else None
    if baseline.sdist and pin:
        new = _swap(_swap(new, baseline.sdist.sha256, pin.sha256), baseline.sdist.filename, pin.filename)
    new = _swap_key(new, "version", baseline.version, found[0].version)
    new = _swap_key(new, "upstream", upstream.name, alias)
    _check(new, upstream, found, alias)
    return new


def _swap(text: bytes, old: str, new: str) -> bytes:
    return text.replace(old.encode(), new.encode())


def _swap_key(text: bytes, key: str, old: str, new: str) -> bytes:
    pattern = rf"^(\s*{key}:[ \t]*)[\"']?{re.escape(old)}[\"']?[ \t]*$"
    value = new if key == "upstream" else f'"{new}"'
    return re.sub(pattern.encode(), lambda m: m[1] + value.encode(), text, flags=re.MULTILINE)


def _swap_submodules(sources: Sources, baseline: Baseline, text: bytes, candidate: Candidate) -> bytes:
    assert baseline.git
    links = sources.store.submodules(candidate.base.tree)
    if set(links) != set(baseline.git.submodules):
        what = (
            f"{candidate.label} has the submodules {sorted(links)}, the queue names {sorted(baseline.git.submodules)}"
        )
        raise Refused(what, hint="name them in baseline.yaml first")
    for path, module in baseline.git.submodules.items():
        text = _swap(text, module.commit, links[path])
    return text


def _check(text: bytes, upstream: Upstream, found: list[Candidate], alias: str) -> None:
    """Whether the changed text says what was meant."""
    where = str(upstream.folder / "baseline.yaml")
    try:
        now = parse_yaml(text, Baseline, where)
    except Invalid as error:
        raise Refused([*error.problems]) from None
    commit = next((candidate.base.commit for candidate in found if candidate.form == "git"), None)
    if (now.upstream, now.version, now.git.commit if now.git else None) != (alias, found[0].version, commit):
        raise Refused("cannot be moved in place", where=where, hint="write one key on each line, as patchq does")
