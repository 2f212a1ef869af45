"""New diff text, in the one form that patchq writes; what is there already is never made anew without need.

The form: `git diff` with full ids, binary data, three lines of context, `a/` and `b/`, Myers' algorithm with the
indent heuristic, unquoted UTF-8 names. A file counts as renamed only if its bytes are the same: likeness is judged
differently by different versions of git, and the same change has to give the same text everywhere.
"""

from __future__ import annotations

from patchq.errors import Invalid, Problem
from patchq.store import Store
from patchq.store.trees import GITLINK

_CONFIG = ("-c", "core.quotePath=false", "-c", "core.compression=9", "-c", "diff.suppressBlankEmpty=false",
           "-c", "diff.renameLimit=0")  # fmt: skip
_FORM = ("--patch", "--full-index", "--binary", "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers",
         "--indent-heuristic", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none",
         "-O/dev/null")  # fmt: skip


def make_diff(store: Store, before: str, after: str, *, strip: int = 1) -> bytes:
    """The diff text, for `-p strip`, that turns the tree `before` into `after`; empty where they are the same.

    Raises `Invalid` where they differ in a submodule: that belongs to the baseline.
    """
    told = store.git.run(("diff-tree", "-r", "-z", "--no-renames", before, after)).decode("utf-8", "surrogateescape")
    modes, paths = told.split("\0")[0::2], told.split("\0")[1::2]
    linked = [path for mode, path in zip(modes, paths, strict=False) if GITLINK in mode[1:].split(" ")[:2]]
    if linked:
        hint = "submodules are pinned in baseline.yaml"
        raise Invalid(Problem(f"{path} is a submodule; a patch cannot move it", hint=hint) for path in linked)
    # `rename from` carries no prefix, so that only -p0 and -p1 can read it.
    renames = "--find-renames=100%" if strip < 2 else "--no-renames"
    prefixes = (f"--src-prefix={'a/' * strip}", f"--dst-prefix={'b/' * strip}")
    return store.git.run((*_CONFIG, "diff-tree", "-r", *_FORM, renames, *prefixes, before, after))
