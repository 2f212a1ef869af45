"""Names of files inside a tree: git's C quoting, and which names are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_UNESCAPES = {letter: code for code, letter in _ESCAPES.items()}
_QUOTED = re.compile(rb'"((?:[^"\\\n]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*)"')
_ESCAPED = re.compile(rb"\\(?:([abtnvfr\"\\])|([0-3][0-7]{2}))")
_SURROGATE = re.compile("[\udc80-\udcff]")

# Code points that HFS+ ignores when it compares names (git's utf8.c).
_IGNORED_BY_HFS = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_DOT_GIT = re.compile(r"\.git|git~[0-9]+")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_MAX_PATH = 4095
_MAX_COMPONENT = 255
_MAX_PARTS = 100
_MAX_STEPS = 256


def quote(path: str) -> str:
    """`path` as git prints it with `core.quotePath=false`; bytes that are not UTF-8 become octal escapes."""
    quoted = "".join(map(_escape, path))
    return path if quoted == path else f'"{quoted}"'


def _escape(character: str) -> str:
    code = ord(character)
    if code in _ESCAPES:
        return "\\" + _ESCAPES[code]
    if code < 0x20 or code == 0x7F:
        return f"\\{code:03o}"
    return f"\\{code - 0xDC00:03o}" if _SURROGATE.match(character) else character


def unquote(data: bytes) -> tuple[bytes, int] | None:
    """The bytes of the C-quoted name at the start of `data` and how long its quoted form is, else None."""
    found = _QUOTED.match(data)
    return (_ESCAPED.sub(_unescape, found[1]), found.end()) if found else None


def _unescape(found: re.Match[bytes]) -> bytes:
    letter, octal = found.groups()
    return bytes([int(octal, 8) if octal else _UNESCAPES[letter.decode()]])


def check_path(path: str) -> str | None:
    """Why `path` cannot be the name of a file that a patch touches; None when it can.

    The rules are git's for every file system at once (read-cache.c `verify_path` with `core.protectNTFS` and
    `core.protectHFS`). Tabs, newlines, spaces, backslashes and any script are fine; a NUL is not.
    """
    if not path:
        return "is empty"
    if "\0" in path:
        return "contains a NUL"
    if path[0] in "/\\" or _DRIVE.match(path):
        return "is absolute"
    if len(os.fsencode(path)) > _MAX_PATH:
        return f"has more than {_MAX_PATH} bytes"
    if any(len(os.fsencode(part)) > _MAX_COMPONENT for part in path.split("/")):
        return f"has a part of more than {_MAX_COMPONENT} bytes"
    if path.count("/") >= _MAX_PARTS:
        return f"has more than {_MAX_PARTS} parts"
    if "" in path.split("/"):
        return "has an empty part"
    # On NTFS a backslash separates too; what would be dangerous there is refused here.
    reasons = (_check_component(part) for part in re.split(r"[/\\]", path))
    return next((reason for reason in reasons if reason), None)


def _check_component(part: str) -> str | None:
    plain = part.translate(_IGNORED_BY_HFS)
    if plain.rstrip(" ") in (".", ".."):
        return f"has the part {part!r}, which leads out of its place"
    if is_dot_git(part):
        return "is, or would become on some file system, a name inside .git"
    return None


def is_dot_git(part: str) -> bool:
    """Whether one component is `.git` on some file system: by case, short name, stream, or ignored tail."""
    plain = part.translate(_IGNORED_BY_HFS)
    return _DOT_GIT.fullmatch(plain.split(":", 1)[0].rstrip(" .").lower()) is not None


def check_link(path: str, target: str) -> str | None:
    """Why a symbolic link at `path` may not point to `target`; None when it stays inside the tree."""
    if not target or "\0" in target or "\n" in target or len(os.fsencode(target)) > _MAX_PATH:
        return "has no readable target"
    if target[0] in "/\\" or _DRIVE.match(target):
        return f"points to the absolute {target!r}"
    depth = path.count("/")
    for part in re.split(r"[/\\]", target):
        depth += {"..": -1, ".": 0, "": 0}.get(part.translate(_IGNORED_BY_HFS), 1)
        if depth < 0:
            return f"points out of the tree, to {target!r}"
        if is_dot_git(part):
            return f"points into .git, to {target!r}"
    return None


def leads_out(path: str, links: Mapping[str, str]) -> str | None:
    """Why the link at `path` does not stay inside when all of `links` (path to target) on its way are followed."""
    at = path.split("/")[:-1]
    ahead = links[path].split("/")[::-1]
    if links[path].startswith("/"):
        return "points to an absolute path"
    for _ in range(_MAX_STEPS):
        if not ahead:
            return None
        if len(at) + len(ahead) > _MAX_STEPS:
            break
        part = ahead.pop()
        if part == "..":
            if not at:
                return "leads out of the tree through other links"
            at.pop()
        elif part not in ("", "."):
            at.append(part)
            beyond = links.get("/".join(at))
            if beyond and beyond.startswith("/"):
                return "leads out of the tree through other links"
            if beyond:
                at.pop()
                ahead.extend(beyond.split("/")[::-1])
    return "never ends"
