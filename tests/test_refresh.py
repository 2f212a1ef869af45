"""Refresh loses nothing: what did not change stays byte for byte, what did is followed, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import Bench, make_bench, name, numbered_patch, ten

from patchq.errors import DoesNotApply, Invalid, Refused
from patchq.patch import parse_patch
from patchq.report import Report, State
from patchq.store.apply import Applier


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = ten(tmp_path, monkeypatch)
    made.edit()
    return made


def states(report: Report) -> dict[str, State]:
    return {step.name: step.state for step in report.steps}


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {path for path in {*before, *after} if before.get(path) != after.get(path)}


def commit(bench: Bench, message: str, *more: str) -> None:
    bench.git("commit", "-q", "-a", "-m", message, *more)


def test_the_round_trip_is_byte_identical(bench: Bench) -> None:
    before = bench.files()
    bench.git("rebase", "-q", "--force-rebase", "baseline")  # other ids, the same commits
    report = bench.refresh()
    assert {step.state for step in report.steps} == {State.UNCHANGED} and not report.data["written"]
    assert bench.files() == before
    assert bench.refresh(is_check=True).exit_code == 0


def test_patches_with_no_path_in_common_are_asked_about_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six are one question to git each time; a new text among them is one more."""
    diffs = {
        f"device/{n}.patch": f"Description: {n}\n\n--- /dev/null\n+++ b/new{n}.py\n@@ -0,0 +1 @@\n+{n}\n"
        for n in range(6)
    }
    bench = make_bench(tmp_path, {path: text.encode() for path, text in diffs.items()}, list(diffs), monkeypatch)
    bench.edit()
    asked: list[bytes] = []
    apply = Applier.apply
    monkeypatch.setattr(Applier, "apply", lambda self, diff, *rest, **more: (
        asked.append(diff), apply(self, diff, *rest, **more))[1])  # fmt: skip
    assert {step.state for step in bench.refresh().steps} == {State.UNCHANGED}
    assert len(asked) == 1 and asked[0].count(b"/dev/null") == 6
    bench.change("new3.py", "3", "three")
    bench.refresh(into="3")
    assert len(asked) == 3 and bench.read("up/device/3.patch").endswith(b"+three\n")


def test_an_edit_in_the_middle(bench: Bench) -> None:
    """One patch gets a new diff; those behind it keep their bytes; every target that has it is told."""
    before = bench.files()
    bench.change("app.py", "line 5.3 patched", "line 5.3 patched better")
    report = bench.refresh(into="change-5")
    assert report.exit_code == 0
    assert differing(before, bench.files()) == {f"up/{name(5)}"}
    after = bench.read(f"up/{name(5)}")
    assert after.startswith(
        before[f"up/{name(5)}"].partition(b"\nIndex:")[0] + b"\ndiff --git a/app.py b/app.py\nindex "
    )
    assert after.count(b"\n-") == 2 and b"+    line 5.3 patched better\n" in after and after.endswith(b"line 5.6\n")
    keys = {step.name for step in report.steps if step.group}
    assert keys == {"ppu/up", "gpu/up", "ppu+loss/up", "gpu+loss/up"}
    assert bench.git("status", "--porcelain") == ""
    assert "patchq: refresh" in bench.git("reflog")
    assert bench.refresh().data["written"] is False


@pytest.mark.fault
def test_new_text_does_not_depend_on_the_target(bench: Bench) -> None:
    """Change 4 is gpu's alone, so that lines below it stand elsewhere for ppu; the text is the same from both."""
    texts = []
    for target in ("ppu", "gpu"):
        copy = bench.edit(target)
        place = copy / "app.py"
        place.write_text(place.read_text().replace("line 6.3 patched", "line 6.3 new"))
        before = bench.read(f"up/{name(6)}")
        bench.refresh(copy, into="change-6")
        texts.append(bench.read(f"up/{name(6)}"))
        bench.write(f"up/{name(6)}", before)
    assert texts[0] == texts[1] and b"@@ -68,7 +68,8 @@" in texts[0]


def test_conflicts_stop_and_leave_everything(bench: Bench) -> None:
    """The first patch is to lose a line that a later one builds on."""
    bench.change("app.py", "line 3.3 patched", "line 3.3 twice")
    commit(bench, "Build on it")
    bench.change("app.py", "line 3.3 twice", "line 3.3 thrice")
    before, tip = bench.files(), bench.git("rev-parse", "HEAD")
    with pytest.raises(DoesNotApply, match="conflict") as caught:
        bench.refresh(into="change-3", layer="device")
    assert caught.value.problems[0].where == "app.py"
    assert (bench.files(), bench.git("rev-parse", "HEAD")) == (before, tip)
    assert "thrice" in (bench.copy / "app.py").read_text()


