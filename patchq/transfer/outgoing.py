"""One text file that takes a queue's changes across the gap: what was, what is, and nothing of the machine.

A line of text for each line of a file where the file is plain text, base64 where it is not; so that it survives
mail and a look by eye, and every byte is held against its digest on the other side.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchq.document import sha256
from patchq.errors import Invalid, Problem, Refused
from patchq.patch import check_path
from patchq.queuejournal import LOCK_NAME

FIRST = "patchq changes, version 1"
MAX_BYTES = 256 << 20
_HEX = "[0-9a-f]{64}"
_HEAD = rf"queue: (?P<queue>\S+)\nsince: (?P<since>{_HEX})\nlock: (?P<lock>{_HEX}|-)\nfiles: (?P<count>\d+)\n"
_FILE = (
    rf"\nfile: (?P<path>[^\n]+)\nbefore: (?P<before>{_HEX}|-)\nafter: (?P<after>{_HEX}|-)\n"
    r"form: (?P<form>text|base64|gone)\nlines: (?P<lines>\d+)\n"
)
_END = rf"\nend: ({_HEX})\n"
_PLAIN = r"(?:[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]*\n)*"


@dataclass(frozen=True)
class ChangedFile:
    """A file of the queue: its SHA-256 before (None: it was not there), and its bytes now (None: it is gone)."""

    path: str
    before: str | None
    data: bytes | None

    @property
    def after(self) -> str | None:
        """The SHA-256 now."""
        return None if self.data is None else sha256(self.data)


@dataclass(frozen=True)
class Outgoing:
    """What changed in the queue called `queue` since the lock `since` (its digest); `lock` is the lock now."""

    queue: str
    since: str
    lock: str | None
    files: tuple[ChangedFile, ...]

    def to_bytes(self) -> bytes:
        """The text file."""
        head = (
            f"{FIRST}\nqueue: {self.queue}\nsince: {self.since}\nlock: {self.lock or '-'}\nfiles: {len(self.files)}\n"
        )
        text = head + "".join(map(_file, self.files))
        return f"{text}\nend: {sha256(text.encode())}\n".encode()

    def changes_for(self, digests: Mapping[str, str]) -> dict[str, bytes | None]:
        """What to write to the queue whose files have `digests`; what is there already is left out.

        Raises `Refused` naming every file that was changed there meanwhile.
        """
        moved = [file for file in self.files if digests.get(file.path) not in (file.before, file.after)]
        if moved:
            what = "was changed here since the lock that the changes are made on"
            raise Refused([*(Problem(what, file.path) for file in moved), Problem("nothing was imported")])
        return {file.path: file.data for file in self.files if digests.get(file.path) != file.after}


def is_outgoing(path: Path) -> bool:
    """Whether a file begins as one of these."""
    with path.open("rb") as stream:
        return stream.read(len(FIRST) + 3).removeprefix(b"\xef\xbb\xbf").startswith(FIRST.encode())


def outgoing(queue: str, since: str, then: Mapping[str, str], now: Mapping[str, bytes], lock: str | None) -> Outgoing:
    """What turns files with the digests `then` into the files `now`."""
    digests = {path: sha256(data) for path, data in now.items()}
    changed = [path for path in sorted({*then, *now}) if then.get(path) != digests.get(path)]
    return Outgoing(queue, since, lock, tuple(ChangedFile(path, then.get(path), now.get(path)) for path in changed))


def parse_outgoing(data: bytes, where: str) -> Outgoing:
    """Read the text file; line ends may have become CRLF on the way. Raises `Invalid` for any other damage."""
    try:
        text = data.replace(b"\r\n", b"\n").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid("is not UTF-8: was it changed on the way?", where=where) from None
    head = re.compile(_HEAD).match(text, len(FIRST) + 1)
    end = next(reversed(list(re.finditer(_END, text))), None)
    if not text.startswith(f"{FIRST}\n") or not head or not end:
        raise Invalid("is not whole: a first and a last line of patchq's are due", where=where, hint="send it again")
    if sha256(text[: end.start()].encode()) != end[1] or text[end.end() :].strip():
        raise Invalid("was changed on the way: its digest does not hold", where=where, hint="send it as a file")
    files = tuple(_files(text[: end.start()], head.end(), where))
    if len(files) != int(head["count"]):
        raise Invalid(f"says it has {head['count']} files and has {len(files)}", where=where)
    return Outgoing(head["queue"], head["since"], _or_none(head["lock"]), files)


def _file(file: ChangedFile) -> str:
    form, rows = _rows(file.data)
    head = f"\nfile: {file.path}\nbefore: {file.before or '-'}\nafter: {file.after or '-'}\n"
    return f"{head}form: {form}\nlines: {len(rows)}\n" + "".join(f"|{row}\n" for row in rows)


def _rows(data: bytes | None) -> tuple[str, list[str]]:
    if data is None:
        return "gone", []
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if re.fullmatch(_PLAIN, text):
        return "text", text.split("\n")[:-1]
    return "base64", textwrap.wrap(base64.b64encode(data).decode(), 76)


def _files(text: str, at: int, where: str) -> Iterator[ChangedFile]:
    while at < len(text):
        found = re.compile(_FILE).match(text, at)
        if not found:
            line = text.count("\n", 0, at) + 1
            raise Invalid("cannot be read from here on", where=f"{where}:{line}")
        at = found.end()
        _check_path(found["path"], where)
        rows = []
        for _ in range(int(found["lines"])):
            end = text.find("\n", at)
            if end < 0 or text[at] != "|":
                raise Invalid(f"{found['path']} is cut off", where=where)
            rows.append(text[at + 1 : end])
            at = end + 1
        file = ChangedFile(found["path"], _or_none(found["before"]), _data(found["form"], rows, where))
        if file.after != _or_none(found["after"]):
            raise Invalid(f"{file.path} does not have the digest that stands above it", where=where)
        yield file


def _check_path(path: str, where: str) -> None:
    """Only what a queue can hold: nothing outside it, and nothing that it would not see."""
    reason = check_path(path) or ("is hidden" if any(part.startswith(".") for part in path.split("/")) else None)
    if reason or path == LOCK_NAME:
        raise Invalid(f"the path {path!r} {reason or 'is made by patchq lock'}", where=where)


def _data(form: str, rows: list[str], where: str) -> bytes | None:
    if form == "gone":
        return None
    if form == "text":
        return "".join(f"{row}\n" for row in rows).encode()
    try:
        return base64.b64decode("".join(rows), validate=True)
    except ValueError:
        raise Invalid("has base64 that cannot be read", where=where) from None


def _or_none(digest: str) -> str | None:
    return None if digest == "-" else digest
