"""Completing a header with what is known about where a patch came from; what is there stays byte for byte."""

from __future__ import annotations

from patchq.importing.model import words
from patchq.patch import Patch


def completed(patch: Patch, origin: str, day: str) -> bytes:
    """The patch's bytes with a title, and with an Origin where nobody is named.

    `origin` is the value of an Origin field; `day` (`YYYY-MM-DD`) dates a header that is made here.
    """
    header, raw, diff = patch.header, patch.data[: patch.diff_start], patch.data[patch.diff_start :]
    is_named = bool(header.origin or header.get("author") or header.get("from"))
    if not raw.strip():
        made = f"Description: {words(patch.name)}\nOrigin: {origin}\nLast-Update: {day}\n\n"
        return made.encode("utf-8", "surrogateescape") + diff
    end = b"\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else b"\n"
    title = b"" if header.subject else f"Description: {words(patch.name)}".encode() + end
    told = b"" if is_named else f"Origin: {origin}".encode("utf-8", "surrogateescape") + end
    if not title and not told:
        return patch.data
    if header.fields and not header.is_mail:
        return title + told + raw + diff
    # Free text: fields about the patch stand in a paragraph of their own.
    return raw.rstrip(b"\r\n") + end * 2 + title + told + end + diff
