"""GitPython, imported so that neither a missing git nor the caller's variables decide whether patchq starts.

At its import GitPython looks for git, in a way that `GIT_PYTHON_*` steers, and fails where there is none; which git is
run is settled by `PATH`, as everywhere in patchq.
"""

from __future__ import annotations

import os

_before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_PYTHON_")}
os.environ["GIT_PYTHON_REFRESH"] = "quiet"
try:
    from git import Git as GitCommand
    from git import GitCmdObjectDB
    from git.exc import GitCommandNotFound
finally:
    del os.environ["GIT_PYTHON_REFRESH"]
    os.environ.update(_before)

__all__ = ["GitCmdObjectDB", "GitCommand", "GitCommandNotFound"]
