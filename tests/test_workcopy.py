"""Work copies: exact to the byte, usable with plain git, made in one step, re-proved from their contents."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid, PatchqError, Prevented, Refused
from patchq.store import Entry, Source, Store, blob_id, fetch_commit
from patchq.workcopy import Inspection, create, current, digest_folder, inspect, move_current, set_aside
from patchq.workcopy.places import building

FILES = {
    "pkg/__init__.py": b"",
    "pkg/crlf.py": b"A = 1\r\nB = 2\r\n",
    "pkg/mixed.txt": b"one\r\ntwo\n$Id$\nno newline",
    "pkg/deep/er/module.py": b"VALUE = 'original'\n",
    "pkg/数据 ü.txt": "内容\n".encode("gbk"),
    "data.bin": bytes(range(256)),
    "empty": b"",
    ".gitattributes": b"* text=auto eol=crlf\n*.txt ident filter=evil\n",
}
HOSTILE = (
    "[core]\n\tautocrlf = true\n\tfileMode = false\n\thooksPath = /nowhere/hooks\n"
    '[filter "evil"]\n\tclean = tr a-z A-Z\n\tsmudge = tr a-z A-Z\n[protocol]\n\tallow = never\n'
)
ME = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def git(folder: Path, *args: str, home: Path | None = None, check: bool = True) -> str:
    """What plain git, as a person has it, says."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    found = subprocess.run(
        ("git", *args), cwd=folder, env={**clean, **ME, "HOME": str(home or folder), "LC_ALL": "C"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert not check or found.returncode == 0, found.stderr
    return os.fsdecode(found.stdout)


@dataclass(frozen=True)
class Area:
    """A work area with a store, and the commits to make copies of."""

    work: Path
    store: Store
    baseline: str
    commit: str
    submodules: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.work / "up" / self.commit

    def create(self) -> Path:
        return create(self.store, self.commit, self.baseline, self.folder, self.submodules)

    def inspect(self, folder: Path | None = None, roots: tuple[str, ...] = (".",)) -> Inspection:
        return inspect(self.store, folder or self.folder, self.commit, self.submodules, roots)


def stage(folder: Path, files: dict[str, bytes]) -> None:
    """A new repository with these bytes, unfiltered, in its index."""
    git(folder.parent, "init", "-q", str(folder))
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        identity = (
            subprocess.run(
                ("git", "hash-object", "-w", "--stdin", "--no-filters"),
                cwd=folder,
                input=content,
                capture_output=True,
            )
            .stdout.decode()
            .strip()
        )
        git(folder, "update-index", "--add", "--cacheinfo", f"100644,{identity},{path}")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Area:
    """A store that has a shallow baseline with a submodule, and one patch commit on top of it."""
    top = tmp_path_factory.mktemp("origin")
    stage(top / "sub", {"recipe.py": b"R = 1\r\n", ".gitattributes": b"* text=auto\n"})
    git(top / "sub", "commit", "-qm", "older")
    git(top / "sub", "commit", "-qm", "sub", "--allow-empty")
    sub = git(top / "sub", "rev-parse", "HEAD").strip()
    modules = b'[submodule "lib/recipe"]\n\tpath = lib/recipe\n\turl = https://invalid.invalid/recipe.git\n'
    stage(top / "main", {**FILES, ".gitmodules": modules})
    git(top / "main", "update-index", "--add", "--cacheinfo", f"160000,{sub},lib/recipe")
    git(top / "main", "commit", "-qm", "older")
    git(top / "main", "update-index", "--chmod=+x", "data.bin")
    for name, target in {"link": "pkg/crlf.py", "dirlink": "pkg"}.items():
        (top / "main" / name).symlink_to(target)
        git(top / "main", "add", name)
    git(top / "main", "commit", "-qm", "baseline")
    baseline = git(top / "main", "rev-parse", "HEAD").strip()
    store = Store.open(top / "work/store")
    fetch_commit(store, Source("main", str(top / "main")), baseline)
    fetch_commit(store, Source("sub", str(top / "sub")), sub)
    base = store.commit(baseline)
    blob = store.write("blob", b"A = 1\r\nB = 3\r\n")
    tree = store.update_tree(base.tree, {"pkg/crlf.py": Entry("100644", blob)})
    commit = store.write_commit(tree, [baseline], "x <x@y>", base.committed, base.committed, b"Patch\n")
    return Area(top / "work", store, baseline, commit, {"lib/recipe": sub})


@pytest.fixture
def area(origin: Area, tmp_path: Path) -> Area:
    """The same work area in a place of its own, spaced and unicode."""
    work = tmp_path / "work área"
    shutil.copytree(origin.store.folder, work / "store", symlinks=True)
    return Area(work, Store(work / "store"), origin.baseline, origin.commit, origin.submodules)


@pytest.fixture
def copy(area: Area) -> Path:
    return area.create()


# --- making one


def test_bytes_links_and_modes_are_exact(copy: Path) -> None:
    found = {path: (copy / path).read_bytes() for path in FILES}
    assert found == FILES | {"pkg/crlf.py": b"A = 1\r\nB = 3\r\n"}
    assert (copy / "link").readlink() == Path("pkg/crlf.py")
    assert (copy / "lib/recipe/recipe.py").read_bytes() == b"R = 1\r\n"
    executable = {path for path in FILES if os.access(copy / path, os.X_OK)}
    assert executable == {"data.bin"}


def test_plain_git_works_with_a_hostile_configuration(area: Area, copy: Path, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(HOSTILE)

    def plain(*args: str) -> str:
        return git(copy, *args, home=tmp_path)

    assert plain("status", "--porcelain") == ""
    assert plain("rev-parse", "HEAD").strip() == area.commit
    assert plain("log", "--format=%H").split() == [area.commit, area.baseline]
    assert plain("submodule", "status").split()[:2] == [area.submodules["lib/recipe"], "lib/recipe"]
    assert "B = 3" in plain("show", "--text", "HEAD")
    plain("fsck", "--strict")
    plain("gc", "--quiet")
    plain("submodule", "update")
    plain("-c", "sequence.editor=true", "rebase", "-q", "-i", "--no-ff", "baseline")
    assert plain("diff", "--stat", "patchq") == ""


def test_a_work_area_may_move(area: Area, copy: Path, tmp_path: Path) -> None:
    area.work.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere/up" / area.commit
    assert git(moved, "status", "--porcelain") == ""
    assert " lib/recipe" in git(moved, "submodule", "status")
    store = Store(tmp_path / "elsewhere/store")
    assert inspect(store, moved, area.commit, area.submodules) == Inspection((), ())


def test_full_history_has_no_shallow_file(area: Area, tmp_path: Path) -> None:
    source = Source("main", str(tmp_path / "full"))
    stage(tmp_path / "full", {"a.py": b"1\n"})
    git(tmp_path / "full", "commit", "-qm", "one")
    commit = git(tmp_path / "full", "rev-parse", "HEAD").strip()
    fetch_commit(area.store, source, commit, history=True)
    made = create(area.store, commit, commit, area.work / "full" / commit)
    assert not (made / ".git/shallow").exists()
    assert git(made, "fsck") is not None


def test_a_copy_that_is_there_is_left_alone(area: Area, copy: Path) -> None:
    before = digest_folder(copy)
    with pytest.raises(Prevented, match="already"):
        area.create()
    assert digest_folder(copy) == before


@pytest.mark.parametrize(("path", "identity"), [("lib/recipe", "0" * 40), ("pkg", "1" * 40), ("no", "1" * 40)])
def test_a_submodule_that_the_commit_has_not(area: Area, path: str, identity: str) -> None:
    with pytest.raises(Invalid, match="no submodule"):
        create(area.store, area.commit, area.baseline, area.folder, {path: identity})
    assert not area.folder.parent.exists()


def test_a_submodule_may_stay_empty(area: Area) -> None:
    made = create(area.store, area.commit, area.baseline, area.folder)
    assert list((made / "lib/recipe").iterdir()) == []
    assert inspect(area.store, made, area.commit) == Inspection((), ())


def test_failure_leaves_nothing(area: Area) -> None:
    blob = blob_id(FILES["data.bin"])
    base = area.store.commit(area.commit)
    lost = area.store.update_tree(base.tree, {"gone": Entry("100644", "12" * 20), "kept": Entry("100644", blob)})
    commit = area.store.write_commit(lost, [area.commit], "x <x@y>", base.committed, base.committed, b"x\n")
    with pytest.raises(Prevented):
        create(area.store, commit, area.baseline, area.folder)
    assert list(area.folder.parent.iterdir()) == []


def test_interruption_leaves_nothing(area: Area) -> None:
    with pytest.raises(KeyboardInterrupt), building(area.folder) as room:
        (room / "file").write_text("half")
        raise KeyboardInterrupt
    assert list(area.folder.parent.iterdir()) == []


HOLD = """
import sys, time
from pathlib import Path
from patchq.workcopy.places import building
with building(Path(sys.argv[1])) as room:
    (room / "file").write_text("half")
    print(room, flush=True)
    time.sleep(60)
"""


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(area: Area) -> None:
    child = subprocess.Popen((sys.executable, "-c", HOLD, str(area.folder)), stdout=subprocess.PIPE, text=True)
    assert child.stdout
    room = Path(child.stdout.readline().strip())
    try:
        area.create()
        assert (room / "file").exists()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (room / "file").exists()
    shutil.rmtree(area.folder)
    area.create()
    assert [place.name for place in area.folder.parent.iterdir()] == [area.commit]


# --- current, failed


def test_current_moves_and_is_read_strictly(area: Area, copy: Path) -> None:
    upstream = copy.parent
    assert current(upstream) is None
    move_current(upstream, area.commit)
    move_current(upstream, area.commit)
    assert current(upstream) == area.commit
    assert (upstream / "current").readlink() == Path(area.commit)
    assert area.inspect((upstream / "current").resolve()) == Inspection((), ())
    with pytest.raises(Prevented, match="no such work copy"):
        move_current(upstream, "0" * 40)
    (upstream / "current").unlink()
    (upstream / "current").symlink_to("../elsewhere")
    with pytest.raises(Refused, match="no work copy"):
        current(upstream)
    (upstream / "current").unlink()
    (upstream / "current").mkdir()
    with pytest.raises(Refused, match="not the link"):
        current(upstream)
    with pytest.raises(Prevented):
        move_current(upstream, area.commit)


def test_a_copy_set_aside_still_works(area: Area, copy: Path) -> None:
    (copy / "pkg/crlf.py").write_text("broken")
    place = set_aside(copy)
    assert not copy.exists()
    assert place.parent == area.work / "up/failed"
    assert place.name.startswith(f"{area.commit}-2")
    assert git(place, "status", "--porcelain") == " M pkg/crlf.py\n"
    assert git(place, "submodule", "status").startswith(" ")
    assert [drift.path for drift in area.inspect(place).drift] == ["pkg/crlf.py"]
    area.create()
    assert set_aside(area.folder) != place


def test_setting_aside_writes_through_no_link(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine\n")
    listed = copy / ".git/objects/info/alternates"
    listed.unlink()
    listed.symlink_to(tmp_path / "precious")
    assert set_aside(copy).is_dir()
    assert (tmp_path / "precious").read_text() == "mine\n"


# --- inspection


def found(inspection: Inspection) -> set[tuple[str, str]]:
    return {(drift.path, drift.what) for drift in inspection.drift}


def edit_secretly(copy: Path) -> None:
    """An edit that keeps size and times, and hides from git."""
    place = copy / "pkg/deep/er/module.py"
    status = place.stat()
    git(copy, "update-index", "--assume-unchanged", "pkg/deep/er/module.py")
    place.write_bytes(b"VALUE = 'modified'\n")
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert git(copy, "status", "--porcelain") == ""


def swap(path: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """A deed that takes `path` away and makes something else there."""

    def deed(copy: Path) -> None:
        place = copy / path
        if place.is_dir() and not place.is_symlink():
            place.rename(copy.parent / "taken")
        else:
            place.unlink(missing_ok=True)
        make(place)

    return deed


def add(path: str, content: bytes = b"x") -> Callable[[Path], None]:
    def deed(copy: Path) -> None:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(content)

    return deed


def add_package_link(copy: Path) -> None:
    outside = copy.parent / "outside"
    outside.mkdir()
    (outside / "__init__.py").touch()
    (copy / "pkg/extra").symlink_to(outside)


DEEDS: dict[str, tuple[Callable[[Path], object], set[tuple[str, str]]]] = {
    "secret edit": (edit_secretly, {("pkg/deep/er/module.py", "modified"), (".git/index", "git")}),
    "submodule edit": (add("lib/recipe/recipe.py"), {("lib/recipe/recipe.py", "modified")}),
    "line ends": (add("pkg/crlf.py", b"A = 1\nB = 3\n"), {("pkg/crlf.py", "modified")}),
    "longer": (add("data.bin", bytes(range(256)) * 2), {("data.bin", "modified")}),
    "gone": (lambda copy: (copy / "empty").unlink(), {("empty", "missing")}),
    "folder gone": (lambda copy: shutil.rmtree(copy / "pkg/deep"), {("pkg/deep", "missing")}),
    "x bit gone": (lambda copy: (copy / "data.bin").chmod(0o644), {("data.bin", "mode")}),
    "x bit set": (lambda copy: (copy / "empty").chmod(0o755), {("empty", "mode")}),
    "link elsewhere": (swap("link", lambda place: place.symlink_to("empty")), {("link", "modified")}),
    "link to file": (swap("link", lambda place: place.write_text("pkg/crlf.py")), {("link", "type")}),
    "file to link": (swap("empty", lambda place: place.symlink_to("/dev/null")), {("empty", "type")}),
    "file to pipe": (swap("empty", os.mkfifo), {("empty", "type")}),
    "file to folder": (swap("empty", Path.mkdir), {("empty", "type")}),
    "folder to link": (swap("pkg", lambda place: place.symlink_to("../taken")), {("pkg", "type")}),
    "submodule to link": (
        swap("lib/recipe", lambda place: place.symlink_to("..")),
        {("lib/recipe", "type"), ("lib/recipe/.git", "git")},
    ),
    "module": (add("pkg/deep/new.py"), {("pkg/deep/new.py", "added")}),
    "module in submodule": (add("lib/recipe/new.py"), {("lib/recipe/new.py", "added")}),
    "module at top": (add("sitecustomize.py"), {("sitecustomize.py", "added")}),
    "extension": (add("pkg/crlf.abi3.so"), {("pkg/crlf.abi3.so", "added")}),
    "path file": (add("x.pth"), {("x.pth", "added")}),
    "sourceless": (add("pkg/lone.pyc"), {("pkg/lone.pyc", "added")}),
    "package": (add("extra/__init__.py"), {("extra/__init__.py", "added")}),
    "namespace": (add("extra/a/b.py"), {("extra/a/b.py", "added")}),
    "package link": (add_package_link, {("pkg/extra", "added")}),
    "module in a cache": (add("pkg/__pycache__/odd.py"), {("pkg/__pycache__/odd.py", "added")}),
    "cache link": (
        lambda copy: (copy / "pkg/__pycache__").symlink_to("."), {("pkg/__pycache__", "bytecode")},
    ),
    "head": (add(".git/HEAD", b"ref: refs/heads/patchq\n"), {(".git/HEAD", "git")}),
    "config": (lambda copy: git(copy, "config", "include.path", "/x"), {(".git/config", "git")}),
    "attributes": (add(".git/info/attributes"), {(".git/info/attributes", "git")}),
    "exclude": (add(".git/info/exclude"), {(".git/info/exclude", "git")}),
    "grafts": (add(".git/info/grafts"), {(".git/info/grafts", "git")}),
    "alternates": (add(".git/objects/info/alternates", b"/x\n"), {(".git/objects/info/alternates", "git")}),
    "hooks": (add(".git/hooks/post-checkout"), {(".git/hooks", "git")}),
    "commondir": (add(".git/commondir", b"/x\n"), {(".git/commondir", "git")}),
    "worktree config": (add(".git/config.worktree"), {(".git/config.worktree", "git")}),
    "replace": (lambda copy: git(copy, "replace", "HEAD", "HEAD~1"), {(".git/refs/replace", "git")}),
    "packed replace": (
        lambda copy: (git(copy, "replace", "HEAD", "HEAD~1"), git(copy, "pack-refs", "--all")),
        {(".git/packed-refs", "git")},
    ),
    "skip-worktree": (
        lambda copy: git(copy, "update-index", "--skip-worktree", "empty"), {(".git/index", "git")},
    ),
    "index": (add(".git/index", b"DIRC"), {(".git/index", "git")}),
    "no index": (lambda copy: (copy / ".git/index").unlink(), {(".git/index", "git")}),
    "gitfile": (add("lib/recipe/.git", b"gitdir: /x\n"), {("lib/recipe/.git", "git")}),
    "submodule hooks": (add(".git/modules/lib/recipe/hooks/x"), {(".git/modules/lib/recipe/hooks", "git")}),
    "a repository inside": (add("pkg/.git/config"), {("pkg/.git", "git")}),
    "a file that leads to one": (add("pkg/.git", b"gitdir: /x\n"), {("pkg/.git", "git")}),
    "git redirected": (
        swap(".git", lambda place: place.write_text("gitdir: ../taken\n")),
        {(".git", "git"), (".git/modules/lib/recipe", "git")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEEDS)
def test_every_deed_is_found(area: Area, copy: Path, name: str) -> None:
    deed, expected = DEEDS[name]
    deed(copy)
    assert found(area.inspect()) == expected


def test_an_untouched_copy_is_clean_also_after_plain_git(area: Area, copy: Path) -> None:
    assert area.inspect() == Inspection((), ())
    git(copy, "status")
    git(copy, "-c", "gc.auto=1", "gc", "--quiet")
    git(copy, "worktree", "add", "-q", "../tree")
    assert area.inspect() == Inspection((), ())


def test_harmless_files_are_listed_and_not_read(area: Area, copy: Path) -> None:
    for path in ("checkpoints/step 1/model.bin", "pkg/run.log", "lib/recipe/out/a", "lib/recipe/out/b"):
        add(path)(copy)
    (copy / "pkg/run.log").chmod(0)
    (copy / "weights").symlink_to("/nonexistent")
    os.mkfifo(copy / "pipe")
    inspection = area.inspect()
    assert inspection.drift == ()
    assert inspection.untracked == ("checkpoints/", "lib/recipe/out/", "pipe", "pkg/run.log", "weights")


def test_only_what_is_on_the_import_path_counts(area: Area, copy: Path) -> None:
    for path in ("pkg/tool.py", "lib/new.py", "lib/pack/__init__.py", "top/code/x.py"):
        add(path)(copy)
    inspection = area.inspect(roots=("lib",))
    assert found(inspection) == {("lib/new.py", "added"), ("lib/pack/__init__.py", "added")}
    assert inspection.untracked == ("pkg/tool.py", "top/")


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_bytecode_that_python_could_load(area: Area, copy: Path, mode: py_compile.PycInvalidationMode) -> None:
    source = copy / "pkg/crlf.py"
    py_compile.compile(str(source), invalidation_mode=mode)
    (drift,) = area.inspect().drift
    assert (drift.path, drift.what) == ("pkg/__pycache__", "bytecode")
    assert f"find '{copy}'" in drift.detail


def test_bytecode_that_python_would_not_load(area: Area, copy: Path) -> None:
    source = copy / "pkg/crlf.py"
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    os.utime(source, (1, 1))
    add("pkg/__pycache__/gone.cpython-310.pyc")(copy)
    add("pkg/__pycache__/crlf.cpython-310.opt-1.pyc", b"short")(copy)
    add("pkg/crlf.pyc")(copy)
    assert area.inspect().drift == ()


NAMES = st.builds(
    "".join,
    st.tuples(st.sampled_from(["a", "b", "crlf", "__init__"]), st.sampled_from(["", ".abi3", ".cpython-311"]),
              st.sampled_from(["", ".py", ".pyc", ".so", ".txt", ".pyi", ".PY"])),
)  # fmt: skip
LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


@settings(max_examples=60, deadline=None)
@given(st.sets(NAMES, max_size=4))
def test_whatever_python_finds_is_found(origin: Area, names: set[str]) -> None:
    if not origin.folder.exists():
        origin.create()
    extra = origin.folder / "space"
    extra.mkdir()
    try:
        for name in names:
            (extra / name).touch()
        finder = FileFinder(str(extra), *LOADERS)
        specs = [finder.find_spec(module) for module in ("a", "b", "crlf", "__init__")]
        origins = {Path(str(spec.origin)).name for spec in specs if spec and spec.origin}
        added = {Path(drift.path).name for drift in origin.inspect().drift}
        assert origins <= added <= {name for name in names if name.endswith((".py", ".pyc", ".so"))}
    finally:
        shutil.rmtree(extra)


def test_a_damaged_store_is_said(area: Area, copy: Path) -> None:
    tree = area.store.commit(area.commit).tree
    place = area.store.folder / "objects" / tree[:2] / tree[2:]
    other = area.store.folder_entries(tree)["pkg"].id
    other_place = area.store.folder / "objects" / other[:2] / other[2:]
    place.chmod(0o644)
    place.write_bytes(other_place.read_bytes())
    with pytest.raises(Refused, match="damaged"):
        inspect(Store(area.store.folder), copy, area.commit)


def test_a_copy_that_is_not_there(area: Area) -> None:
    assert found(area.inspect()) == {("", "missing")}


# --- digests


def test_the_digest_of_a_folder_sees_what_counts(tmp_path: Path) -> None:
    vendor = tmp_path / "vendor"
    (vendor / "empty").mkdir(parents=True)
    (vendor / "a").write_bytes(b"1")
    (vendor / "link").symlink_to("a")
    seen = {digest_folder(vendor)}
    os.utime(vendor / "a", (1, 1))
    shutil.copytree(vendor, tmp_path / "twin", symlinks=True)
    assert {digest_folder(vendor), digest_folder(tmp_path / "twin")} == seen
    deeds: list[Callable[[], object]] = [
        lambda: (vendor / "a").write_bytes(b"2"),
        lambda: (vendor / "a").chmod(0o755),
        lambda: (vendor / "empty").rename(vendor / "other"),
        lambda: ((vendor / "link").unlink(), (vendor / "link").symlink_to("b")),
        lambda: ((vendor / "link").unlink(), (vendor / "link").write_text("b")),
    ]
    for count, deed in enumerate(deeds, start=2):
        deed()
        seen.add(digest_folder(vendor))
        assert len(seen) == count


def test_the_digest_names_everything_it_cannot_take(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe1")
    os.mkfifo(tmp_path / "pipe2")
    with pytest.raises(PatchqError) as caught:
        digest_folder(tmp_path)
    assert [Path(problem.where).name for problem in caught.value.problems] == ["pipe1", "pipe2"]
    with pytest.raises(Prevented):
        digest_folder(tmp_path / "nowhere")
