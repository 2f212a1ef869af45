"""Who made a bundle: real OpenSSH keys sign, and a host takes only what somebody signed whom it trusts already."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from signing import WHO, Host, build, fingerprint, forged, make_key, public, signature_of, ssh_keygen
from world import World, contents, git, patchq

from patchq.document import sha256
from patchq.lock import Lock
from patchq.queuejournal import LOCK_NAME
from patchq.store import Store
from patchq.transfer.ancestry import Ancestry, Point, Relation, ancestry_of, relation
from patchq.transfer.manifest import MANIFEST, SIGNATURE, Manifest, write_sums
from patchq.transfer.origin import keep_manifest, trusted_signers
from patchq.transfer.signature import Signature, Signers, check_signature, sign
from patchq.workarea import WorkArea

# Signing.


def test_what_is_signed_is_the_same_bytes_again_and_openssh_alone_can_check_it(
    listing: World, sent: Path, keys: dict[str, Path], tmp_path: Path
) -> None:
    again = build(listing, tmp_path / "again", "--sign", keys["ours"])
    unsigned = build(listing, tmp_path / "unsigned")
    assert contents(again) == contents(sent), "an Ed25519 signature is the same each time, too"
    assert contents(unsigned) == {name: file for name, file in contents(sent).items() if name != SIGNATURE}
    (tmp_path / "list").write_text(f"{WHO} {public(keys['ours'])}\n")
    words = (sent / "INSTRUCTIONS.txt").read_text().replace("\n#   ", "\n")
    typed = words[words.index("ssh-keygen -Y find") : words.index("# Where patchq can run")]
    typed = "set -e; " + typed.replace("ALLOWED_SIGNERS", str(tmp_path / "list")).replace("WHO", WHO)

    def by_hand(folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", typed], cwd=folder, capture_output=True, text=True, check=False)

    done = by_hand(sent)
    assert done.returncode == 0 and WHO in done.stdout and 'Good "patchq" signature' in done.stdout, done.stderr
    for path in ("series/alpha/series", MANIFEST, "git/alpha.bundle"):
        moved = shutil.copytree(sent, tmp_path / f"moved-{path.replace('/', '-')}")
        (moved / path).write_bytes((moved / path).read_bytes() + b"\n")
        write_sums(moved)
        assert by_hand(moved).returncode != 0, path


def test_a_bundle_that_is_there_is_signed_later(
    listing: World, keys: dict[str, Path], sent: Path, tmp_path: Path
) -> None:
    out = build(listing, tmp_path / "bundle")
    assert build(listing, out, "--sign", keys["ours"]) == out
    assert contents(out) == contents(sent)
    by_hand = build(listing, tmp_path / "by-hand")
    assert ssh_keygen("-Y", "sign", "-n", "patchq", "-f", keys["ours"], by_hand / MANIFEST).returncode == 0
    assert contents(by_hand) == contents(sent)


@pytest.mark.fault
def test_the_tar_carries_the_signature(listing: World, keys: dict[str, Path], tmp_path: Path, host: Host) -> None:
    build(listing, tmp_path / "b", "--sign", keys["ours"], "--tar")
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    code, said = host.apply(tmp_path / "b.tar")
    assert code == 4 and f"by {WHO} with ssh-ed25519 {fingerprint(keys['ours'])}" in said


@pytest.fixture
def agent(tmp_path: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent that holds a key whose file is gone; the `.pub` that is left."""
    if not shutil.which("ssh-agent"):
        pytest.skip("there is no ssh-agent here")
    socket = tmp_path / "agent"
    child = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline()
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    key = make_key(tmp_path / "held")
    subprocess.run(["ssh-add", "-q", str(key)], check=True)
    key.unlink()
    try:
        yield Path(f"{key}.pub")
    finally:
        child.terminate()
        child.wait()


def checked(key: Path, text: str) -> tuple[str, Signature]:
    """A few bytes signed with a key, and who that is by a list."""
    return check_signature(b"data", sign(b"data", key), Signers(text.encode(), "list"), "data", "signature")


