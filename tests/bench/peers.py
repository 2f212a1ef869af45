"""The jobs that are set against each other: applying one series with patchq's engine, and with what others use."""

from __future__ import annotations

import shutil
from pathlib import Path

from generated import Series, Tree, folder_of, git, mailbox
from measure import Job, command, forked

from patchq.engine import Base, Engine, Placed
from patchq.queue.load import QueuedPatch
from patchq.series import parse_series
from patchq.store import Source, Store, fetch_commit, gitpython

MODULES = (gitpython,)  # imported before anything is measured in this process


def store_of(tree: Tree, folder: Path) -> Path:
    """A store that has the tree, to be copied for each run."""
    if not folder.exists():
        fetch_commit(Store.open(folder), Source("bench", str(tree.git_dir)), tree.commit)
    return folder


def apply_series(store: Store, series: Series, patches: tuple[Path, ...]) -> tuple[Placed, ...]:
    """Read the patches and apply them; all have to go on, and the last tree has to be git's."""
    entries = parse_series("".join(f"device/{path.name}\n" for path in patches).encode(), "series").entries
    queued = [
        QueuedPatch("bench", entry, path.read_bytes(), path.parent)
        for entry, path in zip(entries, patches, strict=True)
    ]
    with Engine.on(store) as engine:
        placed = engine.apply(Base.of(store, series.tree.commit), queued)
    assert all(step.ok for step in placed)
    assert placed[-1].tree == series.trees[-1]
    return placed


def engine(series: Series, room: Path, *, plain: bool = False) -> Job:
    """patchq's engine, in this process, from patch files to one commit a patch, in a store that has only the base."""
    template = store_of(series.tree, room / "store")
    fresh = room / "store-now"

    def prepare() -> None:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(template, fresh)

    patches = series.plain if plain else series.git_form
    return Job(forked(lambda: apply_series(Store.open(fresh), series, patches)), prepare)


def _checkout(series: Series, folder: Path) -> Path:
    """A repository with its work tree at the base, which borrows the base's objects."""
    if not folder.exists():
        folder.mkdir()
        git(folder, "init", "-q", ".")
        (folder / ".git/objects/info/alternates").write_text(f"{series.tree.git_dir}/objects\n")
        git(folder, "checkout", "-q", "-b", "work", series.tree.commit)
    return folder


def _start_over(folder: Path, commit: str) -> None:
    """The base again, without the objects of the run before."""
    git(folder, "checkout", "-q", "--force", "-B", "work", commit)
    git(folder, "clean", "-fdxq")
    for loose in (folder / ".git/objects").glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(loose)


def git_am(series: Series, room: Path) -> Job:
    """`git am` of the same patches, from the base's work tree."""
    folder = _checkout(series, room / "am")
    box = mailbox(series.git_form, room / f"{len(series)}.mbox")
    return Job(command(("git", "am", "-q", "--keep-cr", box), folder),
               lambda: _start_over(folder, series.tree.commit))  # fmt: skip


def quilt(series: Series, room: Path) -> Job:
    """`quilt push -a` of the same patches without renames, which quilt does not know."""
    folder = _checkout(series, room / f"quilt-{len(series)}")
    patches = folder_of(series.plain, room / f"quilt-patches-{len(series)}")

    def prepare() -> None:
        _start_over(folder, series.tree.commit)

    return Job(command(("quilt", "push", "-a", "-q"), folder, QUILT_PATCHES=str(patches),
                       QUILTRC="-", QUILT_NO_DIFF_INDEX="1"), prepare)  # fmt: skip


def stgit(series: Series, room: Path) -> Job:
    """`stg import -M` of the same patches."""
    folder = _checkout(series, room / "stg")
    box = mailbox(series.git_form, room / f"{len(series)}.mbox")

    def prepare() -> None:
        if (folder / ".git/refs/heads/work.stgit").exists():
            command(("stg", "branch", "--cleanup", "--force"), folder)()
        _start_over(folder, series.tree.commit)
        command(("stg", "init"), folder)()

    return Job(command(("stg", "import", "-M", box), folder), prepare)


def gbp_pq(series: Series, room: Path) -> Job:
    """`gbp pq import` of the same patches, from a branch that has them below `debian/patches`."""
    folder = _checkout(series, room / f"gbp-{len(series)}")
    git(folder, "checkout", "-q", "--force", "-B", "debian", series.tree.commit)
    shutil.rmtree(folder / "debian", ignore_errors=True)
    folder_of(series.git_form, folder / "debian/patches")
    (folder / "debian/control").write_text("Source: bench\n")
    git(folder, "add", "-f", "debian")
    git(folder, "commit", "-q", "-m", "debian")

    def prepare() -> None:
        git(folder, "checkout", "-q", "--force", "debian")
        git(folder, "clean", "-fdxq")
        if git(folder, "branch", "--list", "patch-queue/debian"):
            git(folder, "branch", "-q", "-D", "patch-queue/debian")

    return Job(command(("gbp", "pq", "import"), folder), prepare)
