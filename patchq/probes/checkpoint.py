"""Whether a checkpoint is whole: every rank's shards, readable, of plausible size, and the state that resuming needs.

Question: {"folder": FOLDER, "ranks": N or null, "step": N or null}. Knows VERL's FSDP layout
(`model_world_size_8_rank_0.pt` …), Transformers' trainer (`trainer_state.json`), and DeepSpeed's ZeRO folders below it.
Nothing is unpickled: of a `.pt` file the zip directory is read, of safetensors the header. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d+)_rank_(\d+)\.pt")
ZERO = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_(model|optim)_states\.pt")
STEP = re.compile(r"(?:global_step_?|checkpoint-)(\d+)$")
UNEVEN = 3.0


def damage(path: Path) -> str:
    """Why a file can't be loaded, as far as its structure tells; empty where nothing speaks against it."""
    try:
        size = path.stat().st_size
        if size == 0:
            return "is empty"
        if path.suffix == ".safetensors":
            return safetensors_damage(path, size)
        if path.suffix in (".pt", ".pth", ".bin"):
            return zip_damage(path)
        if path.suffix == ".json":
            json.loads(path.read_text())
    except (OSError, ValueError, struct.error) as error:
        return f"cannot be read: {error}"
    return ""


def zip_damage(path: Path) -> str:
    with path.open("rb") as stream:
        if stream.read(2) != b"PK":
            return ""  # torch's older form; only unpickling could tell
    if not zipfile.is_zipfile(path):
        return "is cut off: its zip directory is missing"
    with zipfile.ZipFile(path) as archive:
        end = max((info.header_offset + info.compress_size for info in archive.infolist()), default=0)
        return "" if end <= path.stat().st_size else "is cut off"


def safetensors_damage(path: Path, size: int) -> str:
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > size - 8:
            return "is cut off inside its header"
        header = json.loads(stream.read(length))
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    return "" if 8 + length + end == size else f"has {size} bytes, its header says {8 + length + end}"


def verl(folder: Path, ranks: int | None) -> Iterator[str]:
    """The problems of one role's folder (`actor`, `critic`) in VERL's FSDP layout."""
    shards: dict[str, dict[int, Path]] = {"model": {}, "optim": {}, "extra_state": {}}
    worlds = set()
    for path in folder.iterdir():
        if found := SHARD.fullmatch(path.name):
            shards[found[1]][int(found[3])] = path
            worlds.add(int(found[2]))
    if len(worlds) > 1:
        yield f"{folder}: shards of several world sizes: {', '.join(map(str, sorted(worlds)))}"
    world = ranks or max(worlds)
    for kind, found_ranks in shards.items():
        missing = sorted(set(range(world)) - set(found_ranks))
        if missing:
            yield f"{folder}: no {kind} shard of rank {', '.join(map(str, missing))} of {world}"
        yield from uneven(kind, found_ranks.values())
        if kind != "extra_state":
            yield from repeated(found_ranks)


def repeated(paths: dict[int, Path]) -> Iterator[str]:
    """Shards with another rank's contents. Where every shard is there as often (HSDP's replicas), that is by design."""
    groups: dict[Any, list[int]] = {}
    for rank, path in sorted(paths.items()):
        groups.setdefault(contents(path) or rank, []).append(rank)
    most = min(map(len, groups.values()), default=1)
    for first, *others in groups.values():
        if 1 + len(others) > most:
            yield f"{paths[others[-1]]} holds the same as {paths[first].name}"


def contents(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and checksums of a shard's parts by its zip directory; empty where it has none that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = [(one.filename.partition("/")[2], one.file_size, one.CRC) for one in archive.infolist()]
    except (OSError, zipfile.BadZipFile):
        return ()
    return tuple(part for part in parts if part[0].startswith("data/") and part[1])


def uneven(kind: str, paths: Any) -> Iterator[str]:
    sizes = {path: path.stat().st_size for path in paths}
    if len(sizes) > 1 and kind != "extra_state" and max(sizes.values()) > UNEVEN * max(min(sizes.values()), 1):
        least = min(sizes, key=lambda path: sizes[path])
        yield f"{least} has {sizes[least]} bytes, others of its kind up to {max(sizes.values())}"


def trainer(folder: Path, ranks: int | None) -> Iterator[str]:
    """The problems of a Transformers trainer's folder, with DeepSpeed's below it where there is one."""
    zero = [path for path in folder.iterdir() if path.is_dir() and STEP.search(path.name)]
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    if not weights:
        yield f"{folder}: no weights"
    for index in folder.glob("*.index.json"):
        named = set(json.loads(index.read_text())["weight_map"].values())
        yield from (
            f"{folder}: {name}, which {index.name} names, is not there"
            for name in sorted(named)
            if not (folder / name).exists()
        )
    for name in ("scheduler.pt", *(() if zero else ("optimizer.pt",))):
        if not (folder / name).exists():
            yield f"{folder}: no {name}, so training cannot go on from here"
    for place in zero:
        yield from deepspeed(place, ranks)


def deepspeed(folder: Path, ranks: int | None) -> Iterator[str]:
    found = {
        int(m[1]): folder / m[0] for path in folder.iterdir() if (m := ZERO.fullmatch(path.name)) and m[3] == "optim"
    }
    world = ranks or (max(found) + 1 if found else 1)
    missing = sorted(set(range(world)) - set(found))
    if missing:
        yield f"{folder}: no optimizer shard of rank {', '.join(map(str, missing))} of {world}"
    yield from uneven("optim", found.values())


def step_of(folder: Path) -> tuple[int | None, Iterator[str]]:
    """The step that the folder's name says, and what contradicts it."""
    found = STEP.search(folder.name)
    step = int(found[1]) if found else None

    def contradictions() -> Iterator[str]:
        state = folder / "trainer_state.json"
        if state.is_file() and step is not None:
            told = json.loads(state.read_text()).get("global_step")
            if told != step:
                yield f"{state} says step {told}"
        latest = folder.parent / "latest_checkpointed_iteration.txt"
        if latest.is_file() and step is not None and latest.read_text().strip() != str(step):
            yield f"{latest} names step {latest.read_text().strip()}: resuming takes that one"

    return step, contradictions()


def answer(question: dict[str, Any]) -> dict[str, Any]:
    folder, ranks = Path(question["folder"]), question.get("ranks")
    if not folder.is_dir():
        return {"not_run": f"the checkpoint {folder} is not there"}
    roles = sorted({path.parent for path in folder.rglob("*.pt") if SHARD.fullmatch(path.name)})
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    layout = "verl" if roles else "trainer" if (folder / "trainer_state.json").exists() else ""
    if not layout:
        return {"layout": None, "problems": [f"{folder} has neither VERL's shards nor a trainer_state.json"]}
    step, contradictions = step_of(folder)
    problems = [problem for role in roles for problem in verl(role, ranks)] if roles else list(trainer(folder, ranks))
    problems += contradictions
    if question.get("step") is not None and step != question["step"]:
        problems.append(f"it is of step {step}, and {question['step']} is due")
    problems += [f"{path} {why}" for path in files if (why := damage(path))]
    return {
        "layout": layout,
        "step": step,
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "roles": [os.path.relpath(role, folder) for role in roles],
        "problems": problems,
    }


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
