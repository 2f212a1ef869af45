"""The forms in which other tools take a selection: a quilt series, and mails for `git am`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from email.header import Header as MailHeader
from email.utils import format_datetime, formataddr

from patchq.errors import Problem, Refused
from patchq.patch import Patch
from patchq.queue.load import QueuedPatch

_MAIL_START = r"(?m)^From (?=.*\d)"
_HEADER_LINE = r"[A-Za-z-]+:|\[|>"
_SEPARATOR = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"


def quilt_files(chosen: Sequence[QueuedPatch]) -> dict[str, bytes]:
    """Path → bytes: the patches as they are, and a series without guards.

    A patch without a diff is left out, because quilt refuses it. Raises `Refused` for binary changes.
    """
    binary = [queued for queued in chosen if queued.patch and any(change.binary for change in queued.patch.changes)]
    _refuse(binary, "has binary changes, which are beyond quilt", "export it with --format git-am")
    chosen = _with_a_diff(chosen)
    files = {queued.entry.name: queued.patch.data for queued in chosen if queued.patch}
    rows = (
        queued.entry.name + ("" if queued.entry.strip == 1 else f" -p{queued.entry.strip}") + "\n" for queued in chosen
    )
    return {**files, "series": "".join(rows).encode()}


def git_am_files(chosen: Sequence[QueuedPatch]) -> dict[str, bytes]:
    """Path → bytes: numbered mails, so that `git am --keep-cr *.patch` takes them in order.

    A patch without a diff is left out, because `git am` refuses it. Raises `Refused` for strip levels other than -p1.
    """
    odd = [queued for queued in chosen if queued.entry.strip != 1]
    _refuse(odd, "is not for -p1, which is all that git am takes", "export it with --format quilt, or make it anew")
    return {
        f"{number:04d}-{queued.entry.name.rpartition('/')[2]}": mail(queued.patch)
        for number, queued in enumerate(_with_a_diff(chosen), 1)
        if queued.patch
    }


def mail(patch: Patch) -> bytes:
    """A patch as the mail that `git format-patch` would have written (RFC 5322, 8-bit)."""
    subject, _, body = patch.header.message(patch.name).decode("utf-8", "replace").partition("\n")
    lines = [
        f"From: {_address(patch.header.author)}",
        f"Date: {_date(patch)}",
        f"Subject: [PATCH] {_word(subject)}",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=UTF-8",
        "Content-Transfer-Encoding: 8bit",
    ]
    body = re.sub(_MAIL_START, ">From ", body.strip("\n"))
    if re.match(_HEADER_LINE, body):  # git am would take it for its own
        body = f"{lines[0]}\n\n{body}"
    text = "\n".join(lines) + f"\n\n{body}\n---\n\n"
    return _SEPARATOR + text.encode() + patch.data[patch.diff_start :] + b"-- \n"


def _with_a_diff(chosen: Sequence[QueuedPatch]) -> list[QueuedPatch]:
    return [queued for queued in chosen if queued.patch and queued.patch.changes]


def _refuse(patches: Sequence[QueuedPatch], what: str, hint: str) -> None:
    if patches:
        raise Refused(Problem(what, queued.name, hint) for queued in patches)


def _address(author: str) -> str:
    """`NAME <MAIL>` as a mail has it (RFC 5322): quoted where the name needs it."""
    name, _, mail = author.removesuffix(">").rpartition(" <")
    return f"{_word(name)} <{mail}>" if not name.isascii() else formataddr((name, mail))


def _word(text: str) -> str:
    """`text` as it may stand in a header: as it is where it is ASCII, else an encoded word (RFC 2047)."""
    return text if text.isascii() else MailHeader(text, "utf-8", maxlinelen=10_000).encode()


def _date(patch: Patch) -> str:
    seconds, zone = patch.header.author_date or (0, "+0000")
    sign = -1 if zone[0] == "-" else 1
    offset = timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5])))
    return format_datetime(datetime.fromtimestamp(seconds, offset))
