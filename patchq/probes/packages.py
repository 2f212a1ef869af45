"""What is installed, what it requires, and whether its files are as `RECORD` says. Prints one JSON document.

Question: {"protected": [DISTRIBUTION...], "files": false to leave files alone}. Of a protected distribution every file
is hashed; of the others every Python source and path file is, and the rest is looked at by its size. What cannot be
read as a distribution is named under "unread", and what is in one folder twice under "doubles". Nothing of any
distribution is imported. RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import multiprocessing
import os
import platform
import re
import stat
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

CHUNK_FILES, CHUNK_BYTES = 400, 32 << 20
Row = tuple[str, str, int]  # path as RECORD has it, ALGORITHM=BASE64 or "", size or -1
Verdict = tuple[str, str, str]  # path, what is wrong or "", digest on disk or ""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> tuple[dict[str, Distribution], dict[str, list[str]], dict[str, str]]:
    """The distributions by canonical name; of several copies the first on the path, which is the one that counts.

    With them the metadata of those that are in one folder more than once, and what is none, with the reason.
    """
    found: dict[str, Distribution] = {}
    places: dict[tuple[str, str], list[str]] = {}
    unread: dict[str, str] = {}
    for copy in distributions():
        try:
            name = name_of(copy)
        except (OSError, ValueError) as error:
            unread[str(folder_of(copy))] = str(error)
            continue
        found.setdefault(canonical(name), copy)
        real = os.path.realpath(folder_of(copy))
        same = places.setdefault((canonical(name), os.path.dirname(real)), [])
        if real not in same:
            same.append(real)
    return found, {name: same for (name, _), same in places.items() if len(same) > 1}, unread


def name_of(copy: Distribution) -> str:
    """The name in a distribution's metadata; raises `ValueError` or `OSError` where that cannot be read.

    Opening a FIFO would wait for ever, so files are looked at before.
    """
    for path in (folder_of(copy), *(folder_of(copy) / name for name in ("METADATA", "PKG-INFO", "requires.txt"))):
        if os.path.exists(path) and not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path} is not a regular file")
    name, version = copy.metadata["Name"], copy.metadata["Version"]
    if not name or not version:
        raise ValueError("its metadata is not there, or has no name or version")
    return str(name)


def text_of(copy: Distribution, name: str) -> str | None:
    """A file of a distribution's metadata; None where it is not there, or no regular file."""
    path = folder_of(copy) / name
    return None if os.path.exists(path) and not path.is_file() else copy.read_text(name)


def folder_of(copy: Distribution) -> Path:
    return Path(str(copy._path))  # type: ignore[attr-defined]


