"""The forms in which other tools take a selection: a quilt series, and mails for `git am`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from email.header import Header as MailHeader
from email.utils import format_datetime

from patchq.patch import Patch
from patchq.queue.load import QueuedPatch

_SEPARATOR = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"


def quilt_files(chosen: Sequence[QueuedPatch]) -> dict[str, bytes]:
    """Path → bytes: the patches as they are, and a series without guards."""
    files = {queued.entry.name: queued.patch.data for queued in chosen if queued.patch}
    rows = (
        queued.entry.name + ("" if queued.entry.strip == 1 else f" -p{queued.entry.strip}") + "\n" for queued in chosen
    )
    return {**files, "series": "".join(rows).encode()}


def git_am_files(chosen: Sequence[QueuedPatch]) -> dict[str, bytes]:
    """Path → bytes: numbered mails, so that `git am --keep-cr *.patch` takes them in order."""
    return {
        f"{number:04d}-{queued.entry.name.rpartition('/')[2]}": mail(queued.patch)
        for number, queued in enumerate((queued for queued in chosen if queued.patch and queued.patch.changes), 1)
        if queued.patch
    }


def mail(patch: Patch) -> bytes:
    """A patch as the mail that `git format-patch` would have written (RFC 5322, 8-bit)."""
    subject, _, body = patch.header.message(patch.name).decode("utf-8", "replace").partition("\n")
    lines = [
        f"From: {_encoded(patch.header.author)}",
        f"Date: {_date(patch)}",
        f"Subject: [PATCH] {_encoded(subject)}",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=UTF-8",
        "Content-Transfer-Encoding: 8bit",
    ]
    text = "\n".join(lines) + "\n\n" + body.strip("\n") + "\n---\n\n"
    return _SEPARATOR + text.encode() + patch.data[patch.diff_start :] + b"-- \n"


def _encoded(text: str) -> str:
    """`text` as it may stand in a header: as it is where it is ASCII, else an encoded word (RFC 2047)."""
    if text.isascii():
        return text
    name, bracket, address = text.partition(" <")
    return MailHeader(name, "utf-8", maxlinelen=10_000).encode() + bracket + address


def _date(patch: Patch) -> str:
    seconds, zone = patch.header.author_date or (0, "+0000")
    sign = -1 if zone[0] == "-" else 1
    offset = timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5])))
    return format_datetime(datetime.fromtimestamp(seconds, offset))
