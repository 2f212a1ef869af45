"""The check that comes before anything else looks at a bundle: whatever was changed is found and named."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from patchq.document import Invalid, sha256
from patchq.errors import PatchqError, Refused
from patchq.transfer.manifest import MANIFEST, SUMS, CarriedCommit, Manifest, check_bundle, format_sums, write_sums


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of less than a kilobyte, with a name that is not ASCII."""
    folder = tmp_path_factory.mktemp("tiny") / "bundle"
    files = {"git/a.bundle": b"PACK\0\xff", "series/x": b"", "series/ü": b"\n"}
    manifest = Manifest(
        patchq="0",
        queue="q",
        target="t",
        lock="0" * 64,
        commits=(CarriedCommit(path="git/a.bundle", commit="1" * 40),),
        files={path: sha256(data) for path, data in files.items()},
    )
    files[MANIFEST] = manifest.to_bytes()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    write_sums(folder)
    return folder


@pytest.fixture
def changed(tiny: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny, tmp_path / "bundle")


def refusal(folder: Path) -> str:
    """What `check_bundle` says against a bundle; its answer has to be 'no'."""
    with pytest.raises(PatchqError) as caught:
        check_bundle(folder)
    assert isinstance(caught.value, Refused), caught.value
    return str(caught.value)


def test_a_whole_bundle_passes_and_sha256sum_agrees(tiny: Path) -> None:
    assert check_bundle(tiny).target == "t"
    assert os.system(f"cd {tiny} && sha256sum --quiet --strict -c {SUMS}") == 0


def test_every_byte_flipped_in_any_file_is_found_and_the_file_named(changed: Path) -> None:
    """One bit of each byte in turn, so that each bit has its turn, too; in the sums also the one that ends ASCII."""
    for path in sorted(path for path in changed.rglob("*") if path.is_file()):
        name, whole = path.relative_to(changed).as_posix(), path.read_bytes()
        for at in range(len(whole)):
            for bit in {at % 8, 7} if name == SUMS else {at % 8}:
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
                said = refusal(changed)
                assert name in said or name == SUMS, (name, at, bit, said)
        path.write_bytes(whole)
    check_bundle(changed)


