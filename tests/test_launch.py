"""The lines that launch: whatever the values are, a child sees them as they are."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid
from patchq.machine.launch import FAIL_CLOSED, Launch
from patchq.workarea import RAY_BYTES, SOCKET_BYTES, WorkArea

LAUNCH = Launch(
    title="t", python=Path("/usr/bin/python3"), profile="", import_roots=(Path("/a b"), Path("/c")),
    pycache=Path("/tmp/pq-test/pyc"), ray_folder=Path("/tmp/pq-test-ray"),
)  # fmt: skip


def seen(launch: Launch, *words: str, **inherited: str) -> dict[str, str]:
    """The environment of a child, `env -0`, and its arguments as ARGS."""
    argv = launch.argv(["bash", "-c", 'env -0; printf "ARGS=%s\\0" "$*"', "x", *words])
    done = subprocess.run(argv, env={"PATH": os.environ["PATH"], **inherited}, capture_output=True, check=True)
    return dict(os.fsdecode(row).split("=", 1) for row in done.stdout.split(b"\0") if row)


_VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=15, deadline=None)
@given(value=_VALUES, title=_VALUES, word=_VALUES, folder=_VALUES.filter(lambda text: text and ":" not in text))
def test_any_value_arrives_as_it_is(value: str, title: str, word: str, folder: str) -> None:
    title = " ".join(title.split())
    launch = replace(LAUNCH, title=title, variables=(("VALUE", value),), import_roots=(Path("/") / folder.strip("/"),))
    child = seen(launch, word)
    assert child["VALUE"] == value and child["ARGS"] == word
    assert child["PYTHONPATH"] == str(Path("/") / folder.strip("/"))


def test_what_steers_another_python_is_cleared(tmp_path: Path) -> None:
    steering = {"PYTHONHOME": "/x", "PYTHONPATH": "/y", "PYTHONSTARTUP": "/z", "PYTHONUSERBASE": "/u", "GONE": "1"}
    child = seen(replace(LAUNCH, forbidden=("GONE",)), **steering)
    assert not {"PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "GONE"} & child.keys()
    assert child["PYTHONPATH"] == "/a b:/c" and child["PYTHONNOUSERSITE"] == "1"
    assert "PYTHONPATH" not in seen(replace(LAUNCH, import_roots=()), **steering)


def test_targets_values_win_over_the_profiles_and_roots_stand_before_its_path(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("export ONE=profile TWO=profile PYTHONPATH=/vendor PYTHONHOME=/vendor\n")
    child = seen(replace(LAUNCH, profile=str(tmp_path / "profile"), variables=(("ONE", "target"),)))
    assert (child["ONE"], child["TWO"]) == ("target", "profile")
    assert child["PYTHONPATH"] == "/a b:/c:/vendor"


def test_demands_are_made_only_where_they_are_checked() -> None:
    launch = replace(LAUNCH, required=("NEEDED",))
    assert "NEEDED" in launch.lines() and FAIL_CLOSED in launch.lines()
    assert "NEEDED" not in launch.lines(check=False)


def test_ray_sockets_fit_or_it_is_said() -> None:
    room = SOCKET_BYTES - RAY_BYTES
    assert replace(LAUNCH, ray_folder=Path("/" + "x" * (room - 1))).lines()
    with pytest.raises(Invalid, match=rf"RAY_TMPDIR has {room + 1} bytes; Ray's socket names leave room for {room}"):
        replace(LAUNCH, ray_folder=Path("/" + "x" * room)).lines()
    with pytest.raises(Invalid, match="choose a shorter path"):
        replace(LAUNCH, variables=(("RAY_TMPDIR", "/" + "ü" * room),)).lines()


@pytest.mark.parametrize("length", [1, 20, 36, 37, 60, 200])
def test_a_work_area_finds_room_for_rays_sockets(length: int) -> None:
    folder = WorkArea(Path("/" + "x" * length)).ray_folder()
    assert len(os.fsencode(folder)) <= SOCKET_BYTES - RAY_BYTES
    assert (folder.parent == Path("/" + "x" * length)) == (length + 1 + 2 + RAY_BYTES <= SOCKET_BYTES)
