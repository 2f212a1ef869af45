"""Signatures that lie, lists that hide something, and an ssh-keygen that is not well: refused in one line each, with
nothing made; and every form that OpenSSH takes is taken.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from signing import WHO, Host, build, fingerprint, forged, make_key, public, signature_of, ssh_keygen
from world import World, contents, patchq

from patchq.errors import Invalid, PatchqError, Prevented, Refused
from patchq.process import find_program, run
from patchq.report import Step
from patchq.transfer.manifest import MANIFEST, SIGNATURE, SUMS, check_bundle
from patchq.transfer.origin import signed, trusted_signers
from patchq.transfer.signature import Signers, check_signature, sign
from patchq.workarea import WorkArea

pytestmark = pytest.mark.fault  # what every day needs of signatures is in test_origin

BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
NONE = f"error: {SIGNATURE}: is not an OpenSSH signature"
CHANGED = f"error: {MANIFEST}: is not what was signed with ssh-ed25519 "


def armored(blob: bytes) -> bytes:
    text = base64.b64encode(blob)
    return BEGIN + b"".join(text[at : at + 70] + b"\n" for at in range(0, len(text), 70)) + END


def blob_of(signature: bytes) -> bytes:
    return base64.b64decode(signature.removeprefix(BEGIN).removesuffix(END))


def field(data: bytes) -> bytes:
    """A string of RFC 4251."""
    return len(data).to_bytes(4, "big") + data


def worth(bundle: Path, text: str | bytes, is_open: bool = False) -> Step:
    """What a list makes of a bundle's signature, or what it raises."""
    data = text.encode() if isinstance(text, str) else text
    return signed(bundle, check_bundle(bundle), Signers(data, "list", is_open), lambda: None)


# Signatures.


LYING: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "line ends of another system": (lambda good: good.replace(b"\n", b"\r\n"), NONE),
    "twice": (lambda good: good * 2, NONE),
    "something before": (lambda good: b"hello\n" + good, NONE),
    "something after": (lambda good: good + b"hello\n", NONE),
    "a NUL after": (lambda good: good + b"\0", NONE),
    "more in the armour": (lambda good: armored(blob_of(good) + b"more"), NONE),
    "less in the armour": (lambda good: armored(blob_of(good)[:-20]), NONE),
    "nothing in the armour": (lambda good: armored(b""), NONE),
    "zeros in the armour": (lambda good: armored(bytes(300)), NONE),
    "a length past the end": (lambda good: armored(blob_of(good)[:10] + b"\xff\xff\xff\xff"), NONE),
    "no base64": (lambda good: BEGIN + b"====\n" + END, NONE),
    "another version": (lambda good: armored(blob_of(good)[:9] + b"\2" + blob_of(good)[10:]), NONE),
    "without the armour": (blob_of, NONE),
    "of a commit": (lambda good: good.replace(b"SSH SIGNATURE", b"PGP SIGNATURE"), NONE),
    "another hash": (lambda good: armored(blob_of(good).replace(b"sha512", b"sha256")), CHANGED),
    "an unknown hash": (lambda good: armored(blob_of(good).replace(field(b"sha512"), field(b"md5"))), CHANGED),
    "one bit": (lambda good: armored(blob_of(good)[:-1] + bytes([blob_of(good)[-1] ^ 1])), CHANGED),
    "a namespace that begins the same": (
        lambda good: armored(blob_of(good).replace(field(b"patchq"), field(b"patchq\0"))),
        f"error: {SIGNATURE}: was made for 'patchq\\x00', not for 'patchq'",
    ),
    "the name changed later": (lambda good: b"", CHANGED),
    "another file's": (lambda good: b"", CHANGED),
    "another key inside": (lambda good: b"", f"error: {MANIFEST}: is not what was signed with ssh-"),
}  # fmt: skip


