"""The package index: pinned files found, checked and downloaded; wheels resolved for another machine.

Nothing here ever runs a `setup.py`, and nothing that is pinned names an address: where files come from is the
business of the user's own pip configuration.
"""

from patchq.index.pin import Pin, Platform

__all__ = ["Pin", "Platform"]
