"""OpenSSH signatures over a bundle's manifest, made and checked offline by `ssh-keygen -Y`.

Format: PROTOCOL.sshsig of OpenSSH. What decides is `ssh-keygen`; the signature is read here only to say which key
made it, and for what.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.errors import Invalid, PatchqError, Prevented, Refused
from patchq.exclusive import scratch
from patchq.process import Outcome, find_program, run

NAMESPACE = "patchq"
MAX_SIGNATURE = 1 << 16
OLDEST = "OpenSSH 8.2"
_ARMOR = rb"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\n]+)-----END SSH SIGNATURE-----\n?"
_MAGIC = b"SSHSIG\0\0\0\1"
_SECONDS = 60.0
_SECONDS_TO_SIGN = 300.0  # an agent may ask a person, and a security key wants to be touched
_TRIES = 32
_GOOD = rf'Good "{NAMESPACE}" signature .*\bkey (\S+)'
_TOO_OLD = r"(?i)(?:unknown|illegal|invalid) option|unsupported operation"
_NOT_NOW = r":(\d+): (key (?:has expired|is not yet valid)): verify time \S+ [<>] (valid-\w+) (\S+)"
_NOT_FOR_THIS = r":(\d+): key is not permitted for use in signature namespace"
_UNREADABLE = r":(\d+): ((?:invalid|missing|bad) .*)"


@dataclass(frozen=True)
class Signature:
    """What a signature says of itself: the key's type and SHA-256 fingerprint, and what it was made for."""

    kind: str
    fingerprint: str
    namespace: str

    @property
    def key(self) -> str:
        """The key as OpenSSH names it."""
        return f"{self.kind} {self.fingerprint}"


@dataclass(frozen=True)
class Signers:
    """A list of allowed signers (ssh-keygen(1), ALLOWED SIGNERS), where it is, and whether anybody may write it."""

    data: bytes
    where: str
    is_open: bool = False


def refuse_no_key(key: Path) -> None:
    """Raise `Invalid` where `key` is no file, `Prevented` where it cannot be read; before any work is done for it."""
    if not key.is_file():
        raise Invalid("there is no such key", where=str(key), hint="a private key, or its .pub where an agent holds it")
    if not os.access(key, os.R_OK):
        raise Prevented("the key cannot be read", where=str(key))


def sign(data: bytes, key: Path) -> bytes:
    """The signature of `data` with a private key, or with the agent's where `key` is a public one.

    Nothing is asked on a terminal. Raises `Prevented` where the key cannot be used, `Invalid` where it is none.
    """
    outcome = _ssh_keygen(("sign", "-f", str(key.absolute()), "-n", NAMESPACE), data)
    if outcome.ok:
        try:
            check_made(data, outcome.stdout, str(key), str(key))
        except Refused as error:
            raise Prevented(f"what ssh-keygen signed {error.problems[0].what}", where=str(key)) from None
        return outcome.stdout
    said = outcome.error_text
    if "passphrase" in said:
        raise Prevented("the key is locked by a passphrase", where=str(key),
                        hint="give it to an agent with ssh-add, and sign with the .pub beside it")  # fmt: skip
    if "UNPROTECTED PRIVATE KEY" in said:
        raise Prevented("others can read the key, so that ssh-keygen does not use it", where=str(key), hint="chmod 600")
    if "No private key found" in said or "agent" in said:
        raise Prevented("no agent holds this key", where=str(key), hint="run: ssh-add, or name the private key")
    if "load public key" in said or "invalid format" in said:
        raise Invalid("is not an OpenSSH key", where=str(key), hint="a PEM key needs its .pub beside it")
    raise Prevented(f"ssh-keygen does not sign: {outcome.last_words}", where=str(key))


def check_made(data: bytes, signature: bytes, what: str, where: str) -> Signature:
    """The signature, which has to be one of `data` for this namespace, by whatever key; else as `check_signature`."""
    found = read_signature(signature, where)
    if found.namespace != NAMESPACE:
        raise Refused(f"was made for {found.namespace!r}, not for {NAMESPACE!r}", where=where)
    with scratch() as room:
        (room / "signature").write_bytes(signature)
        key = _good(_ssh_keygen(("check-novalidate", "-n", NAMESPACE, "-s", str(room / "signature")), data))
    if key is None:
        raise Refused(f"is not what was signed with {found.key}", where=what, hint="transfer it again")
    return replace(found, fingerprint=key)


def check_signature(data: bytes, signature: bytes, signers: Signers, what: str, where: str) -> tuple[str, Signature]:
    """Who signed `data` (a principal of `signers`), and the signature; `what` and `where` name both in messages.

    Raises `Refused`, each with its own words, for what is no signature, was made for something else, was made of
    other bytes, or by a key that `signers` does not allow (now, for this); `Prevented` without a good ssh-keygen.
    """
    found = check_made(data, signature, what, where)
    with scratch() as room:
        kept, listed = room / "signature", room / "allowed_signers"
        kept.write_bytes(signature)
        lines, said = signers.data.split(b"\n"), ""
        for _ in range(_TRIES):  # a list that came in a bundle may name one key a million times
            listed.write_bytes(b"\n".join(lines))
            who, told = _first_allowed(data, kept, listed)
            if who:
                return who, found
            said += told
            barred = [int(number) for number in re.findall(_NOT_FOR_THIS, told)]
            if not barred:
                break
            for number in barred:  # ssh-keygen finds the first line of a key only; another may allow more
                lines[number - 1] = b""
    raise _not_allowed(said, found, signers, where)


