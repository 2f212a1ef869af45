"""Verbs that write, killed at each of their file operations, interrupted there, and told no at each once: what is in
force is old or new, nothing half is taken for whole, and the same words once more end where an undisturbed call ends.

`PATCHQ_EVERY=1` takes every operation; else it is a sample. Objects of the store are what their names say or not there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from faultkit import EVERY, INTERRUPTED, KILLED, Fault, in_child, points
from signing import make_key
from test_authoring_killed import ERRORS
from test_authoring_killed import STORIES as AUTHORING
from test_install import wheel
from world import World, contents, patchq

from patchq.cli.app import app
from patchq.index.pipconfig import pip_config
from patchq.index.sources import _finders
from patchq.installed.journal import phase_of
from patchq.installed.undo import unfinished
from patchq.queuejournal import read_queue

SAMPLE = 0 if EVERY else 3


@dataclass(frozen=True)
class Story:
    """What is done before, the words that are disturbed, and the exit code that they have undisturbed.

    `prepare` changes what is there after `before`; with `trains` the queue has the target `own` besides, whose
    environment is real and can be written.
    """

    words: tuple[str, ...]
    code: int
    before: tuple[tuple[str, ...], ...] = ()
    prepare: Callable[[World], object] | None = None
    trains: str = ""


BLIND, OWN = ("--target", "blind"), ("--target", "own")
APPLY, STUDY = ("apply", *BLIND), ("apply", *BLIND, "--variant", "study")
DEEP = ("apply", *BLIND, "--variant", "deep")
BUNDLE = ("bundle", *BLIND, "--out", "bundle")
TRAIN, INSTALL = ("apply", *OWN), ("install", *OWN)
COPY = "alpha: {baseline: git, environments: [train]}"
PLACE = "beta: {baseline: installed, sink: installed, environments: [train], imports: []}"
TARGET = """\
description: own
work: ${{WORK:-work}}
upstreams: {{{uses}}}
environments:
  train:
    python: {python}
    without: [absent_module]
    wheels: [extra==1.0]
    protected: [beta]
    ladder:
      step: {{commands: [{{name: say, run: [python, -c, "import alpha; print(alpha.NAME)"], must: [patched]}}]}}
"""


def _without_lock(world: World) -> None:
    (world.root / "patchq.lock").unlink()


def _bundle_apart(world: World) -> None:
    """Keep the bundle only: another host, where there is no queue."""
    shutil.rmtree(world.root)
    shutil.rmtree(world.root.parent / "home")


def _no_queue(world: World) -> None:
    shutil.rmtree(world.root)


def _key(world: World) -> None:
    make_key(world.root.parent / "key")


def _changed(world: World) -> None:
    """The lock of a queue in which something was changed since."""
    shutil.copy(world.root / "patchq.lock", world.root.parent / "old.lock")
    world.write({"alpha/tests/note.txt": "changed", "alpha/tests/more.txt": "new"}).locked()


def _config(world: World) -> None:
    (world.root.parent / "resolved.yaml").write_text("a: 1\n")


STORIES = {
    "init": Story(("init", "--name", "mine"), 0, prepare=_no_queue),
    "lock": Story(("lock",), 0, prepare=_without_lock),
    "bundle": Story((*BUNDLE, "--tar"), 0),
    "bundle signed": Story((*BUNDLE, "--tar", "--sign", "key"), 0, prepare=_key),
    "bundle signed later": Story((*BUNDLE, "--sign", "key"), 0, (BUNDLE,), _key),
    "bundle what is new": Story((*BUNDLE, "--since", "old.lock"), 0, prepare=_changed),
    "apply": Story(APPLY, 4),
    "apply another": Story(STUDY, 4, (APPLY,)),
    "apply a bundle": Story((*APPLY, "--bundle", "bundle"), 4, (BUNDLE,), _bundle_apart),
    "apply in place": Story(TRAIN, 0, trains=PLACE),
    "revert": Story(("revert", *BLIND), 0, (APPLY, STUDY)),
    "revert the first": Story(("revert", *BLIND), 0, (APPLY,)),
    "revert in place": Story(("revert", *OWN), 0, (TRAIN,), trains=PLACE),
    "revert an install": Story(("revert", *OWN), 0, (TRAIN, INSTALL), trains=COPY),
    "prune": Story(("prune", *BLIND, "--keep", "1"), 0, (APPLY, STUDY, DEEP)),
    "verify": Story(("verify", *BLIND), 4, (APPLY,)),
    "install": Story(INSTALL, 0, (TRAIN,), trains=COPY),
    "smoke": Story(("smoke", *OWN, "--from", "step", "--to", "step"), 0, (TRAIN,), trains=COPY),
    "run": Story(("run", *OWN, "--", "true"), 0, (TRAIN, INSTALL), trains=COPY),
    "attach": Story(("record", "attach", "resolved.yaml", "--kind", "resolved-config", *BLIND), 0, (APPLY,), _config),
    "export a record": Story(("record", "export", *BLIND, "--out", "exported"), 0, (APPLY,)),
    "export what is new": Story(("export", "--since", "old.lock", "--out", "exported"), 0, prepare=_changed),
    "export": Story(("export", *BLIND, "--format", "git-am", "--out", "exported"), 0),
}
# These write nothing but objects of the store, which are what their names say or not there.
READING = {"status", "series", "check", "env", "show", "files", "annotate", "graph",
           "record list", "record show", "record diff"}  # fmt: skip


def test_every_verb_is_killed_or_writes_nothing() -> None:
    """A new verb has to be put into one of the two."""
    command = typer.main.get_command(app)
    verbs: set[str] = set()
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        inner = getattr(verb, "commands", None)
        verbs |= {f"{name} {one}" for one in inner} if inner else {name}
    said = [story.words for story in (*STORIES.values(), *AUTHORING.values())]
    killed = {" ".join(words[: 2 if words[0] == "record" else 1]) for words in said}
    assert verbs == killed | READING and not killed & READING


@pytest.fixture
def case(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A queue of its own with store, work area and temporary files, all below one folder that can be put back."""
    with apart(world, tmp_path / "case", monkeypatch) as mine:
        yield mine


