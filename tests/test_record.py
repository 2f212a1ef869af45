"""Records: written once, never rewritten, and not believed when a byte of them changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from world import World, patchq

from patchq.errors import Invalid, Refused
from patchq.evidence.record import Evidence, find_record, last_record, list_records, read_record, write_record
from patchq.report import Report, State, Step


def written(records: Path, verb: str = "apply", target: str = "t", variant: str | None = None, lock: str = "L") -> Path:
    steps = (Step("a", State.PASSED, "fine"), Step("b", State.NOT_RUN, "no device"),
             Step("c", State.NOT_RUN, "not asked for", required=False))  # fmt: skip
    evidence = Evidence(
        facts={"url": "https://me:pw@host", "n": [1, None, {"x": 1.5}]},
        logs={"deep/log.txt": "HF_TOKEN=abcdefgh \udcff\n"}, freeze={"env": "x==1\n"},
    )  # fmt: skip
    return write_record(records, Report(verb, steps), evidence, target=target, variant=variant, lock=lock)


def test_a_record_reads_back_and_holds_no_secret(tmp_path: Path) -> None:
    folder = written(tmp_path)
    record = read_record(folder)
    assert (record.verb, record.target, record.exit, record.counts) == ("apply", "t", 4, {"passed": 1, "not run": 2})
    assert record.not_run() == ["b"] and record.facts["url"] == "https://***@host"
    assert record.host == os.uname().nodename and record.id == folder.name
    assert (folder / "pip-freeze-env.txt").read_text() == "x==1\n"
    assert b"abcdefgh" not in (folder / "logs/deep/log.txt").read_bytes()
    plain = json.loads((folder / "record.json").read_bytes())
    assert plain["schema"] == 1 and plain["began"].endswith("Z")
    assert not list(tmp_path.glob(".new-*"))


@pytest.mark.parametrize("name", ["record.json", "logs/deep/log.txt", "pip-freeze-env.txt"])
def test_a_changed_or_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data + b" ")
    with pytest.raises(Refused, match="is not as it was written"):
        read_record(folder)
    (folder / name).unlink()
    with pytest.raises(Refused, match="is not as it was written"):
        read_record(folder)


@pytest.mark.parametrize("sums", [None, "", "nonsense\n", "0" * 64 + "  other\n", "\xff"])
def test_a_record_without_its_own_sums_is_not_believed(tmp_path: Path, sums: str | None) -> None:
    folder = written(tmp_path)
    (folder / "SHA256SUMS").unlink()
    if sums is not None:
        (folder / "SHA256SUMS").write_text(sums)
    with pytest.raises(Refused, match="SHA256SUMS: is not as it was written"):
        read_record(folder)


def test_records_are_found_by_their_beginning_and_listed_by_time(tmp_path: Path) -> None:
    folders = [written(tmp_path, verb) for verb in ("apply", "verify", "smoke")]
    assert [record.verb for record in list_records(tmp_path)] == ["apply", "verify", "smoke"]
    assert find_record(tmp_path, folders[1].name) == folders[1]
    with pytest.raises(Invalid, match="3 records with the id '20"):
        find_record(tmp_path, "20")
    with pytest.raises(Invalid, match="no record with the id 'x'"):
        find_record(tmp_path, "x")
    assert list_records(tmp_path / "none") == []


def test_the_last_one_is_of_the_same_verb_target_variant_and_lock(tmp_path: Path) -> None:
    written(tmp_path, lock="old")
    newest = written(tmp_path)
    written(tmp_path, target="t-2")
    written(tmp_path, variant="v")
    found = last_record(tmp_path, "apply", "t", None, "L")
    assert found and found.id == newest.name
    assert last_record(tmp_path, "verify", "t", None, "L") is None


def test_the_verb_lists_and_shows(own: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert patchq("record", "list", "--target", "blind", "--queue", own.root) == 0
    folder = written(own.work / "records", target="blind")
    assert patchq("record", "show", folder.name[:12], "--target", "blind", "--queue", own.root) == 0
    assert "digests hold" in capsys.readouterr().out
    (folder / "record.json").write_bytes((folder / "record.json").read_bytes().replace(b"fine", b"good"))
    assert patchq("record", "show", folder.name, "--target", "blind", "--queue", own.root) == 1
    assert "record.json: is not as it was written" in capsys.readouterr().err
