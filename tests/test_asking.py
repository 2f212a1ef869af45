"""Nothing asks where stdin is no terminal: no verb reads it, and what would ask says what to say instead."""

from __future__ import annotations

import ast
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from world import World, diff_of, git, header, patchq, write

from patchq.cli.app import app

PATCHQ = Path(__file__).parents[1] / "patchq"
ASKING = {"typer.confirm", "typer.prompt", "getpass.getpass", "sys.stdin", "input"}

# Every verb in a queue with an edit copy, a lock and an applied target, in an order in which each has something to do.
WORDS = (
    ("init", "new-queue"),
    ("status",),
    ("series", "--target", "blind"),
    ("check", "--target", "blind"),
    ("lock", "--check"),
    ("bundle", "--target", "blind", "--out", "bundle"),
    ("apply", "--target", "blind"),
    ("verify", "--target", "blind"),
    ("env", "--target", "blind", "--env", "train"),
    ("smoke", "--target", "blind", "--env", "train"),
    ("run", "--target", "blind", "--env", "train", "--", "true"),
    ("install", "--target", "blind", "--env", "train"),
    ("record", "list", "--target", "blind"),
    ("record", "show", "nothing", "--target", "blind"),
    ("record", "diff", "nothing", "nothing", "--target", "blind"),
    ("record", "attach", "nothing", "README", "--target", "blind"),
    ("record", "export", "nothing", "--target", "blind"),
    ("revert", "--target", "blind"),
    ("prune", "--target", "blind"),
    ("edit", "--target", "blind", "alpha"),
    ("new", "alpha/device/empty"),
    ("refresh", "edit/blind/alpha"),
    ("show", "rename-it"),
    ("files",),
    ("annotate", "alpha/core.py", "--target", "blind"),
    ("graph", "--target", "blind"),
    ("export", "--target", "blind", "--format", "quilt", "--out", "exported"),
    ("import", "loose.patch", "--upstream", "alpha", "--layer", "device"),
    ("rebase", "alpha", "--plan", "--to", "main"),
    ("rebase", "alpha", "--to", "main"),
    ("drop", "rename-it"),
)


class Untouchable(io.TextIOWrapper):
    """A stdin that is no terminal, and that nobody may read."""

    def __getattribute__(self, name: str) -> object:
        if name.startswith(("read", "__next__", "__iter__", "buffer", "detach")):
            pytest.fail(f"stdin.{name}: something was asked")
        return super().__getattribute__(name)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard input, also of what is started, is a pipe into which nobody ever writes."""
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    monkeypatch.setattr(sys, "stdin", Untouchable(io.BytesIO()))
    yield
    os.dup2(kept, 0)
    for descriptor in (reading, writing, kept):
        os.close(descriptor)


def verbs() -> set[str]:
    """Every verb, with those of `record`."""
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    inner = known["record"].commands
    return {*known, *(f"record {name}" for name in inner)} - {"record"}


@pytest.mark.fault
@pytest.mark.usefixtures("silence")
def test_no_verb_reads_a_stdin_that_is_no_terminal(
    own: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = {" ".join(words[:2]) if words[0] == "record" else words[0] for words in WORDS}
    assert said == verbs()
    room = own.root.parent
    loose = header("Loose") + diff_of(own.alpha, {"alpha/loose.py": b"loose = 1\n"}, keep=False)
    write(room, {"loose.patch": loose, "README": b"x\n"})
    (room / "new-queue").mkdir()
    monkeypatch.chdir(room)
    monkeypatch.setattr("patchq.process.become", lambda _: None)
    for words in WORDS:
        code = patchq(*words)
        told = capfd.readouterr().err
        assert code in (0, 1, 2, 3, 4, 5), (words, told)
        assert "Traceback" not in told, words
    assert code == 1 and "say --yes" in told
    assert patchq("drop", "rename-it", "--yes") == 0


@pytest.mark.usefixtures("silence")
def test_two_names_in_one_commit_are_asked_about(
    own: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(own.root.parent)
    assert patchq("edit", "--target", "small", "alpha") == 0
    copy = own.root.parent / "edit/small/alpha"
    message = git(copy, "log", "-1", "--format=%B").rstrip()
    git(copy, "commit", "-q", "--amend", "-m", f"{message}\nPatchq-Patch: alpha/device/rename-it.patch")
    assert patchq("refresh", copy) == 1
    assert "say --yes" in capsys.readouterr().err
    assert patchq("refresh", copy, "--yes") == 0


def test_only_one_place_asks() -> None:
    """By name: `confirm` and its kin, and stdin itself, stand in the command line's one class of answers."""
    found: dict[str, set[str]] = {}
    for path in sorted(PATCHQ.rglob("*.py")):
        if not any(word.rpartition(".")[2] in path.read_text("utf-8") for word in ASKING):
            continue
        if path.is_relative_to(PATCHQ / "probes"):
            continue  # scripts of the training interpreter, whose stdin is their question
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name)) else ""
            if name in ASKING:
                found.setdefault(path.relative_to(PATCHQ).as_posix(), set()).add(name)
    assert found == {"cli/authoring.py": {"typer.confirm", "sys.stdin"}}
