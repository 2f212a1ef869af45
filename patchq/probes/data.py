"""Parquet files of training data: their columns, rows, and whether a prompt or a reward is empty.

Question: {"files": [FILE...], "columns": [NAME...], "filled": [NAME or NAME.FIELD...], "rows": N}. Needs pyarrow, which
VERL needs as well. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

BATCH = 2048
SHOWN = 5


def is_empty(value: Any) -> bool:
    """None, blank text, an empty list, a conversation whose messages are all blank."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list):
        return not value or all(is_empty(item) for item in value)
    if isinstance(value, dict):
        inner = value["content"] if "content" in value else list(value.values())
        return is_empty(inner)
    return isinstance(value, float) and value != value


def field(row: dict[str, Any], name: str) -> Any:
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def examine(path: str, question: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.parquet as parquet

    if not os.path.isfile(path):
        return {"path": path, "problems": ["is not there"]}
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:
        return {"path": path, "problems": [f"cannot be read: {error}"]}
    names = set(file.schema_arrow.names)
    rows = file.metadata.num_rows
    problems = [f"has no column {name}" for name in question.get("columns", []) if name not in names]
    if rows < question.get("rows", 1):
        problems.append(f"has {rows} rows, {question.get('rows', 1)} are due")
    filled = [name for name in question.get("filled", []) if name.split(".")[0] in names]
    problems += empties(file, filled)
    return {"path": path, "rows": rows, "columns": sorted(names), "problems": problems}


def empties(file: Any, filled: list[str]) -> list[str]:
    empty: dict[str, list[int]] = {name: [] for name in filled}
    counts = dict.fromkeys(filled, 0)
    at = 0
    columns = sorted({name.split(".")[0] for name in filled})
    for batch in file.iter_batches(BATCH, columns=columns) if columns else ():
        for row in batch.to_pylist():
            for name in filled:
                if is_empty(field(row, name)):
                    counts[name] += 1
                    if len(empty[name]) < SHOWN:
                        empty[name].append(at)
            at += 1
    return [
        f"{counts[name]} rows have no {name} (rows {', '.join(map(str, found))})"
        for name, found in empty.items()
        if found
    ]


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    try:
        import pyarrow
    except ImportError as error:
        print("\n" + json.dumps({"not_run": f"pyarrow cannot be imported: {error}"}))
        return
    files = [examine(path, question) for path in question["files"]]
    print("\n" + json.dumps({"pyarrow": pyarrow.__version__, "files": files}))


if __name__ == "__main__":
    main()
