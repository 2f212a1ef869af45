"""GitPython, imported so that neither a missing git nor the caller's variables decide whether patchq starts.

At its import GitPython asks git for its version, twice, in a way that `GIT_PYTHON_*` steers, and fails where there is
none. It is shown a git that cannot be run, so that it asks none, and takes the one on `PATH`, as everywhere in patchq.
"""

from __future__ import annotations

import os

from patchq.errors import Prevented

_before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("GIT_PYTHON_")}
_none = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": os.devnull}
os.environ.update(_none)
try:
    from git import Git as GitCommand
    from git import GitCmdObjectDB
    from git.exc import GitCommandNotFound
except ImportError as error:
    raise Prevented(f"git does not answer: {str(error).splitlines()[0]}") from error
finally:
    for _name in _none:
        del os.environ[_name]
    os.environ.update(_before)

__all__ = ["GitCmdObjectDB", "GitCommand", "GitCommandNotFound"]
