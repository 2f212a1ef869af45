"""Changes to a distribution that lies in site-packages: in place, journaled, and taken back on request.

Hard links are broken rather than written through, so that an environment which shares its files with another
(or with a cache) leaves that other one alone. Whoever holds the work area's lock may call this room.
"""

from patchq.installed.changes import FileChange, state
from patchq.installed.installation import Installation, NotInstalled, locate
from patchq.installed.journal import placed_bytes, roll_forward
from patchq.installed.sink import place, take_back

__all__ = [
    "FileChange",
    "Installation",
    "NotInstalled",
    "locate",
    "place",
    "placed_bytes",
    "roll_forward",
    "state",
    "take_back",
]
