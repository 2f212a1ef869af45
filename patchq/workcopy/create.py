"""Making a work copy: built beside its place by git itself, then there by one rename."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from patchq.document import write_file
from patchq.errors import Prevented
from patchq.store import Store
from patchq.workcopy.places import building
from patchq.workcopy.repository import Repository, repositories

NO_SUBMODULES: Mapping[str, str] = MappingProxyType({})


def create(
    store: Store, commit: str, baseline: str, folder: Path, submodules: Mapping[str, str] = NO_SUBMODULES
) -> Path:
    """Check `commit` out into the new folder `folder`, exact in bytes, links and x bits, and return it.

    `submodules` maps path → commit, whose objects are in the same store; git never goes online for them.
    `baseline` is where the history of a shallow store ends. Raises `Prevented` if `folder` is there already
    or the machine says no, `Invalid` if a submodule is not one of `commit`.
    """
    folder = folder.absolute()
    if folder.exists():
        raise Prevented("there is a work copy already", where=str(folder))
    wanted = tuple(repositories(store, folder, commit, submodules))
    with building(folder) as room:
        for repository in wanted:
            start = repository.commit if repository.path else baseline
            _check_out(replace(repository, folder=room), start)
    return folder


def _check_out(repository: Repository, baseline: str) -> None:
    """Write the git directory, then let git fill the work tree, so that its index knows all files' times."""
    files = repository.fixed_files() | repository.first_files(baseline)
    for path, content in files.items():
        write_file(repository.git_dir / path, content)
    if repository.path:
        (repository.work_tree / ".git").write_bytes(repository.gitfile)
    repository.git.run(("read-tree", "--reset", "-u", repository.commit), cwd=repository.work_tree)