@pytest.mark.parametrize("name", LYING)
def test_a_signature_that_is_not_of_this_is_refused(
    name: str, sent: Path, bare: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    good, moved = (sent / SIGNATURE).read_bytes(), shutil.copytree(sent, tmp_path / "moved")
    change, said = LYING[name]
    if name == "the name changed later":
        lie = armored(blob_of(signature_of(sent, keys["ours"], "git")).replace(field(b"git"), field(b"patchq")))
    elif name == "another file's":
        lie = ssh_keygen("-Y", "sign", "-n", "patchq", "-f", keys["ours"], stdin=(sent / SUMS).read_bytes()).stdout
        assert lie.startswith(BEGIN)
    elif name == "another key inside":
        ours, theirs = (base64.b64decode(public(keys[who]).split()[1]) for who in ("ours", "theirs"))
        lie = armored(blob_of(signature_of(sent, keys["theirs"])).replace(theirs, ours))
    else:
        lie = change(good)
    assert lie != good
    (moved / SIGNATURE).write_bytes(lie)
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(moved, said)


def test_a_signature_of_another_bundle_is_none_of_this_one(
    sent: Path, bare: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    """Each way round, and with all else that came with it."""
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    for bundle, other in ((bare, sent), (sent, bare)):
        moved = shutil.copytree(bundle, tmp_path / bundle.parent.name)
        (moved / SIGNATURE).write_bytes(signature_of(other, keys["ours"]))
        host.refuses(moved, CHANGED)
    mixed = shutil.copytree(sent, tmp_path / "mixed")
    (mixed / MANIFEST).write_bytes((bare / MANIFEST).read_bytes())
    host.refuses(mixed, f"{MANIFEST}: does not have the SHA-256 that is listed")


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_a_signature_that_is_no_plain_file_is_refused(
    kind: str, sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    moved = shutil.copytree(sent, tmp_path / "moved")
    (moved / SIGNATURE).unlink()
    _odd(kind, moved / SIGNATURE, sent / SIGNATURE)
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(moved, f"{SIGNATURE}: is not a plain file")


def _odd(kind: str, path: Path, good: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(good if kind == "link" else "nowhere")


def test_install_asks_the_same_of_a_bundle(sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path) -> None:
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(forged(sent, tmp_path / "forged"), CHANGED, verb="install")


def test_what_is_the_same_signature_is_taken(sent: Path, keys: dict[str, Path], tmp_path: Path) -> None:
    """Also the older hash, and without the line end that some mail drops."""
    moved = shutil.copytree(sent, tmp_path / "moved")
    words = ("-Y", "sign", "-O", "hashalg=sha256", "-n", "patchq", "-f", keys["ours"])
    older = ssh_keygen(*words, stdin=(sent / MANIFEST).read_bytes()).stdout
    for signature in ((sent / SIGNATURE).read_bytes().removesuffix(b"\n"), older):
        (moved / SIGNATURE).write_bytes(signature)
        assert f"by {WHO} with ssh-ed25519 {fingerprint(keys['ours'])}" in (
            worth(moved, f"{WHO} {public(keys['ours'])}\n").summary
        )


# Lists. {k} is our key, {t} another.

TAKEN = {
    "b": "a namespaces=\"git\" {k}\nb {k}\n",
    "b@x": "a namespaces=\"git\" {k}\nc namespaces=\"file\" {k}\nb@x valid-after=\"20200101\" {k}\n",
    "a": "a,!b,*@x {k}",
    "*@x": "!b@x,*@x {k}\n",
    "crlf": "# made elsewhere\r\ncrlf {k}\r\n",
    "a b": "\"a b\" {k}\n",
    "-x": "-x {k}\n",
    "spaced": " \t# people\n\n  spaced\tnamespaces=\"file,patchq\"   {k} a comment: cert-authority\n",
    "after": "nonsense\nother valid-before=\"soon\" {t}\nafter {k}\n",
    "last": "old valid-before=\"20200101\" {k}\nlast valid-before=\"20990101\" {k}\n",
    "second": "first {t}\nsecond {k}\n",
}  # fmt: skip


@pytest.mark.parametrize("who", TAKEN)
def test_whom_a_list_allows_is_named(who: str, sent: Path, keys: dict[str, Path]) -> None:
    """Also where the same key stands in an earlier line for something else, and never by what a pattern excludes."""
    step = worth(sent, TAKEN[who].format(k=public(keys["ours"]), t=public(keys["theirs"])))
    assert (step.state.value, step.data["signer"], step.data["list"]) == ("passed", who, "list")


def test_a_name_that_is_no_text_is_a_name(sent: Path, keys: dict[str, Path]) -> None:
    step = worth(sent, b"M\xfcller\x1b[31m " + public(keys["ours"]).encode())
    assert os.fsencode(step.data["signer"]) == b"M\xfcller\x1b[31m"


BARRED = {
    "nobody": ("", "which list does not allow"),
    "comment only": ("# a {k}\n", "which list does not allow"),
    "a key without a name": ("{k}\n", "which list does not allow"),
    "only a pattern that excludes": ("!b {k}\n", "which list does not allow"),
    "a key that begins the same": ("a {k}AAAA\n", "which list does not allow"),
    "an authority, but no certificate": ("a cert-authority {k}\n", "which list does not allow"),
    "a word that nobody knows": ("b {t}\na bogus {k}\n", "cannot read list:2: bad options: unknown key option"),
    "a word for another list": ("a no-touch-required {k}\n", "cannot read list:1: bad options: unknown key option"),
    "a time that is none": ("a valid-before=\"soon\" {k}\n", "cannot read list:1: bad options: invalid"),
    "a name that is not closed": ("\"a {k}\n", "cannot read list:1: invalid"),
    "for other things": (
        "a namespaces=\"git\" {k}\nb namespaces=\"file\" {k}\n",
        "which may not sign for 'patchq' (see list:1)",
    ),
    "for others by a pattern": ("a namespaces=\"*,!patchq\" {k}\n", "which may not sign for 'patchq' (see list:1)"),
    "over": ("\na valid-before=\"20200101Z\" {k}\n", "the key has expired (valid-before 2020-01-01T00:00"),
    "twice over": ("a valid-before=\"2020\" {k}\na valid-before=\"20200101\" {k}\n", "list:"),
    "cut by a NUL": ("a\0 {k}\n", "which list does not allow"),
}  # fmt: skip


@pytest.mark.parametrize("name", BARRED)
def test_whom_a_list_does_not_allow_is_refused_and_why(name: str, sent: Path, keys: dict[str, Path]) -> None:
    text, said = BARRED[name]
    with pytest.raises(Refused) as error:
        worth(sent, text.format(k=public(keys["ours"]), t=public(keys["theirs"])))
    assert said in str(error.value), str(error.value)
    assert fingerprint(keys["ours"]) in str(error.value)


def test_a_list_that_names_one_key_for_ever_ends(sent: Path, keys: dict[str, Path]) -> None:
    """The bundle's own list is its maker's, and each name would be asked for."""
    for text in (
        ",".join(f"a{number}" for number in range(40_000)) + f' namespaces="git" {public(keys["ours"])}\n',
        "".join(f'a{number} namespaces="git" {public(keys["ours"])}\n' for number in range(5_000)),
        ",".join(f"!a{number}" for number in range(40_000)) + f" {public(keys['ours'])}\n",
    ):
        began = time.monotonic()
        with pytest.raises(Refused, match="which"):
            worth(sent, text)
        assert time.monotonic() - began < 10


def test_a_list_that_anybody_can_write_is_no_better_than_the_bundles_own(
    sent: Path, keys: dict[str, Path], host: Host
) -> None:
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    for mode, state in ((0o644, "passed"), (0o664, "passed"), (0o666, "warning")):
        host.list.chmod(mode)
        trusted = trusted_signers(WorkArea(host.work), "blind")
        step = signed(sent, check_bundle(sent), trusted, lambda: None)
        assert step.state.value == state
    assert step.summary.endswith(f"{host.list}, which anybody here can write") and step.hint == "chmod o-w"


def _host_yaml(text: str) -> Callable[[Host], Path]:
    def put(host: Host) -> Path:
        host.work.mkdir()
        (host.work / "host.yaml").write_text(text)
        return host.work / "host.yaml"

    return put


def _lost_host_yaml(host: Host) -> Path:
    host.work.mkdir()
    (host.work / "host.yaml").symlink_to("/nowhere/host.yaml")
    return host.work / "host.yaml"


def _lost_folder(host: Host) -> Path:
    (host.folder / "config").mkdir()
    (host.folder / "config/patchq").symlink_to("/nowhere/dotfiles")
    return host.folder / "config/patchq"


def _lost_records(host: Host) -> Path:
    host.work.mkdir()
    (host.work / "records").symlink_to("/nowhere/records")
    return host.work / "records"


def _areas(put: Callable[[Path], object]) -> Callable[[Host], Path]:
    """What says where targets were applied before, damaged."""

    def damage(host: Host) -> Path:
        path = host.folder / "state/patchq/areas.json"
        path.parent.mkdir(parents=True)
        put(path)
        return path

    return damage


def _users(kind: str) -> Callable[[Host], Path]:
    def put(host: Host) -> Path:
        host.trusts("")
        host.list.rename(host.folder / "good")
        _odd(kind, host.list, host.folder / "good")
        return host.list

    return put


NOT_THERE: dict[str, tuple[Callable[[Host], Path], str, int]] = {
    "a link": (_users("link"), "is a symbolic link", 2),
    "a link to nothing": (_users("dangling"), "is a symbolic link", 2),
    "a pipe": (_users("fifo"), "is not a plain file", 2),
    "a folder": (_users("folder"), "is not a plain file", 2),
    "its folder leads nowhere": (_lost_folder, "leads nowhere now", 5),
    "host.yaml leads nowhere": (_lost_host_yaml, "is a symbolic link", 2),
    "records lead nowhere": (_lost_records, "leads nowhere now", 5),
    "known places are half written": (_areas(lambda path: path.write_text('{"blind": "/some')), "it is damaged", 5),
    "known places are a list": (_areas(lambda path: path.write_text("[]")), "it is damaged", 5),
    "known places are a folder": (_areas(Path.mkdir), "Is a directory", 5),
    "nobody's home": (_host_yaml("allowed_signers: ~nobody-of-that-name/list\n"), "there is no home for", 2),
    "a NUL": (_host_yaml('allowed_signers: "a\\0b"\n'), "holds a NUL", 2),
    "a variable that is not set": (_host_yaml("allowed_signers: ${NOWHERE}/list\n"), "NOWHERE is not set", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_THERE)
def test_a_list_that_is_declared_and_not_to_be_had_is_never_none(name: str, sent: Path, bare: Path, host: Host) -> None:
    put, said, code = NOT_THERE[name]
    where = put(host)
    for bundle in (sent, bare):
        host.refuses(bundle, f"error: {where}", said, code=code)


def test_a_home_of_nobody_is_one_line_wherever_it_is_named(world: World, host: Host) -> None:
    """Also in a target, whose work area it then is."""
    text = (world.root / "targets/blind.yaml").read_text()
    own = world.copy(host.folder / "own")
    own.write({"targets/blind.yaml": text.replace("${WORK:-work}", "~nobody-of-that-name/work")}).locked()
    moved = build(own, host.folder / "bundle")
    host.refuses(moved, "error: targets/blind.yaml: there is no home for '~nobody-of-that-name'", code=2)


def test_host_yaml_may_say_home_and_variables(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("the list")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LISTS", str(tmp_path))
    for text in ("~/list", "${LISTS}/list", "../list"):
        host.work.mkdir(exist_ok=True)
        (host.work / "host.yaml").write_text(f"allowed_signers: {text}\n")
        found = trusted_signers(WorkArea(host.work), "blind")
        assert found and found.data == b"the list", text


# ssh-keygen. Stand-ins, for one that breaks down cannot be had.

SICK = {
    "lacks a library": ("echo 'ssh-keygen: cannot open shared object file: No such file' >&2; exit 127", "cannot open"),
    "has another OpenSSL": ("echo 'OpenSSL version mismatch.' >&2; exit 255", "OpenSSL version mismatch."),
    "is killed": ("kill -9 $$", "exit status -9"),
    "crashes after a yes": ("echo 'Good \"patchq\" signature with ED25519 key SHA256:x'; kill -11 $$", "Good"),
    "says yes and nothing": ("exit 0", "exit status 0"),
    "says yes to something else": ("echo 'Good \"git\" signature with ED25519 key SHA256:x'", "Good"),
    "says no and yes": ("echo 'Good \"patchq\" signature with ED25519 key SHA256:x'; exit 1", "Good"),
    "finds nobody in silence": (
        '[ "$2" = find-principals ] && exit 1; echo \'Good "patchq" signature with ED25519 key SHA256:x\'', "exit",
    ),
    "does not read": ("exec <&-; exit 3", "exit status 3"),
}  # fmt: skip


def stand_in(folder: Path, script: str, patch: pytest.MonkeyPatch, *, relative: str = "") -> None:
    """An `ssh-keygen` in `folder`, which is first on PATH, by its full name or as `relative`."""
    folder.mkdir(exist_ok=True)
    path = folder / "ssh-keygen"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    patch.setenv("PATH", os.pathsep.join([relative if relative != "" else str(folder), os.environ["PATH"]]))


@pytest.mark.parametrize("name", SICK)
def test_an_ssh_keygen_that_breaks_down_has_said_neither_yes_nor_no(
    name: str, sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Least of all that a bundle was forged."""
    script, said = SICK[name]
    stand_in(tmp_path / "bin", script, monkeypatch)
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(sent, "error: ssh-keygen does not check signatures here: ", said, code=5)


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & exec sleep 60"])
def test_an_ssh_keygen_that_does_not_answer_is_not_waited_for(
    script: str, sent: Path, keys: dict[str, Path], host: Host, world: World, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stand_in(tmp_path / "bin", script, monkeypatch)
    for limit in ("_SECONDS", "_SECONDS_TO_SIGN"):
        monkeypatch.setattr(f"patchq.transfer.signature.{limit}", 0.2)
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(sent, "error: ssh-keygen did not answer within 0 s", code=5)
    argv = ("bundle", "--target", "blind", "--out", tmp_path / "b", "--queue", world.root, "--sign", keys["ours"])
    assert patchq(*argv) == 5 and not (tmp_path / "b").exists()
    assert "error: ssh-keygen did not answer" in capsys.readouterr().err


@pytest.mark.parametrize("entry", [".", "", "bin/..", "./"])
def test_a_program_that_lies_where_one_happens_to_be_is_not_run(
    entry: str, sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle could bring it, and say yes to itself."""
    (tmp_path / "bin").mkdir()
    for name in ("ssh-keygen", "git"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\necho 'Good \"patchq\" signature'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", entry + os.pathsep + os.environ["PATH"])
    assert find_program("git") and Path(find_program("git") or "").is_absolute()
    assert run(("git", "--version")).text.startswith("git version")
    host.trusts(f"{WHO} {public(keys['theirs'])}\n")
    host.refuses(sent, "does not allow")
    monkeypatch.setenv("PATH", entry)
    host.refuses(sent, "there is no ssh-keygen here", code=5)
    with pytest.raises(Prevented, match="cannot start git: No such file"):
        run(("git", "--version"))
    assert not (tmp_path / "was-run").exists()


def test_what_steers_ssh_in_the_environment_changes_nothing(
    sent: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_SK_PROVIDER", "SSH_SK_HELPER", "SSH_PKCS11_HELPER", "DISPLAY"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    step = worth(sent, f'{WHO} valid-before="20990101",valid-after="20200101" {public(keys["ours"])}\n')
    assert step.data["signer"] == WHO
    assert sign((sent / MANIFEST).read_bytes(), keys["ours"]) == (sent / SIGNATURE).read_bytes()


# Keys.


def taken(key: Path, text: str) -> tuple[str, str]:
    """A few bytes signed with a key: who that is by a list, and the key's fingerprint."""
    who, found = check_signature(b"data", sign(b"data", key), Signers(text.encode(), "list"), "data", "signature")
    return who, found.fingerprint


@pytest.mark.parametrize("name", ["-f", "a b", "-Y sign", "码", "it's\n", "~key", "$(id)"])
def test_a_key_is_where_its_path_says(
    name: str, keys: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(keys["ours"], name)
    Path(name).chmod(0o600)
    assert taken(Path(name), f"{WHO} {public(keys['ours'])}")[0] == WHO


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
@pytest.mark.parametrize("form", ["PEM", "PKCS8"])
def test_an_older_form_of_key_signs_with_its_public_half_beside_it(kind: str, form: str, tmp_path: Path) -> None:
    bits = "1024" if kind == "rsa" else "256"
    key = tmp_path / "key"
    assert ssh_keygen("-q", "-t", kind, "-b", bits, "-m", form, "-N", "", "-f", key).returncode == 0
    assert taken(key, f"{WHO} {public(key)}") == (WHO, fingerprint(key))
    Path(f"{key}.pub").unlink()
    with pytest.raises(Invalid, match=r"is not an OpenSSH key \(a PEM key needs its \.pub beside it\)"):
        sign(b"data", key)


def test_a_key_with_anothers_public_half_beside_it_does_not_sign(keys: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(keys["ours"], tmp_path / "key")
    shutil.copy(f"{keys['theirs']}.pub", tmp_path / "key.pub")
    with pytest.raises(PatchqError) as error:
        sign(b"data", tmp_path / "key")
    assert error.value.exit_code == 5 and str(error.value).startswith(f"{tmp_path}/key: "), str(error.value)


@pytest.mark.parametrize("script", ["echo hello", "echo", "cat $REAL"])
def test_what_is_signed_is_looked_at(
    script: str, keys: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that no host would take leaves this one: also not the signature of something else."""
    real = shutil.which("ssh-keygen")
    (tmp_path / "other").write_bytes(sign(b"other", keys["ours"]))
    monkeypatch.setenv("REAL", str(tmp_path / "other"))
    stand_in(tmp_path / "bin", f'[ "$2" = sign ] || exec {real} "$@"\n{script}', monkeypatch)
    with pytest.raises(Prevented, match="what ssh-keygen signed is not "):
        sign(b"data", keys["ours"])


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs somebody else to be")
def test_a_key_that_cannot_be_read_is_said_to_be_that(world: World, keys: dict[str, Path]) -> None:
    key = Path("/tmp") / f"patchq-test-key-{os.getpid()}"
    shutil.copy(keys["ours"], key)
    code = f"import pathlib, patchq.transfer.signature as it; it.refuse_no_key(pathlib.Path('{key}'))"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", code], cwd="/",
                              env=environ, capture_output=True, text=True, check=False)  # fmt: skip
    finally:
        key.unlink()
    if done.returncode == 127 or "No module named" in done.stderr:
        pytest.skip("this interpreter is not for everybody")
    assert f"Prevented: {key}: the key cannot be read" in done.stderr


@pytest.mark.parametrize("askpass", ["exit 1", "echo wrong", "echo 'hard to guess'"])
def test_a_locked_key_asks_no_terminal(
    askpass: str, keys: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user has put in a terminal's place is asked, as by every tool of OpenSSH."""
    program = tmp_path / "askpass"
    program.write_text(f"#!/bin/sh\n{askpass}\n")
    program.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    if "guess" in askpass:
        assert taken(keys["locked"], f"{WHO} {public(keys['locked'])}")[0] == WHO
    else:
        with pytest.raises(Prevented, match="the key is locked by a passphrase"):
            sign(b"data", keys["locked"])


def certified(key: Path, authority: Path, *more: str) -> Path:
    """A certificate for a key; its path."""
    assert ssh_keygen("-q", "-s", authority, "-I", "id", *more, f"{key}.pub").returncode == 0
    return key.with_name(f"{key.name}-cert.pub")


CERTIFICATES = {
    "good": (("-n", "ada@x,bob@x"), "*@x cert-authority {a}\n", "ada@x"),
    "one of its names": (("-n", "ada@x,bob@x"), "bob@x cert-authority {a}\n", "bob@x"),
    "another's name": (("-n", "ada@x"), "zoe@x cert-authority {a}\n", ""),
    "over": (("-n", "ada@x", "-V", "20200101:20210101"), "*@x cert-authority {a}\n", ""),
    "not yet": (("-n", "ada@x", "-V", "20980101:20990101"), "*@x cert-authority {a}\n", ""),
    "of nobody": ((), "* cert-authority {a}\n", ""),
    "of a machine": (("-n", "ada@x", "-h"), "*@x cert-authority {a}\n", ""),
    "of no authority": (("-n", "ada@x"), "*@x {a}\n", ""),
    "of an authority for other things": (("-n", "ada@x"), '*@x cert-authority,namespaces="git" {a}\n', ""),
    "of another authority": (("-n", "ada@x"), "*@x cert-authority {k}\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_count_as_openssh_says(name: str, keys: dict[str, Path], tmp_path: Path) -> None:
    more, text, who = CERTIFICATES[name]
    key = make_key(tmp_path / "key")
    text = text.format(a=public(keys["theirs"]), k=public(key))
    certificate = certified(key, keys["theirs"], *more)
    if who:
        assert taken(certificate, text) == (who, fingerprint(key))
        return
    with pytest.raises(Refused, match="was signed with ssh-ed25519-cert-v01@") as error:
        taken(certificate, text)
    assert fingerprint(key) in str(error.value)


def sk_signature(folder: Path, data: bytes) -> tuple[str, bytes]:
    """A security key's line for a list and its signature of `data` (PROTOCOL.u2f), made by openssl in its place."""

    def openssl(*words: object) -> bytes:
        return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True).stdout

    openssl("genpkey", "-algorithm", "ed25519", "-out", folder / "sk")
    point = openssl("pkey", "-in", folder / "sk", "-pubout", "-outform", "DER")[-32:]
    kind, application = b"sk-ssh-ed25519@openssh.com", b"ssh:"
    key = field(kind) + field(point) + field(application)
    about = field(b"patchq") + field(b"") + field(b"sha512")
    message = b"SSHSIG" + about + field(hashlib.sha512(data).digest())
    touched_and_count = b"\1" + (7).to_bytes(4, "big")
    asked = hashlib.sha256(application).digest() + touched_and_count + hashlib.sha256(message).digest()
    (folder / "asked").write_bytes(asked)
    made = openssl("pkeyutl", "-sign", "-rawin", "-inkey", folder / "sk", "-in", folder / "asked")
    blob = b"SSHSIG\0\0\0\1" + field(key) + about + field(field(kind) + field(made) + touched_and_count)
    return f"{kind.decode()} {base64.b64encode(key).decode()}", armored(blob)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes what a security key would")
def test_a_security_keys_signature_counts(tmp_path: Path) -> None:
    """The signature is openssl's, in the form of a security key's, for no such key is here; ssh-keygen is the real."""
    line, signature = sk_signature(tmp_path, b"data")
    signers = Signers(f"{WHO} {line}\n".encode(), "list")
    who, found = check_signature(b"data", signature, signers, "data", "signature")
    assert (who, found.kind) == (WHO, "sk-ssh-ed25519@openssh.com")
    again = armored(blob_of(signature)[:-1] + b"\x08")
    with pytest.raises(Refused, match="is not what was signed with sk-ssh-ed25519@"):
        check_signature(b"data", again, signers, "data", "signature")


# A bundle that is there already.


@pytest.mark.parametrize("name", ["of another bundle", "text", "for git"])
def test_a_wrong_signature_that_is_there_already_is_never_shown_as_one(
    name: str, world: World, bare: Path, sent: Path, keys: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With no list, too, that would ask for one."""
    out = shutil.copytree(bare, tmp_path / "bundle")
    wrong = {"of another bundle": (sent / SIGNATURE).read_bytes(), "text": b"hello\n",
             "for git": signature_of(bare, keys["ours"], "git")}  # fmt: skip
    (out / SIGNATURE).write_bytes(wrong[name])
    capsys.readouterr()
    build(world, out)
    said = capsys.readouterr().out
    assert "! signature" in said and "--sign KEY" in said and "✓ signature" not in said
    build(world, out, "--sign", keys["ours"])
    assert f"✓ signature  {SIGNATURE}, with ssh-ed25519 {fingerprint(keys['ours'])}" in capsys.readouterr().out
    assert (out / SIGNATURE).read_bytes() == signature_of(bare, keys["ours"])
    (out / SIGNATURE).unlink()
    assert contents(out) == contents(bare)


def test_of_two_signers_the_last_counts(world: World, bare: Path, keys: dict[str, Path], tmp_path: Path) -> None:
    out = shutil.copytree(bare, tmp_path / "bundle")
    for key in ("ours", "theirs"):
        build(world, out, "--sign", keys[key])
        assert worth(out, f"{WHO} {public(keys[key])}").data["key"].endswith(fingerprint(keys[key]))