def url_of(copy: Distribution) -> dict[str, Any]:
    try:
        url = json.loads(text_of(copy, "direct_url.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    return url if isinstance(url, dict) else {}


def part_of(url: dict[str, Any], name: str) -> dict[str, Any]:
    """One of the objects in it; whoever wrote it may have put anything there."""
    part = url.get(name)
    return part if isinstance(part, dict) else {}


def frozen(copy: Distribution) -> str:
    """The distribution's line as `pip freeze` writes it (PEP 610 for what came from a URL)."""
    name, url = copy.metadata["Name"], url_of(copy)
    place = str(url.get("url", ""))
    if not place:
        return f"{name}=={copy.version}"
    if part_of(url, "dir_info").get("editable"):
        return f"-e {place.removeprefix('file://')}"
    vcs = part_of(url, "vcs_info")
    return f"{name} @ {vcs.get('vcs')}+{place}@{vcs.get('commit_id')}" if vcs else f"{name} @ {place}"


def describe(copy: Distribution) -> dict[str, Any]:
    return {
        "name": copy.metadata["Name"],
        "version": copy.version,
        "root": str(folder_of(copy).parent),
        "metadata": str(folder_of(copy)),
        "requires": copy.requires or [],
        "editable": bool(part_of(url_of(copy), "dir_info").get("editable")),
        "frozen": frozen(copy),
    }


def rows_of(copy: Distribution) -> tuple[list[Row], list[Verdict]] | None:
    """The rows of a `RECORD`, compiled files left out, and what in it is no row; None where there is none."""
    csv.field_size_limit(sys.maxsize)
    rows: list[Row] = []
    wrong: list[Verdict] = []
    record = f"{folder_of(copy).name}/RECORD"
    try:
        for number, row in enumerate(csv.reader((text_of(copy, "RECORD") or "").splitlines()), 1):
            if len(row) == 3:
                rows.append((row[0], row[1], size_of(row[2])))
            elif row:
                wrong.append((record, f"has no PATH,HASH,SIZE in row {number}", ""))
    except (csv.Error, ValueError) as error:
        wrong.append((record, f"cannot be read: {error}", ""))
    return ([row for row in rows if not row[0].endswith(".pyc")], wrong) if rows or wrong else None


def size_of(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1


def chunks(root: str, rows: list[Row], whole: bool) -> Iterator[tuple[str, list[Row], bool]]:
    """The rows in portions that take about the same time."""
    portion: list[Row] = []
    weight = 0
    for row in rows:
        portion.append(row)
        weight += max(row[2], 0)
        if len(portion) >= CHUNK_FILES or weight >= CHUNK_BYTES:
            yield root, portion, whole
            portion, weight = [], 0
    if portion:
        yield root, portion, whole


def check(chunk: tuple[str, list[Row], bool]) -> list[Verdict]:
    """The verdict on each file of a portion."""
    root, rows, whole = chunk
    return [verdict(root, row, whole or row[0].endswith((".py", ".pth"))) for row in rows]


def verdict(root: str, row: Row, is_hashed: bool) -> Verdict:
    name, digest, size = row
    path = os.path.join(root, name)
    try:
        status = os.stat(path)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return name, "is not a regular file", ""  # a FIFO would be waited for, and a device has no end
        if not is_hashed or not digest:
            found = status.st_size
            return name, f"has {found} bytes, RECORD says {size}" if size not in (-1, found) else "", ""
        algorithm, _, expected = digest.partition("=")
        actual = hash_file(path, algorithm)
    except (OSError, ValueError, TypeError) as error:  # a hash without a length of its own is a TypeError
        return name, "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}", ""
    return name, "" if actual == expected.rstrip("=") else "is not the file that RECORD lists", actual


def hash_file(path: str, algorithm: str) -> str:
    hashed = hashlib.new(algorithm)
    with open(path, "rb", buffering=0) as stream:
        while piece := stream.read(1 << 20):
            hashed.update(piece)
    return base64.urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode()


def extras(root: str, rows: list[Row], listed: set[str]) -> list[str]:
    """Files in the packages of a distribution that no `RECORD` lists: several may share a namespace."""
    tops = {os.path.normpath(name).split("/")[0] for name, _, _ in rows if "/" in name}
    found: list[str] = []
    for top in sorted(tops - {"", ".."}):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = [name for name in folders if name != "__pycache__"]
            found += [path for name in files if (path := os.path.join(folder, name)) not in listed]
    return sorted(os.path.relpath(path, root) for path in found)


def verdicts(found: dict[str, Distribution], protected: set[str]) -> dict[str, dict[str, Any]]:
    """What is wrong with the files of each distribution, and the digest over each protected one."""
    records = {name: rows_of(copy) for name, copy in found.items()}
    rows = {name: record[0] if record else None for name, record in records.items()}
    roots = {name: str(folder_of(copy).parent) for name, copy in found.items()}
    portions = [
        (name, chunk) for name, own in rows.items() for chunk in chunks(roots[name], own or [], name in protected)
    ]
    portions.sort(key=lambda portion: -sum(max(row[2], 0) for row in portion[1][1]))
    with multiprocessing.get_context("fork").Pool(min(os.cpu_count() or 1, 8)) as pool:
        checked = pool.map(check, [chunk for _, chunk in portions], chunksize=1)
    results: dict[str, list[Verdict]] = {name: list(record[1]) if record else [] for name, record in records.items()}
    for (name, _), part in zip(portions, checked, strict=True):
        results[name] += part
    listed = {os.path.normpath(os.path.join(roots[name], row[0])) for name, own in rows.items() for row in own or ()}
    answers = {name: summary(rows[name], results[name], name in protected) for name in found}
    for name in protected.intersection(found):
        answers[name]["extras"] = extras(roots[name], rows[name] or [], listed)[:50]
    return answers


def summary(rows: list[Row] | None, results: list[Verdict], whole: bool) -> dict[str, Any]:
    wrong = sorted((path, what) for path, what, _ in results if what)
    if rows is None:
        return {"record": False}
    answer: dict[str, Any] = {"record": True, "files": len(rows), "wrong": wrong[:50], "count": len(wrong)}
    if whole:
        lines = "".join(f"{path} {digest}\n" for path, _, digest in sorted(results))
        answer["digest"] = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
    return answer


def markers() -> dict[str, str]:
    """The environment markers of PEP 508."""
    version = sys.implementation.version
    return {
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "implementation_name": sys.implementation.name,
        "implementation_version": f"{version.major}.{version.minor}.{version.micro}",
    }


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    found, doubles, unread = installed()
    protected = {canonical(name) for name in question.get("protected", [])}
    answer = {
        "markers": markers(),
        "distributions": {name: describe(copy) for name, copy in sorted(found.items())},
        "records": verdicts(found, protected) if question.get("files", True) else {},
        "doubles": doubles,
        "unread": unread,
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
