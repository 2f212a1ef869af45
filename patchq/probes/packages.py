"""What is installed, what it requires, and whether its files are as `RECORD` says. Prints one JSON document.

Question: {"protected": [DISTRIBUTION...], "files": false to leave files alone}. Of a protected distribution every file
is hashed; of the others every Python source and path file is, and the rest is looked at by its size. Nothing of any
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


def installed() -> dict[str, Distribution]:
    """The distributions by canonical name; of several copies the first on the path, which is the one that counts."""
    found: dict[str, Distribution] = {}
    for copy in distributions():
        name = copy.metadata["Name"]
        if name:
            found.setdefault(canonical(name), copy)
    return found


def folder_of(copy: Distribution) -> Path:
    return Path(str(copy._path))  # type: ignore[attr-defined]


def url_of(copy: Distribution) -> dict[str, Any]:
    try:
        url = json.loads(copy.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return url if isinstance(url, dict) else {}


def frozen(copy: Distribution) -> str:
    """The distribution's line as `pip freeze` writes it (PEP 610 for what came from a URL)."""
    name, url = copy.metadata["Name"], url_of(copy)
    place = str(url.get("url", ""))
    if not place:
        return f"{name}=={copy.version}"
    if url.get("dir_info", {}).get("editable"):
        return f"-e {place.removeprefix('file://')}"
    vcs = url.get("vcs_info")
    return f"{name} @ {vcs['vcs']}+{place}@{vcs['commit_id']}" if vcs else f"{name} @ {place}"


def describe(copy: Distribution) -> dict[str, Any]:
    return {
        "name": copy.metadata["Name"],
        "version": copy.version,
        "root": str(folder_of(copy).parent),
        "metadata": str(folder_of(copy)),
        "requires": copy.requires or [],
        "editable": bool(url_of(copy).get("dir_info", {}).get("editable")),
        "frozen": frozen(copy),
    }


def rows_of(copy: Distribution) -> list[Row] | None:
    """The rows of a distribution's `RECORD`, compiled files left out; None where it has none."""
    text = copy.read_text("RECORD")
    if text is None:
        return None
    rows = (row for row in csv.reader(text.splitlines()) if len(row) == 3)
    return [
        (name, digest, int(size) if size.isdigit() else -1) for name, digest, size in rows if not name.endswith(".pyc")
    ]


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
        if not is_hashed or not digest:
            found = os.stat(path).st_size
            return name, f"has {found} bytes, RECORD says {size}" if size not in (-1, found) else "", ""
        algorithm, _, expected = digest.partition("=")
        actual = hash_file(path, algorithm)
    except (OSError, ValueError) as error:
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
    for top in sorted(tops - {".."}):
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = [name for name in folders if name != "__pycache__"]
            found += [path for name in files if (path := os.path.join(folder, name)) not in listed]
    return sorted(os.path.relpath(path, root) for path in found)


def verdicts(found: dict[str, Distribution], protected: set[str]) -> dict[str, dict[str, Any]]:
    """What is wrong with the files of each distribution, and the digest over each protected one."""
    rows = {name: rows_of(copy) for name, copy in found.items()}
    roots = {name: str(folder_of(copy).parent) for name, copy in found.items()}
    portions = [
        (name, chunk) for name, own in rows.items() for chunk in chunks(roots[name], own or [], name in protected)
    ]
    portions.sort(key=lambda portion: -sum(max(row[2], 0) for row in portion[1][1]))
    with multiprocessing.get_context("fork").Pool(min(os.cpu_count() or 1, 8)) as pool:
        checked = pool.map(check, [chunk for _, chunk in portions], chunksize=1)
    results: dict[str, list[Verdict]] = {name: [] for name in found}
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
    sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    found = installed()
    protected = {canonical(name) for name in question.get("protected", [])}
    answer = {
        "markers": markers(),
        "distributions": {name: describe(copy) for name, copy in sorted(found.items())},
        "records": verdicts(found, protected) if question.get("files", True) else {},
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
