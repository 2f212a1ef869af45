"""The shipped selections, exported: real quilt and real `git am` make the very trees that the lock names.

verl needs a clone in `VERL_SOURCE`, llamafactory's git baseline one in `LLAMAFACTORY_SOURCE`; the sdists come from the
package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import git, patchq

from patchq.commands.place import Place
from patchq.errors import Prevented
from patchq.lock import LockedSelection, load_lock
from patchq.queue.selection import Selection, selections

pytestmark = pytest.mark.upstream

ROOT = Path(__file__).resolve().parents[2] / "series"
PLACE = Place(ROOT)


def _different() -> dict[str, Selection]:
    """Every selection that takes patches, by key; of several that take the same ones on the same baseline, one."""
    found = {}
    for selection in selections(PLACE.queue):
        baseline = load_lock(PLACE.queue).selections[selection.key].base_tree
        names = tuple(queued.name for queued in selection.chosen)
        if names:
            found.setdefault((baseline, names), selection)
    return {selection.key: selection for selection in found.values()}


SELECTIONS = _different()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield Place(ROOT)


@pytest.fixture
def exported(place: Place, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Selection, Path, Path]:
    """A selection, its baseline checked out as plain files, and the folder for its export."""
    selection = SELECTIONS[request.param]
    variable = f"{selection.upstream.name.upper()}_SOURCE"
    if selection.form == "git" and not os.environ.get(variable):
        pytest.skip(f"{variable} names no clone")
    try:
        base = place.sources().base(selection.upstream, selection.form)
    except Prevented as error:
        pytest.skip(str(error))
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "-q", ".")
    (tree / ".git/info/attributes").write_text("* -text -eol -ident -filter -working-tree-encoding !diff\n")
    (tree / ".git/objects/info/alternates").write_text(f"{place.store.folder / 'objects'}\n")
    if base.commit in place.store.shallow():
        (tree / ".git/shallow").write_text(f"{base.commit}\n")
    git(tree, "checkout", "-q", "--detach", base.commit)
    return selection, tree, tmp_path / "out"


def export(selection: Selection, form: str, out: Path) -> Path:
    variant = ("--variant", selection.variant) if selection.variant else ()
    assert (
        patchq("export", "--target", selection.target, *variant, "--format", form, "--out", out, "--queue", ROOT) == 0
    )
    return out / selection.upstream.name


def locked(selection: Selection) -> LockedSelection:
    return load_lock(PLACE.queue).selections[selection.key]


def tree_now(tree: Path) -> str:
    """The tree of the files as they stand, submodules aside."""
    git(tree, "add", "-A", "-f", ".")
    return git(tree, "write-tree")


@pytest.mark.skipif(not shutil.which("quilt"), reason="quilt is not installed")
@pytest.mark.parametrize("exported", SELECTIONS, indirect=True)
def test_quilt_push_makes_the_locked_tree(exported: tuple[Selection, Path, Path]) -> None:
    selection, tree, out = exported
    folder = export(selection, "quilt", out)
    env = {
        **os.environ,
        "QUILT_PATCHES": str(folder),
        "QUILT_PC": str(out / ".pc"),
        "QUILTRC": "/dev/null",
        "LC_ALL": "C",
    }
    argv = ("quilt", "push", "-a", "--fuzz=0")
    done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tree_now(tree) == locked(selection).tree


@pytest.mark.parametrize("exported", SELECTIONS, indirect=True)
def test_git_am_makes_the_locked_tree(exported: tuple[Selection, Path, Path]) -> None:
    selection, tree, out = exported
    folder = export(selection, "git-am", out)
    git(tree, "am", "-q", "--keep-cr", *sorted(str(path) for path in folder.iterdir()))
    assert git(tree, "rev-parse", "HEAD^{tree}") == locked(selection).tree
    assert tree_now(tree) == locked(selection).tree
