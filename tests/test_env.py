"""`env`: shell lines that make the environment, in any shell, and that stop the shell where they can't."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from world import World, patchq

from patchq.commands.apply import apply
from patchq.commands.env import env
from patchq.errors import Invalid, Refused

SHELLS = [shell for shell in ("bash", "dash", "sh") if shutil.which(shell)]


@pytest.fixture(scope="module")
def made(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Applied for `blind`, whose environment has something to say on every line."""
    mine = world.copy(tmp_path_factory.mktemp("a folder") / "own queue")
    profile = mine.folder.parent / "vendor's profile.sh"
    profile.write_text("export VENDOR_SDK=/opt/sdk PYTHONPATH=/opt/vendor LATER=profile FORBIDDEN=vendor\n")
    text = (mine.root / "targets/blind.yaml").read_text()
    mine.write({"targets/blind.yaml": text + f"""\
    profile: "{profile}"
    require: [VENDOR_SDK]
    forbid: [FORBIDDEN]
    set: {{LATER: "it's $HOME `x`", ONE: "a b", TWO: "${{HOST_VALUE:-none}}"}}
"""}).locked()  # fmt: skip
    assert apply(mine.place, "blind").exit_code == 4
    return mine


def run(shell: str, script: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A script in a shell with a plain environment."""
    plain = {"PATH": os.environ["PATH"], "HOME": str(cwd), **more}
    return subprocess.run([shell, "-c", script], cwd=cwd, env=plain, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", ["source", "eval"])
def test_the_lines_make_the_environment(made: World, shell: str, how: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines.sh"
    lines.write_text(env(made.place, "blind", None).output)
    head = f". {shlex.quote(str(lines))}" if how == "source" else f'eval "$(cat {shlex.quote(str(lines))})"'
    inherited = {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/mine", "FORBIDDEN": "mine", "PYTHONSTARTUP": "/x"}
    done = run(shell, f"set -eu; {head}; env -0", tmp_path, **inherited)
    assert done.returncode == 0, done.stderr
    seen = dict(row.split("=", 1) for row in done.stdout.split("\0") if row)
    copy = (made.work / "alpha/current").resolve()
    assert seen["PYTHONPATH"] == f"{copy}:/opt/vendor"
    assert seen["PATH"].startswith("/nowhere:")
    assert seen["PYTHONNOUSERSITE"] == "1" and seen["PYTHONPYCACHEPREFIX"] == str(made.work / "pycache")
    assert (seen["LATER"], seen["ONE"], seen["TWO"]) == ("it's $HOME `x`", "a b", "none")
    assert seen["VENDOR_SDK"] == "/opt/sdk"
    assert not {"PYTHONHOME", "PYTHONSTARTUP", "FORBIDDEN"} & seen.keys()
    assert len(os.fsencode(seen["RAY_TMPDIR"])) <= 107 - 68 and Path(seen["RAY_TMPDIR"]).is_dir()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("how", ["source", "eval"])
@pytest.mark.parametrize("fault", ["profile", "require"])
def test_a_failing_profile_or_a_missing_variable_stops_the_shell(
    made: World, shell: str, how: str, fault: str, tmp_path: Path
) -> None:
    text = env(made.place, "blind", None).output
    broken = text.replace("vendor's profile.sh", "no profile.sh").replace("vendor'\"'\"'s profile.sh", "no profile.sh")
    if fault == "require":
        broken = text.replace("VENDOR_SDK:-", "NOT_SET_ANYWHERE:-")
    assert broken != text
    (tmp_path / "lines.sh").write_text(broken)
    script = ". ./lines.sh && echo went on" if how == "source" else 'eval "$(cat lines.sh)"\necho went on'
    done = run(shell, script, tmp_path)
    assert done.returncode != 0 and "went on" not in done.stdout


@pytest.mark.fault
@pytest.mark.parametrize("shell", SHELLS)
def test_where_env_fails_the_shell_stops_even_under_eval(made: World, shell: str, tmp_path: Path) -> None:
    """`eval "$(false)"` goes on, so that the failing verb itself prints the line that stops."""
    words = [sys.executable, "-m", "patchq", "env", "--target", "plain", "--queue", str(made.root)]
    script = f'eval "$({shlex.join(words)})"\necho went on'
    done = run(shell, script, tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    assert done.returncode == 1 and "went on" not in done.stdout
    assert "nothing was applied for plain" in done.stderr


def test_usage_errors_stop_the_shell_too(made: World, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--target"], [], ["--target", "blind", "--env", "nope"], ["--target", "none"]):
        assert patchq("env", *words, "--queue", made.root) == 2
        assert capsys.readouterr().out == "return 1 2>/dev/null || exit 1\n"
    assert patchq("env", "--target", "none", "--json", "--queue", made.root) == 2
    assert capsys.readouterr().out.startswith("{")


def test_env_is_only_for_what_was_applied(own: World) -> None:
    with pytest.raises(Refused, match="nothing was applied for blind on this host"):
        env(own.place, "blind", None)
    apply(own.place, "blind")
    with pytest.raises(Refused, match="the last apply was of another lock or variant"):
        env(own.place, "blind", None, "deep")
    with pytest.raises(Invalid, match="has no environment 'nope'"):
        env(own.place, "blind", "nope")
    apply(own.place, "blind", "deep")
    assert env(own.place, "blind", None).data["variant"] == "deep"
    (own.work / "alpha/current").unlink()
    with pytest.raises(Refused, match="is not the one that was applied"):
        env(own.place, "blind", None)


def test_one_of_several_environments_has_to_be_chosen(own: World) -> None:
    text = (own.root / "targets/blind.yaml").read_text()
    own.write({"targets/blind.yaml": text + "  other:\n    python: /nowhere\n"}).locked()
    with pytest.raises(Invalid, match=r"has the environments train, other \(say --env NAME\)"):
        env(own.place, "blind", None)


def test_a_host_value_is_read_where_it_is_used(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_VALUE", "from the shell")
    assert "export TWO='from the shell'" in env(made.place, "blind", None).output
    (made.work / "host.yaml").write_text("variables: {HOST_VALUE: from the file}\n")
    monkeypatch.delenv("HOST_VALUE")
    try:
        assert "export TWO='from the file'" in env(made.place, "blind", None).output
    finally:
        (made.work / "host.yaml").unlink()
