"""Source distributions and wheels as lists of files, read by our own rules; nothing is extracted or run."""

from patchq.sdist.tree import SourceFile, read_sdist, read_tree
from patchq.sdist.wheel import open_wheel

__all__ = ["SourceFile", "open_wheel", "read_sdist", "read_tree"]
