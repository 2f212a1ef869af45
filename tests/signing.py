"""Who signs bundles, with real OpenSSH keys, and another machine that is to take them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from world import World, contents, patchq

from patchq.document import to_json
from patchq.queuejournal import LOCK_NAME
from patchq.transfer.manifest import MANIFEST, SIGNATURE, digests_of, write_sums

WHO = "release@example.org"


def ssh_keygen(*words: object, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    argv = ["ssh-keygen", *map(str, words)]
    return subprocess.run(argv, input=stdin, env={**os.environ, **env}, capture_output=True, check=False)


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", bits: str = "") -> Path:
    """A fresh key, with its `.pub` beside it."""
    size = ("-b", bits) if bits else ()
    done = ssh_keygen("-q", "-t", kind, *size, "-N", passphrase, "-C", path.name, "-f", path)
    assert done.returncode == 0, done.stderr
    return path


def public(key: Path) -> str:
    """The type and the key itself, as lists of signers want them."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def fingerprint(key: Path) -> str:
    return ssh_keygen("-l", "-f", f"{key}.pub").stdout.decode().split()[1]


def build(queue: World, out: Path, *more: object) -> Path:
    assert patchq("bundle", "--target", "blind", "--out", out, "--queue", queue.root, *more) == 0
    return out


class Host:
    """Another machine: its own home, folders and work area; `apply` is the command line on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.work, self._capsys = folder, folder / "work", capsys
        self.list = folder / "config/patchq/allowed_signers"

    def trusts(self, text: str) -> None:
        """The user's own list, which no bundle can reach."""
        self.list.parent.mkdir(parents=True, exist_ok=True)
        self.list.write_text(text)

    def apply(self, bundle: Path, *more: object, verb: str = "apply") -> tuple[int, str]:
        self._capsys.readouterr()
        code = patchq(verb, "--target", "blind", "--bundle", bundle, *more)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    def refuses(self, bundle: Path, *expected: str, code: int = 1, verb: str = "apply") -> None:
        """One line, that exit code, and nothing made or changed."""
        before = self._made()
        answer, said = self.apply(bundle, verb=verb)
        assert answer == code and all(text in said for text in expected), said
        assert said.startswith("error: ") and len(said.strip().splitlines()) == 1
        assert self._made() == before

    def _made(self) -> dict[str, tuple[str, bytes]]:
        """All of the work area, but who held its lock last."""
        return {name: file for name, file in contents(self.work).items() if name != ".lock"}


def forged(bundle: Path, folder: Path, signature: bytes | None = None) -> Path:
    """The bundle with another patch, as whoever stands between would send it: everything agrees but the signature."""
    moved = shutil.copytree(bundle, folder)
    path = moved / "series/alpha/tests/test_name.py"
    path.write_bytes(path.read_bytes() + b"# more\n")
    lock = moved / "series" / LOCK_NAME
    document = json.loads(lock.read_bytes())
    document["files"]["alpha/tests/test_name.py"] = digests_of(moved)["series/alpha/tests/test_name.py"]
    lock.write_bytes(to_json(document))
    resum(moved, lock=digests_of(moved)[f"series/{LOCK_NAME}"])
    if signature is not None:
        (moved / SIGNATURE).write_bytes(signature)
    return moved


def resum(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_bytes(to_json({**manifest, **changes, "files": digests_of(folder)}))
    write_sums(folder)


def signature_of(bundle: Path, key: Path, namespace: str = "patchq") -> bytes:
    done = ssh_keygen("-Y", "sign", "-f", key, "-n", namespace, stdin=(bundle / MANIFEST).read_bytes())
    assert done.returncode == 0, done.stderr
    return done.stdout
