"""The package index: pinned files found, checked and downloaded; wheels resolved for another machine.

Nothing here ever runs a `setup.py`, and nothing that is pinned names an address: where files come from is the
business of the user's own pip configuration.
"""

from patchq.index.download import fetch, find_sdist
from patchq.index.pin import Pin, Platform
from patchq.index.resolve import resolve

__all__ = ["Pin", "Platform", "fetch", "find_sdist", "resolve"]
