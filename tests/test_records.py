"""Records are compared, added to without a rewrite, and carried out as facts that somebody outside can go on from."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toy import make_queue
from world import patchq

from patchq.commands.place import Place
from patchq.commands.record import attach, diff, export, list_all, show
from patchq.errors import Invalid, Refused
from patchq.evidence.record import Evidence, read_record, write_record
from patchq.mask import HIDDEN
from patchq.report import Report, State, Step
from patchq.transfer.manifest import write_sums

LOG = """\
INFO 08-22 10:00:00 [a.py:1] token=hunter2
Traceback (most recent call last):
  File "/w/cpu_adam.py", line 201, in step
KeyError: 'bias_correction'
Traceback (most recent call last):
  File "/e/bin/llamafactory-cli", line 8, in <module>
subprocess.CalledProcessError: Command '['torchrun']' returned non-zero exit status 1.
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_queue(tmp_path / "q")


def record(place: Place, verb: str, *steps: Step, log: str = "", **facts: Any) -> Path:
    evidence = Evidence(facts=facts, logs={"train.txt": log} if log else {})
    evidence.freeze["rl"] = f"torch=={facts.get('torch', '2.9.0')}\nray==2.56.1\nsmall @ file:///w/small\n"
    return write_record(place.area("here").records, Report(verb, steps), evidence,
                        target="here", variant=None, lock="a" * 64)  # fmt: skip


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_diff_shows_two_days_side_by_side(place: Place) -> None:
    passed, failed = Step("bf16", State.PASSED, group="service"), Step("bf16", State.FAILED, group="service")
    a = record(place, "smoke", passed, torch="2.9.0", pid=1, variables={"CUDA_HOME": "/a", "SAME": "x"})
    b = record(place, "smoke", failed, torch="2.10.0", pid=2, variables={"CUDA_HOME": "/b", "SAME": "x"})
    report = diff(place, "here", a.name, str(b))
    rows = {row[0]: row[1:] for row in report.data["differences"]}
    assert rows == {
        "exit": ["0", "1"],
        "torch": ["2.9.0", "2.10.0"],
        "variables.CUDA_HOME": ["/a", "/b"],
        "freeze-rl torch": ["2.9.0", "2.10.0"],
        "step service bf16": ["passed", "failed"],
    }
    assert report.exit_code == 0 and report.data["table"]["columns"] == ["what", "A", "B"]
    assert diff(place, "here", a.name, a.name).data["differences"] == []


@pytest.mark.parametrize("changes", [
    {"steps": [{}]}, {"steps": [{"name": 1, "state": None, "detail": 5}]}, {"steps": [{"name": "a", "state": []}]},
    {"steps": [{"name": "a", "state": "failed", "data": [], "detail": [1]}]},
    {"steps": [{"name": "a", "state": "failed", "data": {"first_error": {}}}]},
    {"steps": [{"name": "a", "state": "failed", "data": {"first_error": "x"}}]},
    {"steps": [{"name": "a", "state": "failed", "data": {"argv": [1, {}]}, "seconds": "x"}]},
    {"facts": {"argv": 5}}, {"facts": {"argv": [None], "a": float("nan")}}, {"facts": {"a": [[[[]]], {"b": {}}]}},
    {"facts": {"deep": json.loads("[" * 900 + "]" * 900)}},
    {"facts": {"deep": json.loads('{"a":' * 600 + "1" + "}" * 600)}},
])  # fmt: skip
def test_a_record_of_another_host_may_hold_anything(place: Place, changes: dict[str, Any], tmp_path: Path) -> None:
    """Its own digests hold: it is one clear line, or shown as far as it goes, and nothing is left."""
    mine = record(place, "smoke", Step("bf16", State.PASSED))
    other = shutil.copytree(mine, tmp_path / "other")
    (other / "record.json").write_text(json.dumps(json.loads((mine / "record.json").read_text()) | changes))
    write_sums(other)
    words = ["record", "--target", "here", "--queue", str(place.root)]
    for verb, named in (("diff", [mine.name, str(other)]), ("diff", [str(other), mine.name]),
                        ("export", [str(other), "--out", str(tmp_path / "out")])):  # fmt: skip
        assert patchq("record", verb, *named, *words[1:]) in (0, 2), verb
    shutil.copytree(other, mine.parent / "another")
    assert patchq("record", "show", "another", *words[1:]) in (0, 2)
    assert {path.name for path in tmp_path.iterdir()} <= {"q", "other", "out"}


