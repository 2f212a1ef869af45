"""The installed sink on real environments: found, changed, recorded, taken back, and killed on the way."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import venv
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256 as sha256_of
from pathlib import Path
from tempfile import TemporaryDirectory

import pip
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toyenv import customize

from patchq.document import sha256
from patchq.errors import Invalid, PatchqError, Prevented, Refused
from patchq.installed import (
    FileChange,
    Installation,
    journal,
    locate,
    place,
    recordfile,
    roll_forward,
    state,
    take_back,
)

VERSION = "1.2+vendor.1"
FILES = {
    "toolbox/__init__.py": b"NAME = 'toolbox'\n",
    "toolbox/ops/__init__.py": b"",
    "toolbox/ops/adam.py": b"BIAS = 'required'\r\n",
    "toolbox/ops/tool.py": b"#!/usr/bin/env python\nKIND = 'script'\n",
    "toolbox/old/__init__.py": b"",
    "toolbox/old/gone.py": b"GONE = False\n",
    "toolbox/a, b.txt": b"a name for which RECORD needs quotes\n",
}
ADAM = "toolbox/ops/adam.py"


def changes() -> list[FileChange]:
    """One of each kind: an edit, a new mode, a new file in a new folder, a folder that goes."""
    return [
        FileChange(ADAM, sha256(FILES[ADAM]), b"BIAS = 'optional'\r\n"),
        FileChange("toolbox/ops/tool.py", sha256(FILES["toolbox/ops/tool.py"]), FILES["toolbox/ops/tool.py"], 0o755),
        FileChange("toolbox/a, b.txt", sha256(FILES["toolbox/a, b.txt"]), b"quoted\n"),
        FileChange("toolbox/new/deep/中.py", None, b"NEW = 1\n"),
        FileChange("toolbox/old/__init__.py", sha256(b""), None),
        FileChange("toolbox/old/gone.py", sha256(FILES["toolbox/old/gone.py"]), None),
    ]


# What `pip --python` does, for several commands in one process: the interpreter's own packages, another's pip.
PIP = """
import json, sys
from importlib.machinery import PathFinder
class Pip:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [sys.argv[1]], target) if name == "pip" else None
sys.meta_path.insert(0, Pip)
from pip._internal.cli.main import main
sys.exit(any([main(["--isolated", "--disable-pip-version-check", *argv]) for argv in json.loads(sys.argv[2])]))
"""


def run_pip(python: Path, *commands: Sequence[str]) -> str:
    home = Path(pip.__file__).parents[1]
    argv = [str(python), "-I", "-c", PIP, str(home), json.dumps(commands)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(wheel: Path) -> list[str]:
    return ["install", "--no-index", "--no-deps", str(wheel)]


def digest_of(data: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(sha256_of(data).digest()).rstrip(b"=").decode()


def build_wheel(folder: Path, version: str = VERSION) -> Path:
    info = f"toolbox-{version}.dist-info"
    contents = {
        **FILES,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: toolbox\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"toolbox-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive, archive.open(f"{info}/RECORD", "w") as stream:
        rows = [f'"{name}",{digest_of(data)},{len(data)}\n' for name, data in contents.items()]
        stream.write("".join([*rows, f"{info}/RECORD,,\n"]).encode())
    with zipfile.ZipFile(path, "a") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    run_pip(folder / "bin/python", install(wheel))
    return folder


@pytest.fixture
def python(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "venv", symlinks=True)) / "bin/python"


@pytest.fixture(scope="session")
def located(pristine: Path) -> Installation:
    return locate(pristine / "bin/python", {}, "toolbox")


@pytest.fixture
def installation(python: Path, pristine: Path, located: Installation) -> Installation:
    """What `locate` says of this test's own copy, without asking again."""
    here = python.parent.parent
    root = here / located.root.relative_to(pristine)
    record = here / located.record.relative_to(pristine)
    return replace(located, root=root, record=record, python=str(python))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A journal's folder in the work area."""
    return tmp_path / "work" / "journals" / "toolbox"


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every name below `root` with its permissions and bytes."""
    found = {}
    for path in root.rglob("*"):
        data = b"" if path.is_dir() else path.read_bytes()
        found[path.relative_to(root).as_posix()] = (stat.S_IMODE(path.lstat().st_mode), data)
    return found


def drop_compiled(root: Path) -> None:
    for cache in list(root.rglob("__pycache__")):
        shutil.rmtree(cache)


def imported(python: Path, what: str, **environment: str) -> str:
    argv = [str(python), "-c", f"import importlib; print(eval({what!r}, {{'m': importlib.import_module}}))"]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def rows_of(installation: Installation) -> dict[str, list[str]]:
    with installation.record.open(newline="") as stream:
        return {row[0]: row[1:] for row in csv.reader(stream)}


# --- locate ----------------------------------------


def test_locate_says_where_and_which(python: Path, installation: Installation) -> None:
    found = locate(python, {}, "Toolbox")
    assert found == replace(installation, distribution="Toolbox")
    assert (found.version, found.editable, found.shadowed) == (VERSION, False, {})
    assert found.record == found.root / f"toolbox-{VERSION}.dist-info" / "RECORD"
    assert found.root.name == "site-packages" and found.root.is_relative_to(python.parent.parent)


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_the_probe_answers_on_every_python(minor: int, installation: Installation) -> None:
    other = shutil.which(f"python3.{minor}")
    environment = {"PYTHONPATH": str(installation.root), "PATH": os.environ["PATH"]}
    if not other or subprocess.run([other, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no Python 3.{minor} here")
    assert locate(Path(other), environment, "toolbox").record == installation.record


def test_an_absent_distribution_is_refused(python: Path) -> None:
    with pytest.raises(Refused, match=r"absent is not installed there .*work copy"):
        locate(python, {}, "absent")


def test_an_editable_install_is_refused(installation: Installation, python: Path) -> None:
    url = installation.record.with_name("direct_url.json")
    url.write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    with pytest.raises(Refused, match=r"is an editable install .*work copy"):
        locate(python, {}, "toolbox")
    url.unlink()
    (installation.root / "Toolbox.egg-link").write_text("/src\n.\n")
    with pytest.raises(Refused, match="is an editable install"):
        locate(python, {}, "toolbox")


def test_no_record_is_refused(installation: Installation, python: Path) -> None:
    installation.record.unlink()
    with pytest.raises(Refused, match=r"has no RECORD.*work copy"):
        locate(python, {}, "toolbox")


def test_two_copies_on_the_path_are_refused(installation: Installation, python: Path, tmp_path: Path) -> None:
    shutil.copytree(installation.root, tmp_path / "other")
    with pytest.raises(Refused, match=r"is there 2 times: .*other.*work copy"):
        locate(python, {"PYTHONPATH": str(tmp_path / "other")}, "toolbox")
    (tmp_path / "same").symlink_to(installation.root)
    assert locate(python, {"PYTHONPATH": str(tmp_path / "same")}, "toolbox").root == installation.root


def with_read_only(folder: Path, call: str) -> str:
    """What a child prints, or how it ends, that makes `call` while `folder` is mounted read-only (root writes through
    mode bits)."""
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 77; shift; exec "$@"'
    code = f"from pathlib import *; from patchq.installed import *; print({call})"
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", str(folder), sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(journal.__file__).parents[2])}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount can be made read-only here")
    return done.stdout + done.stderr


@pytest.mark.fault
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a folder read-only")
def test_a_read_only_place_is_read_and_not_changed(installation: Installation, kept: Path, python: Path) -> None:
    """`verify` only reads; `apply` says what to do instead."""
    here = f"locate(Path({str(python)!r}), {{}}, 'toolbox')"
    said = with_read_only(installation.root, f"state({here}, {changes()!r})")
    assert said == "as distributed\n"
    said = with_read_only(installation.root, f"place({here}, {changes()!r}, Path({str(kept)!r}))")
    assert "Refused: " in said and "cannot be written" in said and "work copy" in said
    call = f"place({installation!r}, {changes()!r}, Path({str(kept)!r}))"
    said = with_read_only(installation.root / "toolbox/ops", call)
    assert f"Refused: {installation.root}/toolbox/ops: is a folder that cannot be written" in said
    assert state(installation, changes()) == "as distributed" and not kept.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import os; os.write(1, b'Welcome'); os._exit(0)", "printed 'Welcome"),
        ("import os; os._exit(3)", "ended with status 3"),
        ("import time; time.sleep(60)", "did not answer within"),
    ],
)
def test_an_interpreter_that_does_not_answer(
    python: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    customize(installation.root, line)
    monkeypatch.setattr("patchq.installed.installation.SECONDS", 0.5 if "sleep" in line else 30)
    with pytest.raises(Prevented, match=message):
        locate(python, {}, "toolbox")


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Prevented, match="No such file or directory"):
        locate(tmp_path / "python", {}, "toolbox")


# --- place and take back ----------------------------------------


def test_all_kinds_of_change_and_back(installation: Installation, kept: Path, python: Path) -> None:
    root = installation.root
    drop_compiled(root)
    before = snapshot(root)
    assert state(installation, changes()) == "as distributed"
    place(installation, changes(), kept)
    assert state(installation, changes()) == "ours"
    assert (
        imported(python, "m('toolbox.ops.adam').BIAS, m('toolbox.new.deep.中').NEW", PYTHONUTF8="1")
        == "('optional', 1)"
    )
    assert not (root / "toolbox/old").exists()
    assert stat.S_IMODE((root / "toolbox/ops/tool.py").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / ADAM).stat().st_mode) == 0o644
    assert roll_forward(kept.parent) == ()
    place(installation, changes(), kept)
    drop_compiled(root)
    assert set(take_back(kept)) == {change.path for change in changes()}
    assert snapshot(root) == before
    assert not kept.exists() and take_back(kept) == ()


def test_record_is_what_pip_would_have_written(installation: Installation, kept: Path) -> None:
    before = installation.record.read_bytes()
    old = rows_of(installation)
    place(installation, changes(), kept)
    rows = rows_of(installation)
    assert b"\r\n" in before and all(
        line.endswith(b"\r") for line in installation.record.read_bytes().split(b"\n")[:-1]
    )
    for change in changes():
        if change.after is None:
            assert change.path not in rows
        else:
            assert rows[change.path] == [digest_of(change.after), str(len(change.after))]
    touched = {change.path for change in changes()}
    gone = {path for path in old if path.endswith(".pyc") and Path(path).name.split(".")[0] in ("adam", "tool", "gone")}
    gone.add(next(path for path in old if path.startswith("toolbox/old/__pycache__/__init__.")))
    assert len(gone) == 4
    assert {path: row for path, row in rows.items() if path not in touched} == {
        path: row for path, row in old.items() if path not in touched | gone
    }


@pytest.mark.fault
def test_patchq_and_pip_take_turns(
    installation: Installation, kept: Path, python: Path, wheel: Path, tmp_path: Path
) -> None:
    place(installation, changes(), kept)
    imported(python, "m('toolbox.new.deep.中')", PYTHONUTF8="1")
    newer = build_wheel(tmp_path, "1.3")
    said = run_pip(python, ["check"], ["show", "-f", "toolbox"], install(newer))
    assert "No broken requirements" in said
    assert "toolbox/new/deep/中.py" in said and "gone.py" not in said
    before = snapshot(installation.root)
    assert "toolbox/new" not in before and installation.record.parent.name not in before

    with pytest.raises(Refused, match=r"adam.py: is no longer ours: expected .*upgraded by pip"):
        take_back(kept)
    assert snapshot(installation.root) == before and roll_forward(kept.parent) == ()
    upgraded = locate(python, {}, "toolbox")
    place(upgraded, changes(), kept.with_name("1.3"))
    assert state(upgraded, changes()) == "ours"

    run_pip(python, ["uninstall", "--yes", "toolbox"])
    assert snapshot(installation.root) == {}
    run_pip(python, install(wheel))
    place(installation, changes(), kept)
    assert state(installation, changes()) == "ours"
    take_back(kept)
    assert state(installation, changes()) == "as distributed"


def test_an_environment_with_the_same_inodes_stays(installation: Installation, kept: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(installation.root, twin, copy_function=os.link)
    before = snapshot(twin)
    place(installation, changes(), kept)
    assert snapshot(twin) == before
    assert not (installation.root / ADAM).samefile(twin / ADAM)
    assert {entry.link for entry in journal.load(kept).files if entry.old} == {"hard"}
    take_back(kept)
    (installation.root / ADAM).write_bytes(b"in place")
    assert snapshot(twin) == before


def test_a_file_that_is_a_link_becomes_a_file(installation: Installation, kept: Path, tmp_path: Path) -> None:
    target = installation.root / ADAM
    target.rename(tmp_path / "cached.py")
    target.symlink_to(tmp_path / "cached.py")
    place(installation, changes(), kept)
    assert not target.is_symlink() and (tmp_path / "cached.py").read_bytes() == FILES[ADAM]


def test_nothing_is_written_through_a_linked_folder(installation: Installation, kept: Path, tmp_path: Path) -> None:
    (installation.root / "toolbox/ops").rename(tmp_path / "ops")
    (installation.root / "toolbox/ops").symlink_to(tmp_path / "ops")
    with pytest.raises(Refused, match="behind the symbolic link toolbox/ops"):
        place(installation, changes(), kept)
    assert (tmp_path / "ops/adam.py").read_bytes() == FILES[ADAM] and not kept.exists()


def test_compiled_files_go_with_their_source(installation: Installation, kept: Path) -> None:
    cache = installation.root / "toolbox/ops/__pycache__"
    drop_compiled(installation.root)
    cache.mkdir()
    for name in (
        "adam.cpython-310.pyc",
        "adam.cpython-313.opt-2.pyc",
        "adam2.cpython-310.pyc",
        "adam.b.cpython-310.pyc",
    ):
        (cache / name).write_bytes(b"stale")
    (installation.root / f"{ADAM}c").write_bytes(b"stale")
    place(installation, changes(), kept)
    left = {path.name for path in installation.root.rglob("*.pyc") if path.name.startswith("adam")}
    assert left == {"adam2.cpython-310.pyc", "adam.b.cpython-310.pyc"}


def test_an_unchecked_pyc_cannot_bring_the_old_code_back(installation: Installation, kept: Path, python: Path) -> None:
    compile_all = [
        str(python),
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        str(installation.root),
    ]
    subprocess.run(compile_all, check=True)
    place(installation, changes(), kept)
    assert imported(python, "m('toolbox.ops.adam').BIAS") == "optional"
    subprocess.run(compile_all, check=True)
    take_back(kept)
    assert imported(python, "m('toolbox.ops.adam').BIAS") == "required"


def test_permissions_beyond_x_are_kept(installation: Installation, kept: Path) -> None:
    (installation.root / ADAM).chmod(0o640)
    (installation.root / "toolbox/ops/tool.py").chmod(0o664)
    place(installation, changes(), kept)
    modes = [stat.S_IMODE((installation.root / path).stat().st_mode) for path in (ADAM, "toolbox/ops/tool.py")]
    assert modes == [0o640, 0o775]
    take_back(kept)
    modes = [stat.S_IMODE((installation.root / path).stat().st_mode) for path in (ADAM, "toolbox/ops/tool.py")]
    assert modes == [0o640, 0o664]


# --- refused, before anything is written ----------------------------------------


def assert_refuses(
    installation: Installation, kept: Path, message: str, wanted: list[FileChange] | None = None
) -> None:
    before = snapshot(installation.root)
    with pytest.raises(Refused, match=message):
        place(installation, changes() if wanted is None else wanted, kept)
    assert snapshot(installation.root) == before and not kept.exists()


def edit_record(installation: Installation, old: str, new: str) -> None:
    text = installation.record.read_bytes().decode()
    assert old in text
    installation.record.write_bytes(text.replace(old, new).encode())


def test_an_edited_file_is_named_with_its_digests(installation: Installation, kept: Path) -> None:
    edited = b"BIAS = 'by hand'\n"
    (installation.root / ADAM).write_bytes(edited)
    (installation.root / "toolbox/old/gone.py").unlink()
    assert_refuses(installation, kept, f"adam.py: .*expected {changes()[0].before} or .*found {sha256(edited)} ")
    with pytest.raises(Refused, match="edited by hand") as raised:
        state(installation, changes())
    assert [Path(problem.where).name for problem in raised.value.problems] == ["adam.py", "gone.py"]


def test_a_mixture_is_refused(installation: Installation, kept: Path) -> None:
    (installation.root / ADAM).write_bytes(b"BIAS = 'optional'\r\n")
    assert_refuses(installation, kept, "as patchq leaves it, while other files are not")


def test_record_has_to_vouch(installation: Installation, kept: Path) -> None:
    saved = installation.record.read_bytes()
    digest = digest_of(FILES[ADAM])
    edit_record(installation, f"{ADAM},{digest},", f"{ADAM},,")
    assert_refuses(installation, kept, "adam.py: RECORD has no hash for it .*work copy")
    installation.record.write_bytes(saved)
    edit_record(installation, digest, digest_of(b"another"))
    assert_refuses(installation, kept, "adam.py: RECORD has another hash")
    installation.record.write_bytes(saved)
    edit_record(installation, f"{ADAM},", "elsewhere.py,")
    assert_refuses(installation, kept, "adam.py: RECORD does not list it")
    installation.record.write_bytes(saved + b"toolbox/new/deep/\xe4\xb8\xad.py,,\n")
    assert_refuses(installation, kept, "RECORD lists it, but it is not there")
    installation.record.write_bytes(saved + b"\xff\n")
    assert_refuses(installation, kept, r"RECORD:\d+: is not a line of PATH,HASH,SIZE")


def test_a_file_where_a_folder_is_due(installation: Installation, kept: Path) -> None:
    wanted = [FileChange("toolbox/__init__.py/x.py", None, b"")]
    assert_refuses(installation, kept, "toolbox/__init__.py is not a folder", wanted)
    (installation.root / ADAM).unlink()
    (installation.root / ADAM).mkdir()
    assert_refuses(installation, kept, "not a plain file")


def test_what_would_not_be_imported_is_refused(
    installation: Installation, kept: Path, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolbox").mkdir()
    (tmp_path / "toolbox/__init__.py").touch()
    shadowed = locate(python, {"PYTHONPATH": str(tmp_path)}, "toolbox")
    assert_refuses(shadowed, kept, f"imports {tmp_path}/toolbox/__init__.py instead")


@pytest.mark.parametrize(
    "path",
    [
        "../x.py",
        "/etc/x",
        "a/../x",
        "./x",
        "a//b",
        "",
        ".",
        f"toolbox-{VERSION}.dist-info/RECORD",
        "a\nb",
        "\udc80",
    ],
)
def test_paths_that_no_change_may_name(installation: Installation, kept: Path, path: str) -> None:
    with pytest.raises(Invalid):
        place(installation, [FileChange(path, None, b"")], kept)
    assert not kept.exists()


def test_the_same_file_twice(installation: Installation, kept: Path) -> None:
    with pytest.raises(Invalid, match="changed twice"):
        place(installation, changes() + changes()[:1], kept)


def test_other_changes_have_to_be_taken_back_first(installation: Installation, kept: Path) -> None:
    place(installation, changes(), kept)
    fewer = changes()[:1]
    for folder in (kept, kept.with_name("next")):
        with pytest.raises(Refused, match=r"still has the change of another journal .*take toolbox back first"):
            place(installation, fewer, folder)
    take_back(kept)
    place(installation, fewer, kept.with_name("next"))
    assert roll_forward(kept.parent) == ()


def test_an_edit_since_is_not_ours_to_overwrite(installation: Installation, kept: Path) -> None:
    place(installation, changes(), kept)
    (installation.root / ADAM).write_bytes(b"edited since\n")
    with pytest.raises(Refused) as raised:
        take_back(kept)
    assert [problem.where for problem in raised.value.problems] == [str(installation.root / ADAM)]
    assert (installation.root / ADAM).read_bytes() == b"edited since\n"


# --- journals ----------------------------------------


def test_roll_forward_stops_at_a_stranger(installation: Installation, kept: Path) -> None:
    place(installation, changes(), kept)
    journal.mark(kept, "placing")
    (installation.root / ADAM).write_bytes(b"edited since\n")
    with pytest.raises(Refused, match=r"adam.py: is neither old nor new"):
        roll_forward(kept.parent)
    (installation.root / ADAM).write_bytes(FILES[ADAM])
    assert roll_forward(kept.parent) == (f"toolbox {VERSION}: 6 files placed",)
    assert state(installation, changes()) == "ours"


def test_a_damaged_journal_is_not_written_out(installation: Installation, kept: Path) -> None:
    place(installation, changes(), kept)
    (kept / "blobs" / sha256(FILES[ADAM])).write_bytes(b"damaged")
    with pytest.raises(Refused, match="the journal is damaged"):
        take_back(kept)
    (kept / "commit").write_text("nonsense")
    with pytest.raises(Invalid, match="says 'nonsense'"):
        roll_forward(kept.parent)


def test_a_folder_that_is_no_journal_stays(kept: Path) -> None:
    (kept / "precious").mkdir(parents=True)
    with pytest.raises(Invalid, match="is not a journal of patchq: precious"):
        roll_forward(kept.parent)
    assert (kept / "precious").exists()
    assert roll_forward(kept / "nowhere") == ()


# --- RECORD ----------------------------------------

NAMES = st.text(st.characters(exclude_characters="\0\r\n/", exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = NAMES.map(lambda name: f"pkg/{name}.py").filter(lambda name: str(Path(name)) == name)


@given(
    files=st.dictionaries(NAMES, st.binary(max_size=20), min_size=1),
    ending=st.sampled_from(["\n", "\r\n"]),
    is_cut=st.booleans(),
    data=st.data(),
)
@settings(max_examples=40)
def test_record_rewritten_and_back(files: dict[str, bytes], ending: str, is_cut: bool, data: st.DataObject) -> None:
    old = recordfile.rewritten([recordfile.Row(ending.encode(), "", "")], dict(files))
    old = old[len(ending) :]
    rows = recordfile.parse(old, "RECORD")
    assert [row.name for row in rows] == list(files)
    assert not any(recordfile.complaint(rows, path, content) for path, content in files.items())
    touched = data.draw(st.dictionaries(st.sampled_from(sorted(files)) | NAMES, st.none() | st.binary(max_size=20)))
    new = recordfile.parse(recordfile.rewritten(rows, touched), "RECORD")
    expected = {**files, **touched}
    assert {row.name for row in new} == {path for path, content in expected.items() if content is not None}
    assert not any(
        recordfile.complaint(new, path, content) for path, content in expected.items() if content is not None
    )
    same = recordfile.rewritten(recordfile.parse(old[: -len(ending)] if is_cut else old, "RECORD"), {})
    assert same == old or (is_cut and len(files) == 1)


@given(st.binary(max_size=200))
def test_record_of_any_bytes(data: bytes) -> None:
    try:
        rows = recordfile.parse(data, "RECORD")
    except Refused:
        return
    assert recordfile.rewritten(rows, {}).replace(b"\r\n", b"\n").count(b"\n") >= len(rows) - data.count(b"\r")


# --- killed, or failing, at each file operation ----------------------------------------

EVENTS = frozenset(
    {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate"}
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(code: int) -> Callable[[], None]:
    def raise_it() -> None:
        raise OSError(code, os.strerror(code))

    return raise_it


def in_child(work: Callable[[], object], at: int, fault: Callable[[], None]) -> str:
    """Do `work` in a child with `fault` before its `at`-th file operation.

    "done" when it has fewer operations, "survived" when the fault did no harm, else "failed" or "killed".
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            is_over = arm(at, fault)
            work()
            code = 1 if is_over() else 0
        except PatchqError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", 1: "survived", -signal.SIGKILL: "killed", Prevented.exit_code: "failed"}[code]


