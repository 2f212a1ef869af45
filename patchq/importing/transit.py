"""What happens to the text of a patch between whoever made it and here, and what it was before."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def as_text(data: bytes) -> bytes:
    """A file's bytes without the mark of an encoding; from UTF-16, as PowerShell's `>` writes it, to UTF-8."""
    if data.startswith(_UTF16):
        try:
            return data.decode("utf-16").encode("utf-8")
        except UnicodeDecodeError:
            return data
    return data.removeprefix(codecs.BOM_UTF8)


def forms(data: bytes, *, lost_end: bool) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """What a patch may have been, the likeliest first, each with what was done about it, in words.

    Mail and editors of Windows end every line with CRLF, which git never does above a hunk (so `git am` takes the CR
    off). With `lost_end` its end is put back: pasting loses the last newline, or the last line where that is a blank
    one of context; half a line that a patch adds cannot be told from a whole one, and stays lost.
    """
    if data.count(b"\n") == data.count(b"\r\n") > 0:
        yield from _ended(data.replace(b"\r\n", b"\n"), ("its lines ended with CRLF, now with LF",), lost_end)
    yield from _ended(data, (), lost_end)


def _ended(data: bytes, notes: tuple[str, ...], lost_end: bool) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    if not lost_end:
        yield data, notes
    elif data.rpartition(b"\n")[2][:1] != b"+":
        yield data + b"\n", (*notes, "the newline at its end was lost, and is there again")
        yield data + b"\n\n", (*notes, "the blank line at its end was lost, and is there again")
