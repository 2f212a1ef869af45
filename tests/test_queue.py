"""Reading a whole queue: every file of it, every problem at once, and where verbs find it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from world import World, header, patchq

from patchq.commands.init import init
from patchq.commands.place import Place
from patchq.commands.status import status
from patchq.errors import Invalid, Refused
from patchq.lock import load_lock
from patchq.queue.find import find_patch
from patchq.queue.host import Host
from patchq.queue.load import find_root, load_queue


def problems(root: Path) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load_queue(root)
    return [str(problem).replace(str(root.resolve()) + "/", "") for problem in caught.value.problems]


def test_a_queue_is_read_whole(world: World) -> None:
    queue = world.place.queue
    assert list(queue.upstreams) == ["alpha", "beta"]
    assert set(queue.targets) == {"small", "tiny", "plain", "blind", "site"} and set(queue.variants) == {
        "study",
        "deep",
    }
    alpha = queue.upstreams["alpha"]
    assert [queued.name for queued in alpha.patches][:2] == [
        "alpha/device/rename-it.patch", "alpha/device/small-only.patch",
    ]  # fmt: skip
    assert all(queued.patch for queued in alpha.patches)
    assert "alpha/tests/test_name.py" in queue.digests and "patchq.lock" not in queue.digests


def test_every_problem_of_every_file_is_said_at_once(own: World) -> None:
    own.write({
        "queue.yaml": "schema: 1\nname: trial\ncolour: red\n",
        "targets/small.yaml": "description: x\nwork: w\nupstreams: {}\nenvironments: {a: {python: 3.1}}\n",
        "targets/tiny.yaml": "description: x\nwork: w\nupstreams: {alpha: {baseline: sdist, sink: installed, "
        "environments: [a]}}\nenvironments: {a: {python: p}}\n",
        "variants/study.yaml": "research: [alpha/research/later]\n",
        "alpha/baseline.yaml": 'upstream: gamma\nversion: "1"\npackages: [alpha]\ngit: {commit: main, source: x}\n',
        "alpha/series": "device/one.patch -R\n",
        "beta/baseline.yaml": 'upstream: beta\nversion: "1"\npackages: [beta]\n',
        "beta/device/stray.patch": "x",
    })  # fmt: skip
    (own.root / "link").symlink_to("queue.yaml")
    found = problems(own.root)
    for expected in (
        "queue.yaml:3: unknown key 'colour'",
        "targets/small.yaml:4: environments.a.python: YAML reads 3.1 as a number (put it in quotes)",
        "targets/tiny.yaml:3: upstreams.alpha: the sink 'installed' goes with the baseline 'installed'",
        "variants/study.yaml:1: the key 'description' is missing",
        "alpha/baseline.yaml:4: git.commit: a full commit id of 40 hex digits is due",
        "alpha/series:1: -R is not supported",
        "beta/baseline.yaml:1: the document: one of git, sdist is due",
        "link: is not a plain file; a queue holds nothing else",
    ):
        assert any(expected in problem for problem in found), (expected, found)


def test_a_patch_that_no_line_names_is_an_error(own: World) -> None:
    own.write({"beta/device/stray.patch": header("x")})
    assert problems(own.root) == [
        "beta/device/stray.patch: is in no series line (list it in beta/series, or remove it)"
    ]


def test_the_folder_and_the_name_agree(own: World) -> None:
    (own.root / "beta").rename(own.root / "gamma")
    assert "gamma/baseline.yaml: upstream is 'beta', the folder 'gamma'" in problems(own.root)


def test_every_file_is_read_and_a_patch_understood_when_it_is_asked_about(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("patchq.patch.parse_patch", lambda name, *_: asked.append(name))
    queue = load_queue(own.root)
    upstream = queue.upstream("alpha")
    assert not asked and {f"alpha/{entry.name}" for entry in upstream.series.entries} <= set(queue.digests)
    assert [queued.name for queued in upstream.patches if queued.patch is None] == asked


def test_what_is_wrong_inside_one_patch_stops_nothing_else(own: World) -> None:
    own.write({"alpha/device/rename-it.patch": "not a diff\n+++ x\n@@ -1\n", "alpha/device/small-only.patch": None})
    by_name = {queued.entry.name: queued for queued in load_queue(own.root).upstreams["alpha"].patches}
    assert by_name["device/rename-it.patch"].patch is None and by_name["device/rename-it.patch"].problems
    (missing,) = by_name["device/small-only.patch"].problems
    assert missing.what == "device/small-only.patch is listed but not there" and missing.where.endswith(
        "alpha/series:3"
    )
    assert by_name["device/all-kinds.patch"].patch


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        ("1234567890123456789012345678901234567890", "git.commit: YAML reads"),
        ('"main"', "a branch, tag or short id can move"),
        ('"1bf9d2d"', "a full commit id of 40 hex digits is due"),
        (f'"{"A" * 40}"', "a full commit id of 40 hex digits is due"),
    ],
)
def test_a_baseline_is_a_full_id_and_text(own: World, commit: str, expected: str) -> None:
    own.write(
        {"alpha/baseline.yaml": f'upstream: alpha\nversion: "1"\npackages: [a]\ngit: {{commit: {commit}, source: x}}\n'}
    )
    assert any(expected in problem for problem in problems(own.root))


@pytest.mark.parametrize("path", ["..", "/etc", "a/../../b", ".git", "a//b", ""])
def test_folders_of_a_baseline_stay_inside(own: World, path: str) -> None:
    own.write({"alpha/baseline.yaml": 'upstream: alpha\nversion: "1"\npackages: [a]\n'
               f'git: {{commit: "{"1" * 40}", source: x}}\nroot: "{path}"\n'})  # fmt: skip
    assert any("a relative path inside the tree is due" in problem for problem in problems(own.root))


def test_targets_name_upstreams_and_baselines_that_are_there(own: World) -> None:
    head = "description: x\nwork: w\nenvironments: {e: {python: p}}\nupstreams: "
    own.write({
        "targets/tiny.yaml": head + "{alfa: {baseline: git, environments: [e]}}\n",
        "targets/small.yaml": head + "{alpha: {baseline: sdist, environments: [e, f]}}\n",
    })  # fmt: skip
    assert problems(own.root) == [
        "targets/small.yaml:4: alpha declares no sdist baseline",
        "targets/small.yaml:4: 'f' is not among the environments of this target (known: e)",
        "targets/tiny.yaml:4: there is no upstream 'alfa' (did you mean 'alpha'?)",
    ]
    assert patchq("check", "--queue", own.root) == 2


def test_targets_name_environments_that_are_there_and_force_has_a_reason(own: World) -> None:
    own.write({
        "targets/small.yaml": "description: x\nwork: w\ntraits: [UP]\ninclude: [{match: a, force: true}]\nupstreams: "
        "{alpha: {baseline: git, environments: [nope]}}\nenvironments: {a: {python: p, version: \"2.7\"}}\n",
    })  # fmt: skip
    found = problems(own.root)
    assert any("force needs a reason" in problem for problem in found), found
    assert any("traits.0" in problem for problem in found) and any("version" in problem for problem in found)


def test_hidden_files_are_no_part_of_a_queue(own: World) -> None:
    before = load_queue(own.root).digests
    own.write({".gitattributes": "x", ".hidden/y": "x", "alpha/.series.swp": "x", "alpha/__pycache__/a.pyc": "x"})
    assert load_queue(own.root).digests == before


def test_a_queue_is_found_from_below_and_named_where_it_is_not(
    own: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_root(own.root / "alpha/device") == own.root == find_root(own.root.parent)
    assert find_root(tmp_path) is None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(Invalid, match="there is no queue here, and none was applied on this host"):
        Place.find(None)
    with pytest.raises(Invalid, match=r"a queue has series/queue\.yaml"):
        Place.find(tmp_path)
    with pytest.raises(Invalid, match=r"it has no queue\.yaml"):
        load_queue(tmp_path)


def test_a_patch_is_found_by_its_name_or_the_end_of_it(world: World) -> None:
    queue = world.place.queue
    for text in ("alpha/device/small-only.patch", "alpha/device/small-only", "device/small-only", "small-only.patch"):
        assert find_patch(queue, text).name == "alpha/device/small-only.patch"
    with pytest.raises(Invalid, match="did you mean 'small-only'"):
        find_patch(queue, "smal-only")
    with pytest.raises(Invalid, match="there is no patch 'only'"):
        find_patch(queue, "only")


def test_a_name_that_may_mean_two_is_asked_for_in_full(own: World) -> None:
    own.write(
        {"beta/device/small-only.patch": header("x"), "beta/series": "device/double.patch\ndevice/small-only.patch\n"}
    )
    with pytest.raises(Invalid, match=r"may be alpha/device/small-only\.patch, beta/device/small-only\.patch"):
        find_patch(load_queue(own.root), "small-only")


def test_names_of_nothing_get_the_nearest_one(world: World) -> None:
    queue = world.place.queue
    for call, name, hint in (
        (queue.target, "smal", "small"),
        (queue.variant_name, "stdy", "study"),
        (queue.upstream, "alfa", "alpha"),
    ):
        with pytest.raises(Invalid, match=f"did you mean '{hint}'"):
            call(name)
    assert queue.variant_name(None) is None


# What differs from host to host.


def test_variables_come_from_the_shell_then_from_the_host_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host.yaml").write_text("variables: {ONE: file, TWO: file}\n")
    monkeypatch.setenv("ONE", "shell")
    monkeypatch.setenv("EMPTY", "")
    host = Host.here(tmp_path)
    assert (
        host.expand("${ONE}/${TWO}/${THREE:-default}/${FOUR:-}/$ONE/${EMPTY:-x}", "f") == "shell/file/default//$ONE/x"
    )
    with pytest.raises(Invalid, match="f: the variable THREE is not set"):
        host.expand("${THREE}", "f")
    assert host.path("a/${TWO}", "f", tmp_path) == tmp_path / "a/file"
    assert host.path("~/x", "f", tmp_path) == Path.home() / "x"
    assert Path(host.expand("${PATCHQ_PYTHON}", "f")).is_file()


def test_a_wrong_host_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "host.yaml").write_text("variables: {ONE: 1}\nmore: x\n")
    with pytest.raises(Invalid, match=r"host\.yaml:1: variables\.ONE: YAML reads 1 as a number"):
        Host.here(tmp_path)


# Starting one, and looking at one.


@pytest.mark.parametrize("name", ["plain", "with blanks", "ünïcode", "123", "-dash", "yes", "."])
def test_init_starts_a_queue_that_every_verb_takes(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    assert init(folder).exit_code == 0
    for verb in ("status", "check", "lock"):
        assert patchq(verb, "--queue", folder) == 0, verb
    with pytest.raises(Refused, match="there is a queue here already"):
        init(folder)


def test_init_takes_a_name_or_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    init(tmp_path, "mine-1")
    assert load_queue(tmp_path / "series").settings.name == "mine-1"
    with pytest.raises(Invalid, match="name"):
        init(tmp_path.parent, "two words")
    with pytest.raises(Invalid, match="there is no such folder"):
        init(tmp_path / "none")


def test_status_is_the_queue_at_a_glance(own: World, capsys: pytest.CaptureFixture[str]) -> None:
    report = status(own.place)
    assert report.exit_code == 0
    assert report.data["matrix"]["alpha/device/small-only.patch"] == {
        "blind": "in", "plain": "out", "small": "in", "tiny": "in",
    }  # fmt: skip
    assert report.data["matrix"]["alpha/research/later.patch"]["plain"] == "+deep,study"
    assert json.dumps(report.as_json())
    assert patchq("status", "--queue", own.root) == 0
    shown = capsys.readouterr().out
    assert "✓ lock  fresh" in shown and "+deep,study" in shown
    own.write({"queue.yaml": "schema: 1\nname: other\n"})
    assert "stale: 1 files differ from it" in "".join(step.summary for step in status(own.place).steps)
    (own.root / "patchq.lock").unlink()
    assert "the queue has no lock" in "".join(step.summary for step in status(own.place).steps)
    assert os.environ.get("WORK") is None


@pytest.mark.parametrize("verb", [["check"], ["status"], ["series", "--target", "blind"]], ids=lambda words: words[0])
def test_outside_a_queue_the_one_applied_last_is_named(
    own: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    """Not some other queue, silently: the report says which one it is about, and how to choose."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert patchq("apply", "--target", "blind", "--queue", own.root) == 4
    capsys.readouterr()
    monkeypatch.chdir(own.root.parent)
    patchq(*verb, "--json")
    assert "applied last" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    patchq(*verb, "--json")
    first = json.loads(capsys.readouterr().out)["steps"][0]
    queue = own.work / "queue" / load_lock(own.place.queue).digest / "series"
    assert (first["name"], first["state"]) == ("queue", "note")
    assert first["summary"] == f"{queue}, as applied last on this host: there is none at {tmp_path}"
    assert first["hint"] == "go to a folder with series/, or say --queue"
