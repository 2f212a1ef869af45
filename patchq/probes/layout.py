"""Where this interpreter installs to, and which files distributions have there. Prints one JSON document.

Question: {"distributions": [NAME...]}. Of each every copy on the path is listed with all files of its RECORD.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from importlib.metadata import Distribution, distributions


def describe(copy: Distribution) -> dict[str, object]:
    metadata = str(copy._path)  # type: ignore[attr-defined]
    files = {os.path.normpath(str(copy.locate_file(file))) for file in copy.files or ()}
    for folder, _, names in os.walk(metadata):
        files.update(os.path.join(folder, name) for name in names)
    return {"version": copy.version, "root": os.path.dirname(metadata), "files": sorted(files)}


def main() -> None:
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