def test_every_cut_and_every_added_byte_is_found(changed: Path) -> None:
    for path in sorted(path for path in changed.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for data in (whole[:-1], whole + b"\0", whole + b"\n", b""):
            if data != whole:
                path.write_bytes(data)
                assert refusal(changed)
        path.write_bytes(whole)


def _twin(folder: Path) -> None:
    (folder / "series/X").write_bytes(b"")
    write_sums(folder)


def _hidden(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/config").touch()


def _swapped(folder: Path) -> None:
    (folder / "series/x").write_bytes((folder / "series/ü").read_bytes())


def _link(folder: Path) -> None:
    (folder / "series/x").unlink()
    (folder / "series/x").symlink_to("ü")


def _folder_link(folder: Path) -> None:
    (folder / "git").rename(folder.parent / "elsewhere")
    (folder / "git").symlink_to(folder.parent / "elsewhere")


def _fifo(folder: Path) -> None:
    (folder / "series/x").unlink()
    os.mkfifo(folder / "series/x")


def _unlisted_carried(folder: Path) -> None:
    (folder / "git/b.bundle").write_bytes(b"")
    write_sums(folder)


def _gone_from_both(folder: Path) -> None:
    (folder / "git/a.bundle").unlink()
    write_sums(folder)


def _sums_as_link(folder: Path) -> None:
    (folder / SUMS).rename(folder.parent / SUMS)
    (folder / SUMS).symlink_to(folder.parent / SUMS)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda folder: (folder / "series/x").unlink(), "series/x: is listed but not there"),
    "missing sums": (lambda folder: (folder / SUMS).unlink(), f"{SUMS}: is missing"),
    "missing manifest": (lambda folder: (folder / MANIFEST).unlink(), f"{MANIFEST}: is listed but not there"),
    "unlisted": (lambda folder: (folder / "more").write_bytes(b""), "more: is there but not listed"),
    "hidden": (_hidden, ".git/config: is there but not listed"),
    "renamed": (lambda folder: (folder / "series/x").rename(folder / "series/y"), "series/y: is there but not listed"),
    "other case": (lambda folder: (folder / "series/x").rename(folder / "series/X"), "series/X: is there but not"),
    "case twin": (_twin, "differs from series/X in case only"),
    "link": (_link, "series/x: is not a plain file"),
    "folder link": (_folder_link, "git: is not a plain file"),
    "sums as link": (_sums_as_link, f"{SUMS}: is not a plain file"),
    "fifo": (_fifo, "series/x: is not a plain file"),
    "not in the manifest": (_unlisted_carried, "git/b.bundle: MANIFEST.json and the folder do not agree"),
    "in the manifest only": (_gone_from_both, "git/a.bundle: MANIFEST.json and the folder do not agree"),
    "swapped": (_swapped, "series/x: does not have the SHA-256"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_way_of_changing_a_bundle_is_named(changed: Path, name: str) -> None:
    change, expected = CHANGES[name]
    change(changed)
    assert expected in refusal(changed)


LINES = {
    "leads out": f"{'0' * 64}  ../x\n",
    "absolute": f"{'0' * 64}  /etc/passwd\n",
    "into git": f"{'0' * 64}  .git/config\n",
    "binary mark": f"{'0' * 64} *series/x\n",
    "escaped": f"\\{'0' * 64}  a\\nb\n",
    "upper case": f"{'A' * 64}  series/x\n",
    "short": f"{'0' * 63}  series/x\n",
    "carriage return": f"{'0' * 64}  series/x\r\n",
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_the_sums_that_patchq_does_not_write_is_refused(changed: Path, name: str) -> None:
    sums = (changed / SUMS).read_text()
    (changed / SUMS).write_text(sums + LINES[name])
    assert refusal(changed)


def test_a_line_twice_or_in_another_order_is_refused(changed: Path) -> None:
    rows = (changed / SUMS).read_text().splitlines(keepends=True)
    (changed / SUMS).write_text("".join([*rows, rows[0]]))
    assert "cannot read the line" in refusal(changed)
    (changed / SUMS).write_text("".join(reversed(rows)))
    assert "is not in the form that patchq writes" in refusal(changed)


def test_all_that_is_wrong_is_said_at_once(changed: Path) -> None:
    (changed / "series/x").unlink()
    (changed / "more").touch()
    (changed / "git/a.bundle").write_bytes(b"other")
    said = refusal(changed)
    assert all(name in said for name in ("series/x", "more", "git/a.bundle"))


def test_names_that_are_no_text_are_summed_and_refused_like_others_that_the_manifest_lacks(changed: Path) -> None:
    os.close(os.open(os.fsencode(changed) + b"/series/\xff", os.O_CREAT))
    assert "is there but not listed" in refusal(changed)
    write_sums(changed)
    assert f"{MANIFEST} and {SUMS} do not agree on it" in refusal(changed)


def test_a_manifest_of_another_kind_is_named_with_its_key(changed: Path) -> None:
    (changed / MANIFEST).write_bytes((changed / MANIFEST).read_bytes().replace(b'"queue"', b'"quewe"'))
    write_sums(changed)
    with pytest.raises(Invalid, match="did you mean 'queue'"):
        check_bundle(changed)


def test_no_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no such folder"):
        check_bundle(tmp_path / "nothing")


def test_sums_are_in_the_order_of_their_paths() -> None:
    names = [f"{chr(97 + n)}/{random.Random(n).random()}" for n in range(9)]
    sums = {name: sha256(name.encode()) for name in random.Random(0).sample(names, len(names))}
    rows = format_sums(sums).decode().splitlines()
    assert [row.split("  ")[1] for row in rows] == sorted(names)
