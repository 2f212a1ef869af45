"""Copies a folder file by file to a persistent place and compares SHA-256, restartable. Prints one JSON document.

Question: {"source": FOLDER, "target": FOLDER}. A file gets its name only once its bytes were written, synced, read back
and found to be the same; what is there and the same already is not written again. `SHA256SUMS` is written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

PIECE = 4 << 20
PART = ".patchq-part"
SUMS = "SHA256SUMS"


def digest(path: Path, fresh: bool = False) -> str:
    """The SHA-256 of a file; `fresh` asks the kernel to forget what it still holds of it."""
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        if fresh:
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while piece := stream.read(PIECE):
            hashed.update(piece)
    return hashed.hexdigest()


def write(source: Path, target: Path) -> str:
    """Copy one file and return the digest of what was read."""
    hashed = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + PART)
    with source.open("rb") as reader, part.open("wb") as writer:
        while piece := reader.read(PIECE):
            hashed.update(piece)
            writer.write(piece)
        writer.flush()
        os.fsync(writer.fileno())
    shutil.copystat(source, part)
    if digest(part, fresh=True) != hashed.hexdigest():
        part.unlink()
        raise OSError(f"other bytes came back from {target}")
    part.replace(target)
    return hashed.hexdigest()


def settle(source: Path, target: Path) -> tuple[str, bool]:
    """The digest of a file that is at its target afterwards, and whether it had to be written."""
    if target.is_file() and target.stat().st_size == source.stat().st_size:
        there = digest(target)
        if there == digest(source):
            return there, False
    return write(source, target), True


def answer(question: dict[str, Any]) -> dict[str, Any]:
    source, target = Path(question["source"]), Path(question["target"])
    if not source.is_dir():
        return {"not_run": f"{source} is not there"}
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and path.name != SUMS]
    sums: list[str] = []
    written = 0
    for path in files:
        inside = path.relative_to(source)
        try:
            found, was_written = settle(path, target / inside)
        except OSError as error:
            return {"files": len(sums), "of": len(files), "failed": str(inside), "error": str(error)}
        sums.append(f"{found}  {inside}\n")
        written += was_written
    (target / SUMS).write_text("".join(sums))
    return {"files": len(files), "of": len(files), "written": written, "bytes": sum(p.stat().st_size for p in files)}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
