"""Where this interpreter installs to, and which files distributions have there. Prints one JSON document.

Question: {"distributions": [NAME...]}. Of each every copy on the path is listed with all files of its RECORD.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import sysconfig
from importlib.metadata import Distribution, distributions


def listed(copy: Distribution, metadata: str) -> set[str]:
    """The files that RECORD lists; of a distribution without one, what else says so."""
    record = os.path.join(metadata, "RECORD")
    if not os.path.isfile(record):
        return {os.path.normpath(str(copy.locate_file(file))) for file in copy.files or ()}
    csv.field_size_limit(sys.maxsize)
    try:
        with open(record, encoding="utf-8", newline="") as stream:
            names = [row[0] for row in csv.reader(stream) if row]
    except (csv.Error, ValueError) as error:
        sys.exit(f"{record} cannot be read: {error}")
    return {os.path.normpath(os.path.join(os.path.dirname(metadata), name)) for name in names}


def describe(copy: Distribution) -> dict[str, object]:
    metadata = str(copy._path)  # type: ignore[attr-defined]
    files = listed(copy, metadata)
    for folder, _, names in os.walk(metadata):
        files.update(os.path.join(folder, name) for name in names)
    return {"version": copy.version, "root": os.path.dirname(metadata), "files": sorted(files)}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    answer = {
        "paths": {key: sysconfig.get_paths()[key] for key in ("purelib", "platlib", "scripts", "data", "include")},
        "distributions": {
            name: [describe(copy) for copy in distributions(name=name)] for name in question["distributions"]
        },
    }
    print("\n" + json.dumps(answer))


main()