@contextmanager
def apart(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A queue of its own for the block, with all that patchq and its user have below `folder`, which is current."""
    mine = world.copy(folder)
    (folder / "tmp").mkdir()
    (folder.parent / "links").mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "home/data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "home/state"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{world.links} {folder.parent.resolve().as_uri()}/links")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("WORK", str(folder / "work"))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(folder)
    with _asked_afresh():
        yield mine


@contextmanager
def _asked_afresh() -> Iterator[None]:
    """Where packages are looked for is asked once a process."""
    for cached in (pip_config, _finders):
        cached.cache_clear()
    yield
    for cached in (pip_config, _finders):
        cached.cache_clear()


def training(world: World, uses: str) -> None:
    """The target `own`, whose environment is a copy of the one that all share, and a wheel for it."""
    folder = world.root.parent
    shutil.copytree(world.python.parents[1], folder / "env", symlinks=True)
    wheel(folder.parent / "links", "extra", "1.0", {"extra/__init__.py": "def main(): print('new')\n"})
    text = textwrap.dedent(TARGET).format(uses=uses, python=json.dumps(str(folder / "env/bin/python")))
    world.write({"targets/own.yaml": text}).locked()


def _force(folder: Path) -> object:
    """What is in force: the queue as patchq sees it, what `current` names, a bundle or an export that can be used, and
    the files of an environment, if no journal says that the next call will settle them."""
    queue = read_queue(folder / "series")[0] if (folder / "series/queue.yaml").is_file() else {}
    links = {str(link.parent.name): str(link.readlink()) for link in folder.glob("work/*/current")}
    made = {name: _bytes(folder / name) for name in ("bundle", "bundle.tar", "exported") if (folder / name).exists()}
    return queue, links, _without_times(made)


def _bytes(path: Path) -> dict[str, tuple[str, bytes]]:
    """Of a file, or of all below a folder."""
    return {"": ("file", path.read_bytes())} if path.is_file() else contents(path)


def _without_times(made: dict[str, dict[str, tuple[str, bytes]]]) -> object:
    return {name: sorted(files) if "RECORD.md" in files else files for name, files in made.items()}


def _environment(folder: Path) -> object:
    """The files of the environment that can be written; None where a journal says that the next call settles them."""
    if any(map(unfinished, folder.glob("work/installs/*"))):
        return None
    if any(phase_of(journal) in ("placing", "taking back") for journal in folder.glob("work/journals/*")):
        return None
    return {path: found for path, found in contents(folder / "env").items() if "__pycache__" not in path}


def _state(folder: Path, code: int) -> object:
    """All that a person sees: what is in force, each work copy's bytes, whether a record says so, what lies about."""
    copies = {path: contents(folder / path) for path in _copies(folder)}
    records = [said for place in folder.glob("work/records/*/record.json") if (said := _said(place))[1] == code]
    about = sorted({path.name for path in (*folder.glob("*"), *folder.glob("work/*")) if ".new-" not in path.name})
    return _force(folder), _environment(folder), copies, sorted(records)[-1:], about, _held_up(folder)


def _held_up(folder: Path) -> list[str]:
    """What lies in the folders of leases, temporary files, and journals that had begun."""
    places = ("work/leases/*", "work/journals/*/commit", "work/installs/*/*/state", "tmp/*")
    return [place for place in places for _ in folder.glob(place)]


def _copies(folder: Path) -> list[str]:
    """The work copies that go by a commit's name, and what a prune has not removed to the end."""
    found = (*folder.glob("work/alpha/" + "[0-9a-f]" * 40), *folder.glob("work/alpha/.new-pruned-*"))
    return sorted(str(copy.relative_to(folder)) for copy in found)


def _said(path: Path) -> tuple[str, int]:
    record = json.loads(path.read_bytes())
    return record["verb"], record["exit"]


def left(folder: Path) -> list[str]:
    """What is no file or folder of its own but on the way to be one."""
    found = (*folder.rglob(".new-*"), *folder.rglob(".*.patchq-new"), *folder.glob("tmp/*"))
    return sorted(str(path.relative_to(folder)) for path in found)


def _disturbed(story: Story, world: World, tmp_path: Path, faults: Callable[[int], list[Fault]]) -> None:
    folder = world.root.parent
    if story.trains:
        training(world, story.trains)
    for words in story.before:
        assert patchq(*words) in (0, 4)
    if story.prepare:
        story.prepare(world)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept, symlinks=True)
    old, old_environment = _force(folder), _environment(folder)
    whole = {path: contents(folder / path) for path in _copies(folder)}
    undisturbed = in_child(lambda: patchq(*story.words), Fault(within=folder))
    assert undisturbed.code == story.code
    after, new, environment = _state(folder, story.code), _force(folder), _environment(folder)
    whole |= {path: contents(folder / path) for path in _copies(folder)}
    for fault in faults(undisturbed.operations):
        _put_back(kept, folder)
        ended = in_child(lambda: patchq(*story.words), fault)
        assert ended.code in fault.codes(story.code, ended.is_struck), (fault, ended)
        assert _force(folder) in (old, new), fault
        assert _environment(folder) in (old_environment, environment, None), fault
        assert all(contents(folder / path) == whole[path] for path in _copies(folder) if ".new-" not in path), fault
        if ended.code == INTERRUPTED:
            pruning = [path for path in left(folder) if "/.new-pruned-" in path]  # what a prune was at
            assert left(folder) == pruning, (fault, "an interrupt leaves nothing behind")
        if _state(folder, story.code) != after:
            again = patchq(*story.words) if story.words[0] != "run" else in_child(lambda: patchq(*story.words)).code
            assert again == story.code or _state(folder, story.code) == after, (fault, again)
            assert not left(folder) or ended.code == KILLED, (fault, left(folder))
            assert not [path for path in left(folder) if not path.startswith("tmp/")], (fault, left(folder))
        shutil.rmtree(folder / "tmp")  # what a kill leaves of temporary files is the machine's to clear
        (folder / "tmp").mkdir()
        assert _state(folder, story.code) == after, fault


