"""What a git that was killed leaves in a repository: halves of objects, and locks that every later git obeys.

Names: gitrepository-layout, and the temporary files of git's object-file.c, index-pack.c, shallow.c and lockfile.h.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_HALVES = ("objects/??/tmp_obj_*", "objects/pack/tmp_*", "objects/tmp_objdir-*", "shallow_*")
_LOCKS = ("*.lock", "refs/**/*.lock", "objects/info/*.lock")


def clear_leftovers(folder: Path) -> None:
    """Remove them from the bare repository at `folder`. Only for one in which no git is at work."""
    for left in (path for pattern in (*_HALVES, *_LOCKS) for path in list(folder.glob(pattern))):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