def test_an_agents_key_signs_by_its_public_half(agent: Path) -> None:
    assert checked(agent, f"{WHO} {agent.read_text()}")[0] == WHO


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_key_sign_as_well(kind: str, tmp_path: Path) -> None:
    key = make_key(tmp_path / kind, kind, bits="1024" if kind == "rsa" else "256")
    who, found = checked(key, f"# people\n*@example.org,!x@example.org {public(key)}\n")
    assert who == "*@example.org" and found.fingerprint == fingerprint(key)


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        ("none", 2, "none: there is no such key (a private key, or its .pub where an agent holds it)"),
        ("locked", 5, "locked: the key is locked by a passphrase (give it to an agent with ssh-add, and sign"),
        ("text", 2, "text: is not an OpenSSH key"),
        ("lone.pub", 5, "lone.pub: no agent holds this key (run: ssh-add, or name the private key)"),
        ("open", 5, "open: others can read the key, so that ssh-keygen does not use it (chmod 600)"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_sign_is_one_line(
    key: str, code: int, said: str, keys: dict[str, Path], world: World, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("SSH_ASKPASS", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    shutil.copy(keys["locked"], tmp_path / "locked")
    shutil.copy(f"{keys['ours']}.pub", tmp_path / "lone.pub")
    shutil.copy(keys["ours"], tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "text").write_text("no key\n")
    out = tmp_path / "out/bundle"
    assert patchq("bundle", "--target", "blind", "--out", out, "--queue", world.root, "--sign", tmp_path / key) == code
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith(f"error: {tmp_path}/{said}"), err
    assert not out.exists() and not list(tmp_path.glob("out/.*"))


def test_a_bundle_that_its_own_list_would_refuse_is_built_with_a_warning(
    listing: World, keys: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(listing, tmp_path / "one")
    assert "! signature  none, and the queue's signers asks for one" in capsys.readouterr().out
    build(listing, tmp_path / "two", "--sign", keys["theirs"])
    assert "which the queue's signers does not allow" in capsys.readouterr().out


# What a host takes.


@pytest.mark.fault
def test_what_somebody_signed_whom_the_user_trusts_is_taken_and_recorded(
    sent: Path, keys: dict[str, Path], host: Host
) -> None:
    host.trusts(f"# our people\n\n{WHO} {public(keys['ours'])}\n")
    code, said = host.apply(sent)
    assert code == 4 and f"✓ signature  by {WHO} with ssh-ed25519 {fingerprint(keys['ours'])}" in said
    (record,) = host.work.glob("records/*/record.json")
    (step,) = [step for step in json.loads(record.read_bytes())["steps"] if step["name"] == "signature"]
    assert (step["data"]["signer"], step["data"]["list"]) == (WHO, str(host.list))


def _lists(keys: dict[str, Path]) -> dict[str, tuple[str, str]]:
    ours, theirs = public(keys["ours"]), public(keys["theirs"])
    return {
        "unknown": (f"{WHO} {theirs}\n", "does not allow"),
        "expired": (f'{WHO} valid-before="20200101" {ours}\n', "the key has expired (valid-before 2020-01-01T00:00"),
        "early": (f'{WHO} valid-after="20990101" {ours}\n', "the key is not yet valid (valid-after 2099-01-01T00:00"),
        "elsewhere": (f'{WHO} namespaces="git" {ours}\n', "which may not sign for 'patchq'"),
        "empty": ("", "does not allow"),
        "garbage": ("what is\x00this\n", "does not allow"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["unknown", "expired", "early", "elsewhere", "empty", "garbage"])
def test_a_key_that_the_list_does_not_allow_now_and_for_this_is_refused(
    name: str, sent: Path, keys: dict[str, Path], host: Host
) -> None:
    text, said = _lists(keys)[name]
    host.trusts(text)
    host.refuses(sent, SIGNATURE, f"was signed with ssh-ed25519 {fingerprint(keys['ours'])}", said, str(host.list))


def _unsigned(bundle: Path, folder: Path, keys: dict[str, Path]) -> Path:
    moved = shutil.copytree(bundle, folder)
    (moved / SIGNATURE).unlink()
    return moved


def _resigned(namespace: str, key: str) -> Callable[[Path, Path, dict[str, Path]], Path]:
    def change(bundle: Path, folder: Path, keys: dict[str, Path]) -> Path:
        moved = shutil.copytree(bundle, folder)
        (moved / SIGNATURE).write_bytes(signature_of(bundle, keys[key], namespace))
        return moved

    return change


def _with_signature(data: bytes) -> Callable[[Path, Path, dict[str, Path]], Path]:
    def change(bundle: Path, folder: Path, keys: dict[str, Path]) -> Path:
        moved = shutil.copytree(bundle, folder)
        (moved / SIGNATURE).write_bytes(data or (bundle / SIGNATURE).read_bytes()[:-90] + b"\n")
        return moved

    return change


def _forged(bundle: Path, folder: Path, keys: dict[str, Path]) -> Path:
    return forged(bundle, folder)


WRONG: dict[str, tuple[Callable[[Path, Path, dict[str, Path]], Path], str]] = {
    "unsigned": (_unsigned, f"{MANIFEST}: is not signed, and "),
    "forged": (_forged, f"{MANIFEST}: is not what was signed with ssh-ed25519"),
    "other key": (_resigned("patchq", "theirs"), f"{SIGNATURE}: was signed with ssh-ed25519"),
    "other namespace": (_resigned("git", "ours"), f"{SIGNATURE}: was made for 'git', not for 'patchq'"),
    "empty": (_with_signature(b"\n"), f"{SIGNATURE}: is not an OpenSSH signature"),
    "text": (_with_signature(b"hello\n" * 9), f"{SIGNATURE}: is not an OpenSSH signature"),
    "cut": (_with_signature(b""), f"{SIGNATURE}: is not an OpenSSH signature"),
    "big": (_with_signature(b"x" * (1 << 17)), f"{SIGNATURE}: has 131072 bytes"),
}
ANCHORS = ("user", "host.yaml", "queue in use", "bundle")


@pytest.mark.parametrize(
    "anchor", [one if one != "queue in use" else pytest.param(one, marks=pytest.mark.fault) for one in ANCHORS]
)
def test_what_is_not_signed_as_it_should_be_is_refused_whoever_asks_for_it(
    anchor: str, sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    """The bundle's own list is the last that is asked: it finds mistakes, and no forger."""
    text = f"{WHO} {public(keys['ours'])}\n"
    if anchor == "user":
        host.trusts(text)
    elif anchor == "host.yaml":
        host.work.mkdir()
        (host.work / "host.yaml").write_text("allowed_signers: list\n")
        (host.work / "list").write_text(text)
    elif anchor == "queue in use":
        assert host.apply(sent)[0] == 4
    for name, (change, said) in WRONG.items():
        host.refuses(change(sent, tmp_path / name, keys), said)


@pytest.mark.fault
def test_a_first_bundle_vouches_for_itself_and_says_so(sent: Path, keys: dict[str, Path], host: Host) -> None:
    code, said = host.apply(sent)
    assert code == 4 and "! signature" in said and "for whom only the bundle itself vouches" in said
    assert str(host.list) in said


@pytest.mark.fault
def test_the_list_in_use_counts_and_not_the_one_that_a_forger_sends(
    world: World, sent: Path, bare: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    """A forger's queue names the forger, or nobody."""
    assert host.apply(sent)[0] == 4
    host.refuses(bare, "is not signed, and the queue's signers of the lock")
    forger = world.copy(tmp_path / "forger")
    text = (forger.root / "targets/blind.yaml").read_text()
    forger.write({"targets/blind.yaml": f"{text}allowed_signers: s\n", "s": f"{WHO} {public(keys['theirs'])}\n"})
    out = build(forger.locked(), tmp_path / "theirs", "--sign", keys["theirs"])
    host.refuses(out, "was signed with ssh-ed25519", "which the queue's signers of the lock", "in use does not allow")
    (tmp_path / "elsewhere").mkdir()
    text = (forger.root / "targets/blind.yaml").read_text().replace("${WORK:-work}", str(tmp_path / "elsewhere"))
    forger.write({"targets/blind.yaml": text}).locked()
    away = build(forger, tmp_path / "away", "--sign", keys["theirs"])
    host.refuses(away, "in use does not allow")
    assert not list((tmp_path / "elsewhere").iterdir()), "another work area is no way around it"


@pytest.mark.fault
def test_the_users_list_comes_before_host_yaml_and_that_before_the_queue_in_use(
    sent: Path, host: Host, tmp_path: Path
) -> None:
    area = WorkArea(host.work)
    assert trusted_signers(area, "blind") is None
    assert host.apply(sent)[0] == 4
    in_use = trusted_signers(area, "blind")
    assert in_use and in_use.where.startswith("the queue's signers of the lock ")
    assert in_use.data == (sent / "series/signers").read_bytes()
    assert trusted_signers(area, "another") is None
    (host.work / "host.yaml").write_text(f"allowed_signers: {tmp_path}/list\n")
    (tmp_path / "list").write_text("the host's")
    assert trusted_signers(area, "blind") == Signers(b"the host's", f"{tmp_path}/list")
    host.trusts("the user's")
    assert trusted_signers(area, "blind") == Signers(b"the user's", str(host.list))
    host.list.unlink()
    elsewhere = WorkArea(tmp_path / "elsewhere")
    assert trusted_signers(elsewhere, "blind") == Signers(b"the host's", f"{tmp_path}/list"), "as it was applied there"


@pytest.mark.fault
def test_signers_change_with_a_bundle_that_the_ones_before_signed(
    listing: World, sent: Path, keys: dict[str, Path], host: Host, tmp_path: Path
) -> None:
    heirs = listing.copy(tmp_path / "heirs")
    heirs.write({"signers": f"heir@example.org {public(keys['theirs'])}\n"}).locked()
    handed = build(heirs, tmp_path / "handed", "--sign", keys["ours"])
    assert host.apply(sent)[0] == 4
    later = shutil.copytree(handed, tmp_path / "later")
    (later / SIGNATURE).write_bytes(signature_of(handed, keys["theirs"]))
    host.refuses(later, "does not allow")
    assert host.apply(handed)[0] == 4
    host.refuses(handed, "does not allow")
    assert "by heir@example.org" in host.apply(later)[1]


@pytest.mark.fault
def test_a_queue_in_use_that_was_changed_gives_no_list(sent: Path, keys: dict[str, Path], host: Host) -> None:
    assert host.apply(sent)[0] == 4
    (signers,) = host.work.glob("queue/*/series/signers")
    signers.write_text(f"{WHO} {public(keys['theirs'])}\n")
    code, said = host.apply(sent)
    assert code == 1 and f"{signers}: does not have the digest" in said


def test_a_list_that_is_named_and_not_there_is_an_error(sent: Path, host: Host, own: World) -> None:
    host.work.mkdir()
    (host.work / "host.yaml").write_text("allowed_signers: nowhere\n")
    host.refuses(sent, f"{host.work}/nowhere: there is no such file", code=2)
    text = (own.root / "targets/blind.yaml").read_text()
    own.write({"targets/blind.yaml": f"{text}allowed_signers: targets/blind.yml\n"})
    assert patchq("lock", "--queue", own.root) == 2
    own.write({"targets/blind.yaml": f"{text}allowed_signers: ../signers\n"})
    assert patchq("lock", "--queue", own.root) == 2


@pytest.mark.fault
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs somebody else to be")
def test_a_list_that_cannot_be_read_is_no_empty_one(sent: Path, tmp_path: Path, host: Host) -> None:
    home = Path("/tmp") / f"patchq-test-{os.getpid()}"
    shutil.copytree(sent, home / "bundle")
    (home / "config/patchq").mkdir(parents=True)
    (home / "config").chmod(0o700)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "WORK": str(home / "w"),
               "XDG_CONFIG_HOME": str(home / "config"), "HOME": str(home)}  # fmt: skip
    argv = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "patchq", "apply", "--target", "blind",
            "--bundle", str(home / "bundle")]  # fmt: skip
    try:
        done = subprocess.run(argv, cwd="/", env=environ, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(home)
    last = done.stderr.splitlines()[-1]
    if done.returncode == 127 or "No module named" in done.stderr or "ermission denied: " in last:
        pytest.skip("this interpreter is not for everybody")
    assert done.returncode == 5 and f"{home}/config/patchq/allowed_signers: cannot be read: " in done.stderr, (
        done.stderr
    )


# ssh-keygen itself. Releases before 8.2 cannot be had here: these stand-ins say what they say.

OLD = {
    "none": "",
    "8.0": "echo 'ssh-keygen: unknown option -- Y' >&2; echo 'usage: ssh-keygen [-q]' >&2; exit 1",
    "8.1": """[ "$2" = find-principals ] || exec "$REAL" "$@"
              echo 'Unsupported operation for -Y: "find-principals"' >&2; exit 1""",
}  # fmt: skip


@pytest.mark.parametrize("release", OLD)
def test_without_a_good_ssh_keygen_it_is_one_line_and_exit_5(
    release: str,
    world: World,
    sent: Path,
    keys: dict[str, Path],
    host: Host,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("REAL", str(shutil.which("ssh-keygen")))
    for name in ("git", "sh"):
        (folder / name).symlink_to(str(shutil.which(name)))
    if OLD[release]:
        (folder / "ssh-keygen").write_text(f"#!/bin/sh\n{OLD[release]}\n")
        (folder / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    expected = "is too old for signatures; OpenSSH 8.2" if OLD[release] else "there is no ssh-keygen here"
    host.trusts(f"{WHO} {public(keys['ours'])}\n")
    host.refuses(sent, expected, code=5)
    if release != "8.1":
        argv = ("bundle", "--target", "blind", "--out", tmp_path / "b", "--queue", world.root, "--sign", keys["ours"])
        assert patchq(*argv) == 5
        assert not (tmp_path / "b").exists()
    host.list.unlink()


def test_without_ssh_keygen_what_asks_for_no_signature_is_taken(
    bare: Path, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, said = host.apply(bare)
    assert code == 4 and "· signature  none, and none is due" in said


# How old a bundle is.


class Dated:
    """A queue in a git repository: just its lock, which is all that says what came before what."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self._store, self.lock = folder, store, lock_of("first")
        (folder / "series").mkdir(parents=True)
        self.git("init", "-q", "-b", "main", ".")

    def git(self, *words: str) -> str:
        return git(self.folder, *words)

    def write(self, text: str) -> Point:
        """Another lock, not committed."""
        self.lock = lock_of(text)
        (self.folder / "series" / LOCK_NAME).write_bytes(self.lock.to_bytes())
        return self.point()

    def commit(self, text: str) -> Point:
        """Another lock, committed; every commit here bears one and the same date."""
        self.write(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a step")
        return self.point()

    def point(self) -> Point:
        return Point(self.lock.digest, ancestry_of(self.folder / "series", self.lock, self._store))


def lock_of(text: str) -> Lock:
    return Lock(queue="q", files={"file": sha256(text.encode())}, selections={})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store") / "store")


@pytest.fixture
def dated(store: Store, tmp_path: Path) -> Dated:
    return Dated(tmp_path / "dated queue", store)


def test_newer_same_older_and_parted_by_history_alone(dated: Dated) -> None:
    first, second, third = dated.commit("one"), dated.commit("two"), dated.commit("three")
    assert [point.ancestry and point.ancestry.generation for point in (first, second, third)] == [1, 2, 3]
    for old, new in ((first, second), (second, third), (first, third)):
        assert relation(new, old) is Relation.NEWER and relation(old, new) is Relation.OLDER
    assert all(relation(point, point) is Relation.SAME for point in (first, second, third))
    dated.git("checkout", "-q", "-b", "side", "HEAD~1")
    side = dated.commit("side")
    assert relation(side, third) is relation(third, side) is Relation.PARTED
    dated.git("checkout", "-q", "main")
    dated.git("merge", "-q", "-s", "ours", "--no-commit", "side")
    joined = dated.commit("joined")
    assert all(relation(point, joined) is Relation.OLDER for point in (first, second, third, side))


def test_what_a_lock_descends_from_is_the_same_before_its_commit_and_after(dated: Dated) -> None:
    assert dated.write("one").ancestry == Ancestry(generation=1) == dated.commit("one").ancestry
    assert dated.write("two") == dated.commit("two")
    (dated.folder / "README").write_text("no part of it")
    dated.git("add", "-A")
    dated.git("commit", "-q", "-m", "a step")
    assert dated.point() == dated.write("two")


def test_a_change_taken_back_does_not_make_new_what_was_in_between(dated: Dated) -> None:
    """One lock, two times; whoever kept a bundle of the time in between cannot turn a host back to it."""
    first, between, back = dated.commit("one"), dated.commit("a mistake"), dated.commit("one")
    assert first.lock == back.lock
    assert relation(back, between) is Relation.NEWER and relation(between, back) is Relation.OLDER
    assert relation(first, between) is Relation.OLDER and relation(between, first) is Relation.NEWER


def test_of_two_pasts_of_one_lock_the_longer_is_kept(dated: Dated, tmp_path: Path) -> None:
    """Else the first bundle, sent again, would make the one in between new."""
    area = WorkArea(tmp_path / "work")
    points = dated.commit("one"), dated.commit("a mistake"), dated.commit("one")
    area.queue(points[0].lock).mkdir(parents=True)
    for number in (2, 0):
        manifest = Manifest(patchq="0", queue="q", target="t", lock=points[0].lock, ancestry=points[number].ancestry)
        keep_manifest(manifest, area)
        kept = json.loads((area.queue(points[0].lock) / MANIFEST).read_bytes())
        assert kept["ancestry"]["generation"] == 3


def test_where_not_all_is_known_nothing_is_made_up(dated: Dated, store: Store, tmp_path: Path) -> None:
    first, second = dated.commit("one"), dated.commit("two")
    other = Point(lock_of("stranger").digest, None)
    assert relation(other, second) is relation(second, other) is Relation.UNKNOWN
    assert relation(Point(first.lock, None), second) is Relation.OLDER
    assert relation(second, Point(first.lock, None)) is Relation.NEWER
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{dated.folder}", "shallow")
    shallow = Point(second.lock, ancestry_of(tmp_path / "shallow/series", lock_of("two"), store))
    assert shallow.ancestry and not shallow.ancestry.whole
    assert relation(shallow, first) is Relation.UNKNOWN
    (tmp_path / "alone/series").mkdir(parents=True)
    assert ancestry_of(tmp_path / "alone/series", lock_of("two"), store) is None


def test_what_a_long_history_puts_into_a_manifest_is_bounded(dated: Dated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchq.transfer.ancestry.MAX_LOCKS", 2)
    points = [dated.commit(str(number)) for number in range(5)]
    last = points[-1].ancestry
    assert last == Ancestry(generation=5, locks=(points[3].lock, points[2].lock), whole=False)
    assert relation(points[0], points[-1]) is Relation.UNKNOWN


@pytest.mark.fault
def test_a_host_takes_what_is_newer_and_what_is_older_only_by_a_word(world: World, host: Host, tmp_path: Path) -> None:
    queue = world.copy(tmp_path / "queue")
    git(queue.root.parent, "init", "-q", "-b", "main", ".")
    sent = []
    for text in (None, "one"):
        if text:
            queue.write({"alpha/tests/note.txt": text}).locked()
        git(queue.root.parent, "add", "series")
        git(queue.root.parent, "commit", "-q", "-m", "a step")
        sent.append(build(queue, tmp_path / f"sent/{text}"))
    old, new = sent
    assert host.apply(new)[0] == 4
    host.refuses(old, f"{MANIFEST}: lock ", "is older than the lock ", " in use since 20", "--allow-older")
    code, said = host.apply(old, "--allow-older")
    assert code == 4 and "! age" in said and "is older than" in said
    code, said = host.apply(new)
    assert code == 4 and "✓ age" in said and "is newer than the lock" in said


@pytest.mark.fault
def test_that_there_is_no_history_is_said_on_both_sides(
    bare: Path, sent: Path, world: World, host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build(world, tmp_path / "other")
    assert "· age  the queue is in no git repository: no host can tell" in capsys.readouterr().out
    assert host.apply(bare)[0] == 4
    code, said = host.apply(sent)
    assert code == 4 and "· age" in said and "may be older than the lock" in said and "no git history" in said


def test_allow_older_is_about_bundles(own: World, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("apply", "install"):
        assert patchq(verb, "--target", "blind", "--allow-older", "--queue", own.root) == 2
        assert "--allow-older is about a bundle (say --bundle, too)" in capsys.readouterr().err