def test_into_needs_edits_and_a_patch(bench: Bench) -> None:
    with pytest.raises(Refused, match="no uncommitted edits"):
        bench.refresh(into="change-3")
    bench.change("README", "hello", "hi")
    with pytest.raises(Invalid, match=r"--into change-4: no patch of this copy is meant"):
        bench.refresh(into="change-4")


def test_uncommitted_edits_are_told(bench: Bench) -> None:
    bench.change("README", "hello", "hi")
    (bench.copy / "new.txt").write_text("new")
    report = bench.refresh()
    told = [(step.state, step.detail) for step in report.steps if step.name == "work tree"]
    assert told == [(State.WARNING, ("README",)), (State.NOTE, ("new.txt",))]
    assert (bench.copy / "README").read_text() == "hi\n"


def test_a_new_commit_becomes_a_patch_in_its_place(bench: Bench) -> None:
    (bench.copy / "größe.txt").write_text("ß\n")
    bench.git("add", ".")
    commit(bench, "Größe: add «it»\n\nBecause.\n\nPatchq-Layer: backport")
    with pytest.raises(Invalid, match="is a new patch of no layer"):
        bench.git("commit", "-q", "--allow-empty", "-m", "No layer")
        bench.refresh()
    bench.git("reset", "-q", "--hard", "HEAD^")
    report = bench.refresh()
    assert report.exit_code == 0 and states(report)["up/backport/grosse-add-it.patch"] is State.PASSED
    text = bench.read("up/backport/grosse-add-it.patch").decode()
    assert text.startswith("Description: Größe: add «it»\n Because.\nAuthor: Zoë Úser <zoe@example.org>\nLast-Update: ")
    assert "diff --git a/größe.txt b/größe.txt\nnew file mode 100644\n" in text
    lines = bench.read("up/series").decode().splitlines()
    assert lines[lines.index(name(9)) + 1] == "backport/grosse-add-it.patch"
    assert bench.git("log", "-1", "--format=%b").endswith("Patchq-Patch: up/backport/grosse-add-it.patch")


def test_dropped_and_reordered_commits_are_followed(bench: Bench, tmp_path: Path) -> None:
    """Comments, guards and -pN stay; unselected patches stay where they are."""
    script = tmp_path / "todo"
    script.write_text("#!/bin/sh\nset -e\nsed -i -e '/Change 8/d' -e '/Change 2/{h;d}' -e '/Change 6/{G}' \"$1\"\n")
    script.chmod(0o755)
    bench.git("rebase", "-q", "-i", "baseline", GIT_SEQUENCE_EDITOR=str(script))
    report = bench.refresh()
    assert bench.read("up/series").decode().splitlines() == [
        "# Top", name(0), name(1), name(3), f"{name(4)} #-ppu", name(5), "", "# Middle", name(6),
        f"{name(2)}  -p1   #+ppu  # only there", name(7), name(9), "research/loss.patch",
    ]  # fmt: skip
    assert not (bench.root / f"up/{name(8)}").exists()
    assert states(report)[f"up/{name(8)}"] is State.NOTE
    assert report.exit_code == 0 and bench.refresh().data["written"] is False


def test_fixup_commits_are_folded(bench: Bench) -> None:
    bench.change("app.py", "line 3.3 patched", "line 3.3 fixed")
    bench.git("commit", "-q", "-a", "--fixup", ":/Change 3")
    before = bench.files()
    assert bench.refresh().exit_code == 0
    assert differing(before, bench.files()) == {f"up/{name(3)}"}
    assert bench.git("rev-list", "--count", "baseline..") == "9"
    assert bench.git("status", "--porcelain") == ""


def test_reworded_only_subject_body_and_author_change(bench: Bench) -> None:
    before = bench.read(f"up/{name(9)}")
    bench.git("commit", "-q", "--amend", "-m", "Say it better\n\nAnd why.\n\nPatchq-Patch: up/" + name(9),
              "--author", "B <b@c.d>")  # fmt: skip
    bench.refresh()
    head = b"Description: Change 9\n Why 9.\nAuthor: A <a@b.c>\n"
    assert bench.read(f"up/{name(9)}") == before.replace(
        head, b"Description: Say it better\n And why.\nAuthor: B <b@c.d>\n"
    )


@pytest.mark.fault
def test_two_names_or_one_twice_is_asked(bench: Bench) -> None:
    bench.git("commit", "-q", "--amend", "-m", f"Both\n\nPatchq-Patch: up/{name(9)}\nPatchq-Patch: up/{name(8)}")
    with pytest.raises(Refused, match="names 2 patches"):
        bench.refresh()
    bench.git("commit", "-q", "--amend", "-m", f"Change 9\n\nWhy 9.\n\nPatchq-Patch: up/{name(9)}")
    bench.change("README", "hello", "hi")
    commit(bench, f"More\n\nPatchq-Patch: up/{name(9)}")
    with pytest.raises(Refused, match=f"are both up/{name(9)}"):
        bench.refresh()
    report = bench.refresh(yes=True)
    assert states(report)["up/device/more.patch"] is State.PASSED
    assert states(report)[f"up/{name(9)}"] is State.UNCHANGED


