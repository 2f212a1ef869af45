"""Files of patches: one patch, or mails one behind the other, as `git format-patch` and mail programs write them."""

from __future__ import annotations

import email
import email.policy
import re
from email.message import Message

from patchq.importing.model import Incoming
from patchq.importing.transit import as_text

# What git-mailsplit takes for the beginning of a mail: `From WHO DATE` with a time and a year.
_FROM = rb"(?m)^From [^\n]*\d\d:\d\d(?::\d\d)?[^\n]* \d{4}[^\n]*\n(?=[A-Za-z-]+: )"
_COMMIT = rb"From ([0-9a-f]{40}) "
_ENCODED = ("quoted-printable", "base64")
_KEPT = ("from", "date", "subject")


def split_file(data: bytes, name: str, where: str) -> list[Incoming]:
    """The patches in a file: the mails in it, or the whole file where it holds none or just one."""
    data = as_text(data)
    starts = [found.start() for found in re.finditer(_FROM, data)]
    if not starts or data[: starts[0]].strip():
        return [Incoming(name, _decoded(data), where, origin=_origin(data, name))]
    pieces = [data[begin:end] for begin, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    found = []
    for number, piece in enumerate(pieces, 1):
        mail = _decoded(piece)
        title = name if len(pieces) == 1 else _subject(mail) or f"{name}-{number}"
        place = where if len(pieces) == 1 else f"{where}, mail {number}"
        if len(pieces) > 1 and not _has_diff(mail):
            continue  # the cover letter of a series
        found.append(Incoming(title, mail, place, origin=_origin(piece, name)))
    return found


def _has_diff(mail: bytes) -> bool:
    return re.search(rb"^(?:diff --git |--- )", mail, re.MULTILINE) is not None


def _origin(mail: bytes, name: str) -> str:
    commit = re.match(_COMMIT, mail)
    return f"other, commit:{commit[1].decode()}" if commit and set(commit[1]) != {ord("0")} else f"other, {name}"


def _subject(mail: bytes) -> str:
    text = str(email.message_from_bytes(mail, policy=email.policy.default).get("subject", ""))
    return re.sub(r"^(?:\s*\[[^\[\]]*\])+\s*", "", " ".join(text.split()))


def _decoded(mail: bytes) -> bytes:
    """A mail with its body as bytes; one that is not encoded for transport stays as it is."""
    message: Message = email.message_from_bytes(mail)
    encoding = str(message.get("content-transfer-encoding", "")).strip().lower()
    if encoding not in _ENCODED and not message.is_multipart():
        return mail
    parts = [part for part in message.walk() if not part.is_multipart() and part.get_content_maintype() == "text"]
    # One behind the other, as `git mailinfo` takes what `format-patch --attach` and `--inline` write.
    body = b"".join(bytes(part.get_payload(decode=True)) for part in parts if part.get_content_subtype() != "html")
    head = mail.replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    rows = [row for row in _fields(head) if row.split(b":")[0].strip().lower().decode("latin-1") in _KEPT]
    # Mail in transit has CRLF at the ends of lines; a body of text is encoded with it.
    text = body.replace(b"\r\n", b"\n") if b"\r\n" in body and b"\n" not in body.replace(b"\r\n", b"") else body
    return b"\n".join(rows) + b"\n\n" + text


def _fields(head: bytes) -> list[bytes]:
    """A mail's header fields with the lines that go on."""
    return re.split(rb"\n(?![ \t])", head)