def arm(at: int, fault: Callable[[], None]) -> Callable[[], bool]:
    """Lay the fault in this process, for good; the answer tells whether it happened."""
    left = at

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            fault()

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        is_open = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if event in EVENTS or is_open:
            tick()

    def fsync(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        tick()
        real(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(audit)
    return lambda: left <= 0


class Bench:
    """Fresh copies of an installation, and what is old and new in it."""

    def __init__(self, installation: Installation, folder: Path, wanted: list[FileChange]) -> None:
        self.folder, self.wanted = folder, wanted
        self._origin = installation
        cache = installation.root / "toolbox/ops/__pycache__"
        cache.mkdir(exist_ok=True)
        (cache / "adam.cpython-311.pyc").write_bytes(b"compiled")
        self.reset()
        self.old = snapshot(self.installation.root)
        self.place()
        self.new = snapshot(self.installation.root)
        self.take_back()
        self.restored = snapshot(self.installation.root)

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        root = Path(shutil.copytree(self._origin.root, self.folder / "site"))
        record = root / self._origin.record.relative_to(self._origin.root)
        self.installation = replace(self._origin, root=root, record=record)
        self.journals = self.folder / "work" / "journals"

    def place(self) -> None:
        place(self.installation, self.wanted, self.journals / "toolbox")

    def take_back(self) -> None:
        take_back(self.journals / "toolbox")

    def now(self) -> str:
        names = {"old": self.old, "new": self.new, "restored": self.restored}
        here = snapshot(self.installation.root)
        return next((name for name, known in names.items() if known == here), "a mixture")


@pytest.fixture
def bench(installation: Installation, tmp_path: Path) -> Iterator[Bench]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Bench(installation, Path(folder, "bench"), changes())


# Where the suite strikes: with `PATCHQ_EVERY=1` at each operation, else at some.
STEP = 1 if os.environ.get("PATCHQ_EVERY") else 5


def points(step: int) -> Iterator[int]:
    return iter(range(1, 10_000, step))


def interrupt_placing(bench: Bench, fault: Callable[[], None], step: int) -> int:
    for at in points(step):
        bench.reset()
        ended = in_child(bench.place, at, fault)
        roll_forward(bench.journals)
        assert bench.now() in ("old", "new") if ended != "done" else bench.now() == "new", at
        bench.place()
        assert bench.now() == "new", at
        if ended == "done":
            return at
    raise AssertionError("never done")


def interrupt_taking_back(bench: Bench, fault: Callable[[], None], step: int) -> int:
    for at in points(step):
        bench.reset()
        bench.place()
        ended = in_child(bench.take_back, at, fault)
        roll_forward(bench.journals)
        assert bench.now() in ("new", "restored"), at
        bench.take_back()
        assert bench.now() == "restored" and not list(bench.journals.iterdir()), at
        if ended == "done":
            return at
    raise AssertionError("never done")


@pytest.mark.fault
def test_killed_while_placing(bench: Bench) -> None:
    assert interrupt_placing(bench, kill, step=9) > 50


@pytest.mark.fault
def test_killed_while_taking_back(bench: Bench) -> None:
    assert interrupt_taking_back(bench, kill, step=9) > 30


@pytest.mark.fault
def test_the_machine_fails_while_placing(bench: Bench) -> None:
    interrupt_placing(bench, fail(errno.ENOSPC), step=13)


@pytest.mark.fault
@pytest.mark.parametrize("interrupt", [interrupt_placing, interrupt_taking_back])
@pytest.mark.parametrize("fault", [kill, *map(fail, (errno.ENOSPC, errno.EIO, errno.EACCES))])
def test_every_file_operation(
    bench: Bench, interrupt: Callable[[Bench, Callable[[], None], int], int], fault: Callable[[], None]
) -> None:
    assert interrupt(bench, fault, STEP) > 30


@pytest.mark.fault
def test_killed_again_while_rolling_forward(bench: Bench) -> None:
    for first in points(9 * STEP):
        for second in points(4 * STEP):
            bench.reset()
            ended = in_child(bench.place, first, kill)
            again = in_child(lambda: roll_forward(bench.journals), second, kill)
            roll_forward(bench.journals)
            assert bench.now() in ("old", "new"), (first, second)
            if again == "done":
                break
        if ended == "done":
            return


@pytest.mark.fault
def test_a_cut_short_place_can_be_taken_back(bench: Bench) -> None:
    for at in points(STEP):
        bench.reset()
        ended = in_child(bench.place, at, kill)
        bench.take_back()
        assert bench.now() in ("old", "restored"), at
        if ended == "done":
            return