def test_an_attachment_leaves_the_record_as_it_was(place: Place, tmp_path: Path) -> None:
    old = record(place, "smoke", Step("a", State.PASSED))
    folder = record(place, "run", Step("a", State.PASSED))
    before = tree(folder)
    config = tmp_path / "resolved.yaml"
    config.write_text("lr: 1e-6\napi_key: abcdef\n")
    report = attach(place, "here", config, "resolved-config")
    assert report.data["attaches"] == folder.name and report.data["masked"]
    made = Path(report.data["record"])
    assert read_record(made).facts["kind"] == "resolved-config"
    assert (made / "attachments/resolved.yaml").read_text() == f"lr: 1e-6\napi_key: {HIDDEN}\n"
    assert tree(folder) == before
    shown = show(place, "here", folder.name)
    assert [step.summary.split(":")[0] for step in shown.steps if step.group == "attached"] == ["resolved-config"]
    attach(place, "here", config, "resolved-config", old.name)
    assert len(list_all(place, "here").steps) == 4


@pytest.mark.parametrize("kind", ["", "Resolved Config", "../x"])
def test_a_kind_is_a_plain_word(place: Place, kind: str) -> None:
    record(place, "smoke")
    with pytest.raises(Invalid, match="is not a kind"):
        attach(place, "here", place.root / "queue.yaml", kind)


def test_attachments_need_a_file_and_a_record(place: Place, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no record of here yet"):
        attach(place, "here", place.root / "queue.yaml", "config")
    record(place, "smoke")
    with pytest.raises(Invalid, match="no such file"):
        attach(place, "here", tmp_path / "nothing", "config")


def test_export_says_what_somebody_outside_needs(place: Place, tmp_path: Path) -> None:
    data = {"argv": ["llamafactory-cli", "train", "a b.yaml"], "exit": 1, "log": "logs/train.txt"}
    failed = Step("train", State.FAILED, "exit status 1 | 0", "step", ("x",), data=data, seconds=12.3)
    folder = record(place, "smoke", Step("ok", State.PASSED), failed, log=LOG, variables={"PPU_SDK": "/sdk"})
    attach(place, "here", place.root / "queue.yaml", "config")
    report = export(place, "here", tmp_path / "out")
    text = (tmp_path / "out/RECORD.md").read_text()
    assert "exit 1\n\n- verb: smoke" in text
    assert "KeyError: 'bias_correction'" in text and "logs/train.txt, line 4" in text
    assert "| train | llamafactory-cli train 'a b.yaml' | 1 | 12.3 | failed |" in text
    assert "patchq run --target here -- llamafactory-cli train" in text
    assert "torch==2.9.0" in text and "PPU_SDK: /sdk" in text and "exit status 1 \\| 0" in text
    assert "hunter2" not in text
    assert report.data["first_error"]["kind"] == "KeyError"
    found = tree(tmp_path / "out")
    assert {"RECORD.md", "record.json", "pip-freeze-rl.txt", "logs/train.txt", "SHA256SUMS"} < found.keys()
    assert any(name.startswith("attachments/") and name.endswith("queue.yaml") for name in found)
    listed = dict(reversed(line.split("  ")) for line in (tmp_path / "out/SHA256SUMS").read_text().splitlines())
    assert listed == {name: digest for name, digest in found.items() if name != "SHA256SUMS"}
    assert (tmp_path / "out/record.json").read_bytes() == (folder / "record.json").read_bytes()


def test_export_is_small_enough_to_carry(place: Place, tmp_path: Path) -> None:
    record(place, "smoke", Step("a", State.FAILED), log="x" * 500_000 + "\nValueError: the end\n")
    big = tmp_path / "big.bin"
    big.write_bytes(os_random(2 << 20))
    attach(place, "here", big, "weights")
    report = export(place, "here", tmp_path / "out")
    assert report.data["bytes"] < 100_000
    assert "the end" in (tmp_path / "out/logs/train.txt").read_text()
    assert {step.name for step in report.steps if "left" in step.summary or "stays here" in step.summary}


def test_export_of_a_record_that_was_changed(place: Place, tmp_path: Path) -> None:
    folder = record(place, "smoke", Step("a", State.PASSED))
    (folder / "pip-freeze-rl.txt").write_text("torch==3\n")
    with pytest.raises(Refused, match="is not as it was written"):
        export(place, "here", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(Invalid, match="there already"):
        export(place, "here", tmp_path / "there")


def os_random(count: int) -> bytes:
    return hashlib.shake_128(b"seed").digest(count)