def _first_allowed(data: bytes, signature: Path, listed: Path) -> tuple[str, str]:
    """Who of those whom the first line with the key names may have signed `data`, empty for none; and what was said."""
    known = _ssh_keygen(("find-principals", "-s", str(signature), "-f", str(listed)))
    if not known.ok and "No principal matched" not in known.error_text:
        raise _no_answer(known)
    said = f"{known.error_text}\n"
    named = [name for name in os.fsdecode(known.stdout).split("\n") if name and not name.startswith("!")]
    for principal in named[:_TRIES] if known.ok else ():
        words = ("verify", "-n", NAMESPACE, "-s", str(signature), "-f", str(listed), "-I", principal)
        verified = _ssh_keygen(words, data)
        if _good(verified):
            return principal, said
        said += f"{verified.error_text}\n"
        if re.search(_NOT_FOR_THIS, said):
            break
    return "", said


def read_signature(signature: bytes, where: str) -> Signature:
    """What a signature says of itself; raises `Refused` where it is none."""
    armored = re.fullmatch(_ARMOR, signature)
    try:
        blob = base64.b64decode(armored[1].replace(b"\n", b"") if armored else b"", validate=True)
        if not blob.startswith(_MAGIC):
            raise ValueError
        key, rest = _string(blob[len(_MAGIC) :])
        namespace, rest = _string(rest)
        for _ in ("reserved", "hash algorithm", "signature"):
            _, rest = _string(rest)
        if rest:
            raise ValueError
        kind, _ = _string(key)
    except (ValueError, binascii.Error):
        raise Refused("is not an OpenSSH signature", where=where, hint="transfer it again, byte for byte") from None
    digest = base64.b64encode(hashlib.sha256(key).digest()).rstrip(b"=").decode()
    return Signature(kind.decode("ascii", "replace"), f"SHA256:{digest}", namespace.decode("utf-8", "replace"))


def _string(data: bytes) -> tuple[bytes, bytes]:
    """The string at the start of `data` (RFC 4251, section 5), and what follows it."""
    end = 4 + int.from_bytes(data[:4], "big")
    if len(data) < max(end, 4):
        raise ValueError
    return data[4:end], data[end:]


def _not_allowed(said: str, found: Signature, signers: Signers, where: str) -> PatchqError:
    if late := re.search(_NOT_NOW, said):
        what = f"was signed with {found.key}: the {late[2]} ({late[3]} {late[4]})"
        return Refused(what, where=where, hint=f"see {signers.where}:{late[1]}")
    if other := re.search(_NOT_FOR_THIS, said):
        what = f"was signed with {found.key}, which may not sign for {NAMESPACE!r}"
        return Refused(what, where=where, hint=f"see {signers.where}:{other[1]}")
    odd = re.search(_UNREADABLE, said)
    hint = f"ssh-keygen cannot read {signers.where}:{odd[1]}: {odd[2]}" if odd else ""
    return Refused(f"was signed with {found.key}, which {signers.where} does not allow", where=where, hint=hint)


def _good(outcome: Outcome) -> str | None:
    """The fingerprint of the key where ssh-keygen says that a signature is good, None where it says that it is not.

    Both in its own words: one that breaks down before it looked has not said no, and what always says yes not yes.
    """
    if outcome.ok and (found := re.match(_GOOD, outcome.text)):
        return found[1]
    if outcome.code > 0 and "Could not verify signature" in outcome.text:
        return None
    raise _no_answer(outcome)


def _no_answer(outcome: Outcome) -> Prevented:
    return Prevented(f"ssh-keygen does not check signatures here: {outcome.last_words}")


def _ssh_keygen(words: Sequence[str], stdin: bytes = b"") -> Outcome:
    """`ssh-keygen -Y …`; raises `Prevented` where there is none, or one that knows no signatures."""
    if not find_program("ssh-keygen"):
        raise Prevented(f"there is no ssh-keygen here, which signatures need ({OLDEST} or newer)")
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    limit = _SECONDS_TO_SIGN if words[0] == "sign" else _SECONDS
    outcome = run(("ssh-keygen", "-Y", *words), env=environment, stdin=stdin, timeout=limit)
    if outcome.timed_out:
        raise Prevented(f"ssh-keygen did not answer within {limit:.0f} s")
    if not outcome.ok and re.search(_TOO_OLD, outcome.error_text):
        raise Prevented(f"ssh-keygen is too old for signatures; {OLDEST} is the oldest that will do")
    return outcome