def _put_back(kept: Path, folder: Path) -> None:
    for place in folder.iterdir():
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)


QUICK = [pytest.param("apply another", 2)]
SLOW = [pytest.param(name, SAMPLE, marks=pytest.mark.fault) for name in STORIES]


@pytest.mark.parametrize(("name", "most"), QUICK + SLOW)
def test_killed_at_each_file_operation(name: str, most: int, case: World, tmp_path: Path) -> None:
    within = case.root.parent
    _disturbed(STORIES[name], case, tmp_path, lambda count: [Fault(at, within=within) for at in points(count, most)])


@pytest.mark.fault
@pytest.mark.parametrize("name", STORIES)
def test_interrupted_at_each_file_operation(name: str, case: World, tmp_path: Path) -> None:
    """Before it, and after it, which is another thing: what was just made is not known yet."""

    def faults(count: int) -> list[Fault]:
        spots = points(count, SAMPLE)
        pairs = (
            [(at, bool(number % 2)) for number, at in enumerate(spots)]
            if SAMPLE
            else [(at, after) for at in spots for after in (False, True)]
        )
        return [Fault(at, within=case.root.parent, signal=signal.SIGINT, after=after) for at, after in pairs]

    _disturbed(STORIES[name], case, tmp_path, faults)


@pytest.mark.fault
@pytest.mark.parametrize("name", STORIES)
def test_told_no_at_each_file_operation(name: str, case: World, tmp_path: Path) -> None:
    within = case.root.parent

    def faults(count: int) -> list[Fault]:
        spots = points(count, SAMPLE)
        if SAMPLE:
            return [Fault(at, ERRORS[number % 3], within) for number, at in enumerate(spots)]
        return [Fault(at, error, within) for at in spots for error in ERRORS]

    _disturbed(STORIES[name], case, tmp_path, faults)
