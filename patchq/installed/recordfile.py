"""A distribution's `RECORD`: the CSV of path, hash and size that the packaging specifications describe.

https://packaging.python.org/en/latest/specifications/recording-installed-packages/
pip ends its lines with CRLF, uv with LF. Lines that are not ours keep their bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.errors import Problem, Refused
from patchq.installed.files import compiled_from

_ALGORITHMS = ("sha256", "sha384", "sha512")


@dataclass(frozen=True)
class Row:
    """One line: its bytes with the line's end, and its fields. `digest` is `ALGORITHM=BASE64` or empty."""

    raw: bytes
    name: str
    digest: str

    @property
    def path(self) -> str:
        return posixpath.normpath(self.name)


def parse(data: bytes, where: str) -> tuple[Row, ...]:
    """The rows of a `RECORD`; raises `Refused` with every line that is not one."""
    rows: list[Row] = []
    problems: list[Problem] = []
    for number, raw in enumerate(data.splitlines(keepends=True), 1):
        try:
            fields = next(csv.reader([raw.decode("utf-8").rstrip("\r\n")], strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            fields = [str(error)]
        if len(fields) == 3:
            rows.append(Row(raw, fields[0], fields[1]))
        elif raw.strip():
            problems.append(Problem("is not a line of PATH,HASH,SIZE", f"{where}:{number}"))
    if problems:
        raise Refused(problems)
    return tuple(rows)


def complaint(rows: Sequence[Row], path: str, data: bytes | None) -> str:
    """Why the rows do not vouch for `path` holding `data` (None: not there); empty when they do."""
    digests = [row.digest for row in rows if row.path == path]
    if data is None:
        return "RECORD lists it, but it is not there" if digests else ""
    if not digests:
        return "RECORD does not list it"
    if not all(digests):
        return "RECORD has no hash for it"
    if not all(_matches(digest, data) for digest in digests):
        return f"RECORD has another hash for it ({', '.join(digests)})"
    return ""


def rewritten(rows: Sequence[Row], changes: Mapping[str, bytes | None]) -> bytes:
    """The `RECORD` after `changes` (path to new bytes, None: removed), whose compiled files are gone."""
    ending = "\r\n" if any(row.raw.endswith(b"\r\n") for row in rows) else "\n"
    compiled = [compiled_from(path) for path in changes]
    lines: list[bytes] = []
    for row in rows:
        data = changes.get(row.path)
        if data is not None:
            lines.append(_line(row.name, data, ending))
        elif row.path not in changes and not any(pattern.fullmatch(row.path) for pattern in compiled):
            lines.append(row.raw if row.raw.endswith(b"\n") else row.raw + ending.encode())
    listed = {row.path for row in rows}
    added = {path: data for path, data in changes.items() if path not in listed}
    lines += [_line(path, data, ending) for path, data in added.items() if data is not None]
    return b"".join(lines)


def _line(name: str, data: bytes, ending: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=ending).writerow([name, _digest("sha256", data), len(data)])
    return text.getvalue().encode("utf-8")


def _digest(algorithm: str, data: bytes) -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode('ascii')}"


def _matches(digest: str, data: bytes) -> bool:
    algorithm = digest.partition("=")[0]
    return algorithm in _ALGORITHMS and digest.rstrip("=") == _digest(algorithm, data)
