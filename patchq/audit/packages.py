"""The rules for what is installed: pins, what `pip check` would say, and files against `RECORD`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from patchq.audit.origins import MODULES
from patchq.audit.subject import Answer, Subject
from patchq.proof import frozen
from patchq.report import State, Step

_ACCEPTED = r"(\S+)(?: \S+)? (?:has requirement|requires) (.+?)(?:, which is not installed)?\.?"
_CODE = (".py", ".so", ".pth")
_SHOWN = 5


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {"protected": list(subject.declared.protected)}


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    found: Answer = answer["distributions"]
    subject.evidence.freeze[subject.name] = frozen(answer)
    digests = {name: record["digest"] for name, record in answer["records"].items() if "digest" in record}
    subject.keep("packages", {name: copy["version"] for name, copy in found.items()})
    subject.keep("protected", digests)
    yield from _pins(subject, found)
    yield from _wheels(subject, found)
    yield from _odd(subject, answer)
    yield from _conflicts(subject, answer)
    yield from _protected(subject, answer)
    yield from _records(subject, answer)


def _pins(subject: Subject, found: Answer) -> Iterator[Step]:
    wrong = []
    for name, pin in subject.declared.pins.items():
        copy = found.get(canonicalize_name(name))
        if copy is None:
            wrong.append((name, f"{name} is not installed, and the target pins {pin}"))
        elif not _fits(f"=={pin}", copy["version"]):
            wrong.append((name, f"{name} {copy['version']} is installed, and the target pins {pin}"))
    for name, what in wrong:
        hint = f"{subject.launch.python} -m pip install --no-deps '{name}=={subject.declared.pins[name]}'"
        yield subject.step(f"pin {name}", State.FAILED, what, hint=hint)
    if subject.declared.pins and not wrong:
        yield subject.step("pins", State.PASSED, f"{len(subject.declared.pins)} as the target pins them")


def _wheels(subject: Subject, found: Answer) -> Iterator[Step]:
    """What the target wants installed."""
    for text in subject.declared.wheels:
        wanted = Requirement(text)
        copy = found.get(canonicalize_name(wanted.name))
        if copy is None or not _fits(str(wanted.specifier), copy["version"]):
            have = f"{wanted.name} {copy['version']} is installed" if copy else f"{wanted.name} is not installed"
            what = f"{have}, and the target wants {text}"
            yield subject.step(f"wheel {wanted.name}", State.FAILED, what, hint="run: patchq install")


def _odd(subject: Subject, answer: Answer) -> Iterator[Step]:
    """What lies where distributions are and is none, and what is there twice in one folder."""
    for path, why in answer["unread"].items():
        yield subject.step(f"metadata {Path(path).name}", State.WARNING, f"{path} is passed over: {why}",
                           hint="install it again, or remove it")  # fmt: skip
    for name, places in answer["doubles"].items():
        yield subject.step(f"metadata {name}", State.WARNING, f"{name} is there {len(places)} times in one folder",
                           detail=tuple(places), hint="remove all but one: chance decides which counts")  # fmt: skip


def _fits(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return specifier == f"=={version}"


def _conflicts(subject: Subject, answer: Answer) -> Iterator[Step]:
    """What `pip check` says, in its words, without what the target accepts."""
    texts = subject.declared.accepted_conflicts
    said: list[str] = []
    seen: set[str] = set()
    accepted = 0
    for copy in answer["distributions"].values():
        for requirement in _requirements(copy, answer["markers"]):
            if text := _broken(copy, requirement, answer["distributions"]):
                excuse = next((one for one in texts if accepts(one, str(copy["name"]), requirement)), None)
                if excuse is None:
                    said.append(text)
                else:
                    accepted += 1
                    seen.add(excuse)
    detail = tuple(f"accepted, and not there: {text}" for text in texts if text not in seen)
    told = f"{accepted} of the conflicts are accepted" if accepted else "no conflicts"
    if said:
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        hint = "accepted_conflicts of the target may name it, where it is known to do no harm"
        yield subject.step("pip check", State.WARNING, f"{said[0]}{more}", detail=(*said[1:20], *detail), hint=hint)
    else:
        yield subject.step("pip check", State.PASSED, told, detail=detail)


def _requirements(copy: Answer, markers: Answer) -> Iterator[Requirement]:
    environment = {**markers, "extra": ""}
    for text in copy["requires"]:
        if "extra ==" in text and " or " not in text:
            continue  # most lines are of extras, and reading each would take a second
        with suppress(InvalidRequirement, InvalidVersion, KeyError):  # what no tool can read is no conflict
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                yield requirement


def _broken(copy: Answer, requirement: Requirement, found: Answer) -> str:
    """pip's sentence for a requirement that is not met, or nothing."""
    other = found.get(canonicalize_name(requirement.name))
    if other is None:
        return f"{copy['name']} {copy['version']} requires {requirement.name}, which is not installed."
    if requirement.url or _fits(str(requirement.specifier), other["version"]):
        return ""
    have = f"{other['name']} {other['version']}"
    return f"{copy['name']} {copy['version']} has requirement {requirement}, but you have {have}."