def test_another_target_that_breaks_is_told(bench: Bench) -> None:
    """Change 4 is gpu's alone; a patch that takes its lines away breaks gpu."""
    bench.change("app.py", "    line 4.2\n", "")
    before = bench.files()
    strict = bench.refresh(into="change-0", is_strict=True)
    assert strict.exit_code == 1 and bench.files() == before and not strict.data["written"]
    report = bench.refresh(into="change-0")
    assert report.exit_code == 1 and report.data["written"]
    (broken,) = [step for step in report.steps if step.name == "gpu/up"]
    assert broken.state is State.FAILED and "up/device/change-4.patch: conflict" in broken.detail[0]
    assert states(report)["ppu/up"] is State.PASSED
    assert bench.refresh().exit_code == 0


def test_check_only_compares(bench: Bench) -> None:
    bench.change("app.py", "line 3.3 patched", "line 3.3 fixed")
    bench.git("commit", "-q", "-a", "--fixup", ":/Change 3")
    before, tip = bench.files(), bench.git("rev-parse", "HEAD")
    report = bench.refresh(is_check=True)
    assert report.exit_code == 1 and states(report)[f"up/{name(3)}"] is State.EDITED
    assert (bench.files(), bench.git("rev-parse", "HEAD")) == (before, tip)


def test_what_somebody_else_changed_is_not_overwritten(bench: Bench) -> None:
    bench.change("app.py", "line 3.3 patched", "line 3.3 fixed")
    bench.git("commit", "-q", "-a", "--fixup", ":/Change 3")
    bench.write(f"up/{name(3)}", numbered_patch(3, "Description: Theirs\n"))
    with pytest.raises(Refused, match="was changed in the queue since this copy was made"):
        bench.refresh()
    assert b"Theirs" in bench.read(f"up/{name(3)}")


def test_what_cannot_be_read_as_a_queue_is_refused(bench: Bench) -> None:
    tip = bench.git("rev-parse", "HEAD")
    bench.git("checkout", "-q", "-b", "side")
    with pytest.raises(Refused, match="the branch patchq is not checked out"):
        bench.refresh()
    bench.git("commit", "-q", "--allow-empty", "-m", "Side")
    bench.git("switch", "-q", "patchq")
    bench.git("commit", "-q", "--allow-empty", "-m", "Mine")
    bench.git("merge", "-q", "--no-edit", "side")
    with pytest.raises(Refused, match="is a merge"):
        bench.refresh()
    bench.git("reset", "-q", "--hard", tip)
    bench.git("commit", "-q", "--allow-empty", "-m", f"Not here\n\nPatchq-Patch: up/{name(4)}")
    with pytest.raises(Refused, match=rf"is up/{name(4)}, which ppu does not take"):
        bench.refresh()
    bench.git("checkout", "-q", "--orphan", "root")
    bench.git("commit", "-q", "-m", "Root")
    bench.git("branch", "-q", "-M", "patchq")
    with pytest.raises(Refused, match="does not begin at the baseline"):
        bench.refresh()


def test_research_needs_a_variant_that_names_it(bench: Bench) -> None:
    bench.change("README", "hello", "hi")
    commit(bench, "Idea")
    with pytest.raises(Refused, match=r"up/research/idea\.patch would not be in ppu: research"):
        bench.refresh(layer="research")


@pytest.mark.fault
def test_binary_renames_modes_and_links_survive(bench: Bench) -> None:
    (bench.copy / "data.bin").write_bytes(bytes(range(256)) * 9)
    (bench.copy / "crlf.txt").write_bytes(b"one\r\nzwei\r\n")
    bench.git("mv", "README", "Läs mig")
    (bench.copy / "déjà vu.txt").chmod(0o755)
    bench.git("add", "-A")
    commit(bench, "All sorts")
    assert bench.refresh(layer="device").exit_code == 0
    text = bench.read("up/device/all-sorts.patch")
    assert b"rename from README\nrename to L\xc3\xa4s mig\n" in text and b"GIT binary patch" in text
    assert b"old mode 100644\nnew mode 100755" in text and b"+zwei\r\n" in text
    parse_patch("up/device/all-sorts.patch", text, "", 1)
    assert bench.refresh().data["written"] is False


@pytest.mark.fault
def test_a_commit_in_another_encoding(bench: Bench) -> None:
    bench.change("README", "hello", "hi")
    message = bench.folder / "message"
    message.write_bytes("Größe\n".encode("latin-1"))
    bench.git("-c", "i18n.commitEncoding=latin1", "commit", "-q", "-a", "-F", str(message))
    bench.refresh(layer="device")
    assert bench.read("up/device/grosse.patch").decode().startswith("Description: Größe\n")
