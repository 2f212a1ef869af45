"""What the machine is: devices and their driver, the toolkit that torch was built for, kernel, CPUs, memory.

Question: {"query": SHELL COMMAND or ""}. NVML answers where it is there, else `nvidia-smi`; a query of the target's own
comes first. Nothing heavy is imported. Prints one JSON document.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUERY_SECONDS = 30
DRIVER = re.compile(r"(?i)\bdriver(?:[ _-]?version)?\s*[:=|]?\s*v?(\d[\w.+-]*)")
DEVICE = re.compile(r"(?m)^\s*[A-Z]{2,4} (\d+): (.+)$")
TEXT = 96


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t, as of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """The few calls of the NVIDIA management library that are needed, without its Python package."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.call("nvmlInit_v2")

    def call(self, name: str, *words: Any) -> None:
        code = getattr(self.library, name)(*words)
        if code:
            raise OSError(code, f"{name} gave {code}")

    def text(self, name: str, *words: Any) -> str:
        buffer = ctypes.create_string_buffer(TEXT)
        self.call(name, *words, buffer, TEXT)
        return buffer.value.decode("utf-8", "replace")

    def number(self, name: str, *words: Any) -> int:
        value = ctypes.c_int()
        self.call(name, *words, ctypes.byref(value))
        return value.value

    def answer(self) -> dict[str, Any]:
        limit = self.number("nvmlSystemGetCudaDriverVersion_v2")
        count = self.number("nvmlDeviceGetCount_v2")
        return {
            "by": "NVML",
            "driver": self.text("nvmlSystemGetDriverVersion"),
            "limit": f"{limit // 1000}.{limit % 1000 // 10}",
            "devices": [self.device(index) for index in range(count)],
        }

    def device(self, index: int) -> dict[str, Any]:
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        memory = Memory()
        self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        return {
            "index": index,
            "name": self.text("nvmlDeviceGetName", handle),
            "uuid": self.text("nvmlDeviceGetUUID", handle),
            "capability": f"{major.value}.{minor.value}",
            "total": memory.total,
            "free": memory.free,
            "processes": self.processes(handle),
        }

    def processes(self, handle: ctypes.c_void_p) -> list[dict[str, Any]] | None:
        """Who computes on a device; None where the driver does not say."""
        room = 128
        count, found = ctypes.c_uint(room), (Process * room)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except (OSError, AttributeError):
            return None
        return [{"pid": one.pid, "used": one.used, "name": program(one.pid)} for one in found[: count.value]]


def program(pid: int) -> str:
    """The command of a process, empty where it cannot be seen (another container's, or gone)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]
    except OSError:
        return ""


def by_command(command: str) -> dict[str, Any]:
    """What a vendor's query prints; the driver and the devices as far as its text can be read."""
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, errors="replace", timeout=QUERY_SECONDS, check=False
    )
    driver = DRIVER.search(done.stdout)
    devices = {int(index): name.strip() for index, name in DEVICE.findall(done.stdout)}
    answer: dict[str, Any] = {
        "by": command,
        "driver": driver[1] if driver else None,
        "devices": [{"index": index, "name": name} for index, name in devices.items()],
        "output": done.stdout[:4000],
    }
    if done.returncode:
        answer["error"] = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return answer


def by_smi() -> dict[str, Any]:
    """`nvidia-smi`, where the library itself cannot be loaded."""
    fields = ("index", "name", "uuid", "compute_cap", "driver_version")
    argv = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)
    if done.returncode:
        raise OSError((done.stdout + done.stderr).strip().splitlines()[-1])
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    head = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=QUERY_SECONDS, check=False).stdout
    limit = re.search(r"CUDA Version:\s*([\d.]+)", head)
    return {
        "by": "nvidia-smi",
        "driver": rows[0][4] if rows else None,
        "limit": limit[1] if limit else None,
        "devices": [{"index": int(r[0]), "name": r[1], "uuid": r[2], "capability": r[3]} for r in rows],
    }


def accelerators(query: str) -> dict[str, Any]:
    ways: list[Callable[[], dict[str, Any]]] = [lambda: by_command(query)] if query else [lambda: Nvml().answer()]
    if not query and shutil.which("nvidia-smi"):
        ways.append(by_smi)
    reasons: list[str] = []
    for way in ways:
        answer = tried(way, reasons)
        if answer is not None:
            return answer
    return {"devices": [], "missing": "; ".join(reasons)}


def tried(way: Callable[[], dict[str, Any]], reasons: list[str]) -> dict[str, Any] | None:
    try:
        return way()
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        reasons.append(str(error))
        return None


def toolkit() -> dict[str, Any]:
    """What torch says of itself in its `version.py`, which is read and not run."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return {}
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return {}
    pattern = re.compile(r"(?m)^(cuda|hip|xpu|__version__)(?::[^=]+)?\s*=\s*['\"]([^'\"]+)['\"]")
    return dict(pattern.findall(text))


def memory() -> dict[str, int]:
    """Bytes of memory and of shared memory."""
    pairs = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    known = {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs if len(words) > 1}
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return {
        "total": known.get("MemTotal", 0),
        "available": known.get("MemAvailable", 0),
        "shared": shared.f_blocks * shared.f_frsize if shared else 0,
    }


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    answer = {
        "kernel": platform.release(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": memory(),
        "container": os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"),
        "accelerators": accelerators(question.get("query", "")),
        "torch": toolkit(),
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