def accepts(text: str, name: str, requirement: Requirement) -> bool:
    """Whether an accepted conflict means this requirement of a distribution: each of its bounds is one of theirs."""
    found = re.fullmatch(_ACCEPTED, text)
    if found is None or canonicalize_name(found[1]) != canonicalize_name(name):
        return False
    accepted = Requirement(found[2])
    return canonicalize_name(accepted.name) == canonicalize_name(requirement.name) and (
        set(accepted.specifier) <= set(requirement.specifier)
    )


def _absent(subject: Subject, step: str, given: str, *, was_there: bool) -> Step:
    """What never was here cannot have been replaced; what was here and is gone has."""
    if was_there:
        hint = "restore the vendor's environment"
        return subject.step(step, State.FAILED, f"{given} is protected and no longer installed", hint=hint)
    return subject.step(step, State.NOT_RUN, f"{given} is not installed: nothing to hold against its RECORD")


def _protected(subject: Subject, answer: Answer) -> Iterator[Step]:
    before: Answer = subject.before.get("protected", {})
    for given in subject.declared.protected:
        name = canonicalize_name(given)
        copy, record = answer["distributions"].get(name), answer["records"].get(name, {})
        step = f"protected {name}"
        if copy is None:
            yield _absent(subject, step, given, was_there=name in before)
            continue
        version = f"{copy['name']} {copy['version']}"
        if not record["record"]:
            hint = "name its folder under protected_paths"
            yield subject.step(
                step, State.WARNING, f"{version} has no RECORD, so nothing vouches for its files", hint=hint
            )
            continue
        yield from _protected_files(subject, step, version, record, before.get(name))


def _protected_files(subject: Subject, step: str, version: str, record: Answer, before: str | None) -> Iterator[Step]:
    wrong, count = _unaccepted(subject, step.removeprefix("protected "), record)
    if wrong:
        path, what = wrong[0]
        said = f"{version}, which is protected, was changed: {path} {what}"
        rows = tuple(f"{path} {what}" for path, what in wrong[1:20])
        hint = "put the vendor's files back; or, if the vendor ships them so, name them in accepted_edits"
        yield subject.step(step, State.FAILED, f"{said} ({count} files)" if count > 1 else said, detail=rows, hint=hint)
    elif before is not None and before != record["digest"]:
        said = f"{version}, which is protected, is whole, but not what the last good record has"
        yield subject.step(step, State.FAILED, said, hint="was it installed again? `patchq smoke` proves the new one")
    else:
        same = ", as in the last good record" if before else ""
        yield subject.step(step, State.PASSED, f"{version}: {record['files']} files as RECORD lists them{same}")
    if record.get("extras"):
        rows = tuple(record["extras"][:20])
        yield subject.step(
            step, State.WARNING, f"{len(record['extras'])} files that its RECORD does not list", detail=rows
        )


def _unaccepted(subject: Subject, name: str, record: Answer) -> tuple[list[tuple[str, str]], int]:
    """The deviations that the target does not accept, and how many there are (the list may be shortened)."""
    globs = subject.declared.accepted_edits
    wrong = [
        (path, what)
        for path, what in record.get("wrong", ())
        if not any(fnmatchcase(f"{name}/{path}", glob) for glob in globs)
    ]
    unlisted = record.get("count", 0) - len(record.get("wrong", ()))
    return wrong, len(wrong) + unlisted


def _records(subject: Subject, answer: Answer) -> Iterator[Step]:
    """Distributions that are not protected: whole, and their sources unedited."""
    matter = {canonicalize_name(name) for name in (*MODULES.values(), *subject.declared.pins)}
    protected = {canonicalize_name(name) for name in subject.declared.protected}
    bad = False
    for name, record in answer["records"].items():
        wrong, count = _unaccepted(subject, name, record)
        if name in protected or not wrong:
            continue
        copy = answer["distributions"][name]
        is_broken = name in matter and any(path.endswith(_CODE) for path, _ in wrong)
        bad |= is_broken
        rows = tuple(f"{path} {what}" for path, what in wrong[1 : 1 + _SHOWN])
        said = f"{copy['name']} {copy['version']}: {wrong[0][0]} {wrong[0][1]}"
        hint = f"{subject.launch.python} -m pip install --no-deps --force-reinstall '{copy['name']}=={copy['version']}'"
        yield subject.step(f"files {name}", State.FAILED if is_broken else State.WARNING,
                           f"{said} ({count} files)" if count > 1 else said, detail=rows, hint=hint)  # fmt: skip
    if not bad:
        files = sum(record.get("files", 0) for record in answer["records"].values())
        unvouched = [name for name, record in answer["records"].items() if not record["record"]]
        rows = (f"without RECORD: {', '.join(unvouched)}",) if unvouched else ()
        said = f"{len(answer['distributions'])} distributions, {files} files against RECORD"
        yield subject.step("files", State.PASSED, said, detail=rows)
