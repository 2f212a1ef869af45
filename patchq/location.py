"""Where things may be that a person names: paths on this host, and URLs that git may be handed."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from patchq.errors import Invalid
from patchq.mask import mask

SCHEMES = ("https", "ssh", "git", "file", "http")
_INVISIBLE = ("Cc", "Cf", "Zl", "Zp")


def local_path(text: str, where: str = "") -> Path:
    """`text` as a path, with `~` and `~USER` for a home; raises `Invalid` where there is none.

    `where` says which file names it.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise Invalid(f"there is no home for {text.split('/')[0]!r}", where=where) from None


def check_location(location: str) -> str | None:
    """Why `location` may not be handed to git, or None: option-like, a remote helper, credentials, a scheme."""
    if not location.strip() or location.startswith("-"):
        return "is empty or looks like an option"
    if any(unicodedata.category(char) in _INVISIBLE for char in location):
        return "holds a control character"
    if "::" in location.split("/", 1)[0]:
        return "names a remote helper"
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)", location)
    if scheme and scheme[1] not in SCHEMES:
        return f"has the scheme {scheme[1]!r}; allowed are {', '.join(SCHEMES)}"
    if re.search(r":[^@]*@", scheme[2]) if scheme else re.match(r"[^/]*:[^/@]*@", location):
        return "holds a password; leave that to git's credential helper"
    if scheme and scheme[1] in ("http", "https") and ("@" in scheme[2] or mask(location) != location):
        return "holds credentials; leave that to git's credential helper"
    host, colon, path = (scheme[2], "", "") if scheme else location.partition(":")
    if (scheme or (colon and "/" not in host)) and (host.rpartition("@")[2].startswith("-") or path.startswith("-")):
        return "has a part that looks like an option"
    return None
