"""The probes as scripts: asked on stdin, answering with one JSON document, on real files and a real server."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from toyenv import customize, install, make_venv, site_packages

from patchq.machine.probe import PROBES


def ask(probe: str, question: dict[str, Any], python: Path | str = sys.executable, **env: str) -> dict[str, Any]:
    """Run a probe as patchq does, without a launch environment around it."""
    done = subprocess.run(
        [str(python), "-s", "-B", str(PROBES / f"{probe}.py")], input=json.dumps(question), text=True,
        capture_output=True, env={"PATH": "/usr/bin:/bin", **env}, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return answer


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probes") / "env"
    make_venv(folder)
    install(folder, "plain", "1.0", {"plain/__init__.py": "a = 1\n", "plain/b.py": "b = 2\n", "plain/c.so": "binary"})
    return folder


def test_every_probe_needs_only_the_standard_library() -> None:
    import ast

    heavy = {"torch", "vllm", "ray", "pyarrow", "pytest"}
    for path in PROBES.glob("*.py"):
        tops = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {
            name.split(".")[0]
            for node in tops
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert names <= set(sys.stdlib_module_names), path
        assert not names & heavy


@pytest.mark.parametrize("safe", ["", "1"], ids=["", "PYTHONSAFEPATH"])
def test_no_probe_takes_an_entry_of_the_users_off_the_path(env: Path, tmp_path: Path, safe: str) -> None:
    """Under PYTHONSAFEPATH (3.11) Python adds no folder of the script, so there is none to take away."""
    (tmp_path / "first").mkdir()
    variables = {"PYTHONPATH": str(tmp_path / "first"), "PYTHONSAFEPATH": safe}
    answer = ask("interpreter", {}, env / "bin/python", **variables)
    assert answer["path"][0] == str(tmp_path / "first") and str(PROBES) not in answer["path"]
    bare = [path.name for path in PROBES.glob("*.py") if "\n    sys.path.pop(0)" in path.read_text()]
    assert not bare


def test_interpreter_traces_each_entry(env: Path, tmp_path: Path) -> None:
    packages = site_packages(env)
    added, customized = tmp_path / "added", tmp_path / "customized"
    added.mkdir()
    customized.mkdir()
    (packages / "x.pth").write_text(f"{added}\n")
    customize(packages, f"import sys, os; sys.path.append({str(customized)!r}); os.environ['A'] = 'b'\n")
    try:
        answer = ask("interpreter", {}, env / "bin/python", PYTHONPATH=str(tmp_path))
    finally:
        (packages / "x.pth").unlink()
        (packages / "sitecustomize.py").unlink()
    sources = answer["sources"]
    assert sources[str(tmp_path)] == "PYTHONPATH"
    assert sources[str(added)] == str(packages / "x.pth")
    assert sources[str(customized)] == str(packages / "sitecustomize.py")
    assert sources[str(packages)] == "site-packages"
    assert answer["environ"] == {str(packages / "sitecustomize.py"): ["A"]}
    assert set(sources.values()) >= {"standard library"}


def test_packages_finds_each_kind_of_damage(env: Path) -> None:
    packages = site_packages(env)
    whole = ask("packages", {"protected": ["Plain"]}, env / "bin/python")["records"]["plain"]
    assert (whole["count"], whole["extras"]) == (0, [])
    (packages / "plain/c.so").write_text("BINARY")
    (packages / "plain/extra.py").touch()
    try:
        loose = ask("packages", {"protected": []}, env / "bin/python")["records"]["plain"]
        tight = ask("packages", {"protected": ["plain"]}, env / "bin/python")["records"]["plain"]
    finally:
        (packages / "plain/c.so").write_text("binary")
        (packages / "plain/extra.py").unlink()
    assert loose["count"] == 0  # the same size, and not a source
    assert tight["wrong"] == [["plain/c.so", "is not the file that RECORD lists"]]
    assert tight["extras"] == ["plain/extra.py"]
    assert tight["digest"] != whole["digest"]


def test_an_edited_source_is_found_without_protection(env: Path) -> None:
    path = site_packages(env) / "plain/b.py"
    path.write_text("b = 3\n")
    try:
        answer = ask("packages", {}, env / "bin/python")
    finally:
        path.write_text("b = 2\n")
    assert answer["records"]["plain"]["wrong"] == [["plain/b.py", "is not the file that RECORD lists"]]


@pytest.mark.fault
def test_origins_finds_stale_bytecode_of_the_same_size_and_time(env: Path, tmp_path: Path) -> None:
    import os

    cache = str(tmp_path / "cache")
    source = site_packages(env) / "plain/b.py"
    python = env / "bin/python"
    subprocess.run([python, "-c", "import plain.b"], env={"PYTHONPYCACHEPREFIX": cache}, check=True)
    fresh = ask("origins", {"survey": {"plain": "plain"}, "fresh": ["plain"]}, python, PYTHONPYCACHEPREFIX=cache)
    assert fresh["bytecode"] == {"stale": [], "unchecked": 0}
    before = source.stat()
    source.write_text("b = 7\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    stale = ask("origins", {"survey": {"plain": "plain"}, "fresh": ["plain"]}, python, PYTHONPYCACHEPREFIX=cache)
    source.write_text("b = 2\n")
    assert stale["bytecode"]["stale"] == [str(source)]


def test_variables_names_launchers_interpreters(env: Path, tmp_path: Path) -> None:
    forms = {
        "direct": f"#!{env}/bin/python\n",
        "byenv": "#!/usr/bin/env -S FOO=1 python3\n",
        "long": "#!/bin/sh\n'''exec' \"/a long/bin/python\" \"$0\" \"$@\"\n' '''\n",
        "binary": "\x7fELF",
    }
    for name, head in forms.items():
        (tmp_path / name).write_text(head)
        (tmp_path / name).chmod(0o755)
    answer = ask(
        "variables",
        {"names": ["A", "B"], "launchers": [*forms, "absent"]},
        env / "bin/python",
        PATH=str(tmp_path),
        A="1",
    )
    found = {name: (one.get("interpreter"), one.get("ours")) for name, one in answer["launchers"].items()}
    assert found["direct"] == (f"{env}/bin/python", True)
    assert found["byenv"] == ("python3", False)
    assert found["long"] == ("/a long/bin/python", False)
    assert found["binary"] == found["absent"] == (None, None)
    assert [one["python"] for one in answer["generations"]] == [{"A": "1"}] * 3


def test_folders_write_read_back_and_leave_nothing(tmp_path: Path) -> None:
    place = ask(
        "folders", {"folders": {"x": str(tmp_path / "not/there")}, "caches": True}, HF_HOME=str(tmp_path), HOME="/"
    )
    assert place["folders"]["x"]["writable"] is True
    assert place["folders"]["x"]["exists"] is False
    assert place["caches"]["huggingface hub"]["path"] == str(tmp_path / "hub")
    assert list(tmp_path.iterdir()) == []


def test_machine_reads_a_vendors_query(env: Path) -> None:
    shown = "Driver Version: 1.5.3-5239a4  HGGC Version: 13.0\\nPPU 0: PPU-ZW810 (UUID: x)\\nPPU 1: PPU-ZW810\\n"
    query = f"printf '{shown}'"
    found = ask("machine", {"query": query}, env / "bin/python")["accelerators"]
    assert found["driver"] == "1.5.3-5239a4"
    assert [device["name"] for device in found["devices"]] == ["PPU-ZW810 (UUID: x)", "PPU-ZW810"]
    assert "error" in ask("machine", {"query": "ppu-smi-is-not-here"}, env / "bin/python")["accelerators"]


def test_a_probe_without_its_need_is_not_run(env: Path, tmp_path: Path) -> None:
    questions: dict[str, dict[str, Any]] = {
        "memory": {}, "bf16": {}, "ray_cluster": {}, "generate": {"model": "/m", "prompt": "p"},
        "data": {"files": []}, "checkpoint": {"folder": str(tmp_path / "no")}, "step_log": {"log": "/no"},
        "copy_files": {"source": "/no", "target": "/no"}, "ranks": {"work": "all_reduce"},
    }  # fmt: skip
    for probe, question in questions.items():
        assert ask(probe, question, env / "bin/python")["not_run"], probe
    assert ask("pairs", {}, env / "bin/python") == {"flash_attn": None}


LOG = """\
(TaskRunner pid=1) step:0 - val/score:0.1
(TaskRunner pid=1) step:1 - actor/entropy:0.41 - actor/pg_loss:-0.008 \
- actor/grad_norm:np.float64(0.52) - actor/ppo_kl:0.001 - critic/rewards/max:1.0 - critic/rewards/min:0.0 \
- critic/advantages/max:0.9 - critic/advantages/min:-0.9 \
- response_length/mean:250.0 - training/global_step:1 - training/epoch:0
"""


@pytest.mark.parametrize(
    ("old", "new", "failed"),
    [
        ("", "", []),
        ("pg_loss:-0.008", "pg_loss:nan", ["loss"]),
        ("np.float64(0.52)", "0.0", ["gradient"]),
        ("rewards/max:1.0", "rewards/max:0.0", ["rewards"]),
        ("max:0.9 - critic/advantages/min:-0.9", "max:0.0 - critic/advantages/min:0.0", ["advantages"]),
        ("training/global_step:1", "training/other:1", ["step"]),
        ("ppo_kl:0.001", "ppo_kl:0.25", ["kl"]),
        ("entropy:0.41", "entropy:0.0", ["entropy"]),
        ("pg_loss:-0.008", "pg_loss:0.15", ["loss sign"]),
        ("response_length/mean:250.0", "response_length/mean:9000", ["response length"]),
    ],
)  # fmt: skip
def test_step_log_names_the_gate_and_its_line(tmp_path: Path, old: str, new: str, failed: list[str]) -> None:
    log = tmp_path / "log"
    log.write_text(LOG.replace(old, new) if old else LOG)
    limits = {"kl": [None, 0.1], "entropy": [0.01, None], "response length": [1, 1024]}
    answer = ask("step_log", {"log": str(log), "exit": 0, "limits": limits, "loss_sign": "negative"})
    assert [gate["gate"] for gate in answer["gates"] if not gate["passed"]] == failed
    assert all(gate["line"] in (2, None) for gate in answer["gates"])


def test_step_log_of_a_trainer_and_an_unclean_exit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("{'loss': '1.25', 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n")
    answer = ask("step_log", {"log": str(log), "exit": -9, "kind": "sft"})
    assert [(gate["gate"], gate["passed"]) for gate in answer["gates"]] == [
        ("loss", True),
        ("gradient", True),
        ("exit", False),
    ]


def shard(path: Path, size: int = 1000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * size)


def verl_checkpoint(folder: Path) -> Path:
    place = folder / "global_step_3"
    for rank in range(2):
        for kind in ("model", "optim", "extra_state"):
            shard(place / "actor" / f"{kind}_world_size_2_rank_{rank}.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    return place


def problems(place: Path, **more: Any) -> list[str]:
    found: list[str] = ask("checkpoint", {"folder": str(place), **more})["problems"]
    return found


def test_a_verl_checkpoint(tmp_path: Path) -> None:
    place = verl_checkpoint(tmp_path)
    assert problems(place, step=3, ranks=2) == []
    assert problems(place, step=4) == ["it is of step 3, and 4 is due"]
    assert "no model shard of rank 2, 3 of 4" in problems(place, ranks=4)[0]
    optim = place / "actor/optim_world_size_2_rank_1.pt"
    optim.write_bytes(optim.read_bytes()[:-40])
    assert problems(place)[-1] == f"{optim} is cut off: its zip directory is missing"
    shard(optim, 10)
    assert any("others of its kind" in one for one in problems(place))
    optim.unlink()
    assert "no optim shard of rank 1 of 2" in problems(place)[0]
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    assert any("resuming takes that one" in one for one in problems(place))


def test_a_trainers_checkpoint(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-5"
    place.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    weights = place / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header + b"12345678")
    (place / "trainer_state.json").write_text('{"global_step": 5}')
    shard(place / "optimizer.pt")
    shard(place / "scheduler.pt")
    assert problems(place, step=5) == []
    weights.write_bytes(weights.read_bytes()[:-3])
    assert "its header says" in problems(place)[0]
    (place / "scheduler.pt").unlink()
    (place / "trainer_state.json").write_text('{"global_step": 4}')
    assert problems(place)[:2] == [
        f"{place}: no scheduler.pt, so training cannot go on from here",
        f"{place}/trainer_state.json says step 4",
    ]
    (place / "global_step5").mkdir()
    assert any("no optimizer shard of rank 0 of 1" in one for one in problems(place))


def test_copy_is_restartable_and_compares(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "deep").mkdir(parents=True)
    (source / "deep/x").write_bytes(b"x" * 100_000)
    (source / "y").write_bytes(b"")
    first = ask("copy_files", {"source": str(source), "target": str(target)})
    assert (first["files"], first["written"]) == (2, 2)
    (target / "deep/x").write_bytes(b"z" * 100_000)
    again = ask("copy_files", {"source": str(source), "target": str(target)})
    assert (again["files"], again["written"]) == (2, 1)
    assert (target / "deep/x").read_bytes() == b"x" * 100_000
    assert f"{hashlib.sha256(b'').hexdigest()}  y\n" in (target / "SHA256SUMS").read_text()
    (target / "y").unlink()
    (target / "y").mkdir()
    failed = ask("copy_files", {"source": str(source), "target": str(target)})
    assert failed["failed"] == "y"


class Service(BaseHTTPRequestHandler):
    model, vector = "toy", [0.6, 0.8]

    def do_GET(self) -> None:
        self.reply({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] != self.model:
            self.send_error(404, "no such model")
        else:
            self.reply({"model": asked["model"], "data": [{"embedding": self.vector}]})

    def reply(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_embedding_asks_past_every_proxy(service: str) -> None:
    answer = ask("embedding", {"url": service, "model": "toy"}, http_proxy="http://127.0.0.1:9")
    assert answer == {"health": "", "model": "toy", "dimension": 2, "norm": 1.0}
    assert "404" in ask("embedding", {"url": service, "model": "other"})["error"]
    assert ask("embedding", {"url": "http://127.0.0.1:9", "model": "toy"})["health"] == "[Errno 111] Connection refused"
