"""Which members of an archive become files of a tree, and which archives are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import fsdecode, fsencode
from pathlib import Path
from typing import Literal

from patchq.errors import Invalid
from patchq.patch.names import check_link, check_path, leads_out
from patchq.sdist.archive import Member, members

_MAX_PARTS = 1_000_000
_MAX_LINKS = 5_000
_MAX_TARGET = 4095
# Steps of one look-up, and names that it has to keep in mind: more than trees need, and an end to circles.

Mode = Literal["100644", "100755", "120000"]


@dataclass(frozen=True)
class SourceFile:
    """A file of a tree: its path below the root, git's mode for it, its bytes (of a link: the target)."""

    path: str
    mode: Mode
    data: bytes


def read_sdist(path: Path) -> tuple[SourceFile, ...]:
    """The files of a source distribution below its one top-level folder, sorted by their paths' bytes.

    Of the metadata only the owner's x bit counts. Names that differ only in case are two files, as git and
    Linux have them. Raises `Invalid`, naming the archive and the member, for all that `members` refuses, for
    names that are absolute, lead out or into a `.git`, for two members of one name, and for links that leave
    the tree.
    """
    return _checked(_without_top(_named(members(path)), str(path)), str(path))


def read_tree(path: Path) -> tuple[SourceFile, ...]:
    """Like `read_sdist` for an archive whose members are the tree itself."""
    return _checked(_named(members(path)), str(path))


def _named(found: Iterable[Member]) -> Iterator[tuple[str, Member]]:
    """Members by name, without a `./` in front and a folder's slash behind; the root itself is left out."""
    for member in found:
        name = member.name.removesuffix("/") if member.kind == "folder" else member.name
        while name.startswith("./"):
            name = name[2:]
        if member.kind != "folder" or name not in (".", ""):
            yield name, member


def _without_top(named: Iterable[tuple[str, Member]], where: str) -> Iterator[tuple[str, Member]]:
    top = None
    for name, member in named:
        first, slash, rest = name.partition("/")
        if top is None and (reason := check_path(first or name)):
            raise _refusal(name, reason, where)
        top = top or first
        if first != top:
            raise _refusal(name, f"lies outside the top-level folder {top!r}", where)
        if slash:
            yield rest, member
        elif member.kind != "folder":
            raise _refusal(name, "stands where the one top-level folder is due", where)


def _checked(named: Iterable[tuple[str, Member]], where: str) -> tuple[SourceFile, ...]:
    files: dict[str, SourceFile] = {}
    folders: set[str] = set()
    parts = 0
    for name, member in named:
        parts += name.count("/") + 1
        if parts > _MAX_PARTS:
            raise Invalid(f"has names of more than {_MAX_PARTS} parts together", where=where)
        if reason := check_path(name) or ("contains a newline" if "\n" in name else None):
            raise _refusal(name, reason, where)
        if member.kind == "folder":
            folders.add(name)
        elif name in files:
            raise _refusal(name, "is there twice", where)
        else:
            files[name] = SourceFile(name, _mode(member), member.data)
    _check_folders(files, folders, where)
    _check_links({file.path: fsdecode(file.data) for file in files.values() if file.mode == "120000"}, where)
    return tuple(sorted(files.values(), key=lambda file: fsencode(file.path)))


def _mode(member: Member) -> Mode:
    if member.kind == "link":
        return "120000"
    return "100755" if member.executable else "100644"


def _check_folders(files: Mapping[str, SourceFile], folders: set[str], where: str) -> None:
    """What lies in a folder, or is one, must not be a file or a link as well."""
    # Sorted like this, what lies in a folder follows it directly.
    names = sorted((*files, *folders), key=lambda name: name.replace("/", "\0"))
    for name, following in pairwise(names):
        if name in files and (following == name or following.startswith(f"{name}/")):
            raise _refusal(name, "is a folder of other members and also a file or a link", where)


def _check_links(links: Mapping[str, str], where: str) -> None:
    if len(links) > _MAX_LINKS:
        raise Invalid(f"has more than {_MAX_LINKS} symbolic links", where=where)
    for name, target in links.items():
        reason = "is too long" if len(target) > _MAX_TARGET else check_link(name, target)
        if reason := reason or leads_out(name, links):
            raise _refusal(name, f"is a link that {reason}", where)


def _refusal(name: str, reason: str, where: str) -> Invalid:
    return Invalid(f"member {name!r} {reason}", where=where)
