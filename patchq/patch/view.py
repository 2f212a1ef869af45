"""A hunk shown to people: what it expected to find. The only door to unidiff, which never decides."""

from __future__ import annotations

from dataclasses import dataclass

from patchq.patch.model import Change, Hunk, Patch


@dataclass(frozen=True)
class ConflictView:
    """The hunk that did not apply: `expected` holds its pre-image, each line with its old number.

    `line` is the hunk's line in the patch file, `section` what stands behind `@@` (the enclosing function).
    """

    path: str
    line: int
    section: str
    expected: tuple[tuple[int, str], ...]


def conflict_view(patch: Patch, path: str, line: int) -> ConflictView | None:
    """The hunk behind git's "patch failed: PATH:LINE"; None where the patch has no such hunk."""
    for change in patch.changes:
        hunk = next((hunk for hunk in change.hunks if hunk.old_start == line), None)
        if hunk and path in (change.old, change.new):
            return ConflictView(path, hunk.line, hunk.section, _expected(patch, change, hunk))
    return None


def _expected(patch: Patch, change: Change, hunk: Hunk) -> tuple[tuple[int, str], ...]:
    from unidiff.errors import UnidiffParseError

    text = patch.data[hunk.start : hunk.end].decode("utf-8", "replace")
    try:
        return _by_unidiff(text)
    except UnidiffParseError:
        return _by_hand(patch.data[hunk.start : hunk.end], hunk.old_start)


def _by_unidiff(hunk: str) -> tuple[tuple[int, str], ...]:
    from unidiff.patch import PatchSet

    (block,) = PatchSet(f"--- a/old\n+++ b/new\n{hunk}")[0]
    return tuple(
        (line.source_line_no, line.value.removesuffix("\n")) for line in block if line.source_line_no is not None
    )


def _by_hand(hunk: bytes, first: int) -> tuple[tuple[int, str], ...]:
    lines = [line for line in hunk.split(b"\n")[1:-1] if line[:1] in (b"", b" ", b"-")]
    texts = (line[1:].decode("utf-8", "replace") for line in lines)
    return tuple(enumerate(texts, first))
