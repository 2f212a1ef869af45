"""The folders that training uses, and on what file systems they lie. Prints one JSON document.

Question: {"folders": {NAME: PATH...}, "caches": true or false}. Each folder gets a small unnamed file that is written,
synced, read back, and gone. Caches are the folders that Hugging Face, torch, Triton and vLLM really use.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLE = 1 << 20
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "glusterfs", "beegfs", "gpfs", "9p", "afs", "pvfs2")


def mounts() -> list[tuple[str, str, str]]:
    """Mount point, type and source of every mount (proc(5), mountinfo)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        kind, source = right.split()[:2]
        found.append((unescape(left.split()[4]), kind, unescape(source)))
    return found


def unescape(text: str) -> str:
    for code, letter in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(code, letter)
    return text


def mount_of(path: str) -> tuple[str, str, str]:
    """The mount that a real path lies on; of two on one point the later covers the earlier."""
    fitting = [m for m in mounts() if path == m[0] or path.startswith(m[0].rstrip("/") + "/")]
    return max(reversed(fitting), key=lambda mount: len(mount[0]))


def kind_of(filesystem: str) -> str:
    """`local`, `network` or `fuse`."""
    if filesystem.startswith("fuse") and filesystem != "fuseblk":
        return "fuse"
    return "network" if filesystem in NETWORK else "local"


def describe(path: str) -> dict[str, Any]:
    """The file system below a folder, or below what is there of its path."""
    place = Path(os.path.realpath(path))
    there = place
    while not there.exists():
        there = there.parent
    point, filesystem, source = mount_of(str(there))
    space = os.statvfs(there)
    return {
        "path": path,
        "real": str(place),
        "exists": place.is_dir(),
        "mount": point,
        "filesystem": filesystem,
        "kind": kind_of(filesystem),
        "source": source,
        "size": space.f_blocks * space.f_frsize,
        "free": space.f_bavail * space.f_frsize,
        "inodes": space.f_files,
        "free_inodes": space.f_favail,
        **write_test(there if there.is_dir() else there.parent),
    }


def write_test(folder: Path) -> dict[str, Any]:
    """Write, sync and read back; the file never has a name where the file system allows that."""
    sample = os.urandom(SAMPLE)
    began = time.monotonic()
    try:
        with unnamed(folder) as stream:
            stream.write(sample)
            stream.flush()
            os.fsync(stream.fileno())
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stream.seek(0)
            same = stream.read() == sample
    except OSError as error:
        return {"writable": False, "error": error.strerror or str(error)}
    return {
        "writable": same,
        "seconds": time.monotonic() - began,
        **({} if same else {"error": "other bytes came back"}),
    }


def unnamed(folder: Path) -> Any:
    return tempfile.TemporaryFile(dir=folder, prefix=".patchq-write-test-")


def temporary() -> str:
    """What `tempfile.gettempdir` says, without the file that it writes to see: one that is killed leaves it behind."""
    asked = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    usable = (one for one in (*asked, "/tmp", "/var/tmp", "/usr/tmp") if one and os.access(one, os.W_OK | os.X_OK))
    return os.path.abspath(next(usable, os.curdir))


def caches() -> dict[str, dict[str, Any]]:
    """The cache folders in force, by the rules of the libraries themselves, and the variable that decided.

    huggingface_hub/constants.py, transformers/utils/hub.py, torch/hub.py, triton/runtime/cache.py,
    torch/_inductor/runtime/cache_dir_utils.py, torch/utils/cpp_extension.py, vllm/envs.py.
    """
    home = os.path.expanduser("~")
    xdg = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    hub_home = os.environ.get("HF_HOME") or os.path.join(xdg, "huggingface")
    rules: dict[str, tuple[tuple[str, ...], str]] = {
        "huggingface": (("HF_HOME",), os.path.join(xdg, "huggingface")),
        "huggingface hub": (("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), os.path.join(hub_home, "hub")),
        "datasets": (("HF_DATASETS_CACHE",), os.path.join(hub_home, "datasets")),
        "transformers": (("TRANSFORMERS_CACHE",), ""),
        "torch": (("TORCH_HOME",), os.path.join(xdg, "torch")),
        "torch extensions": (("TORCH_EXTENSIONS_DIR",), os.path.join(home, ".cache", "torch_extensions")),
        "torch inductor": (
            ("TORCHINDUCTOR_CACHE_DIR",),
            os.path.join(temporary(), f"torchinductor_{user()}"),
        ),
        "triton": (("TRITON_CACHE_DIR",), os.path.join(os.environ.get("TRITON_HOME") or home, ".triton", "cache")),
        "vllm": (("VLLM_CACHE_ROOT",), os.path.join(xdg, "vllm")),
    }
    found = {}
    for name, (variables, default) in rules.items():
        variable = next((one for one in variables if os.environ.get(one)), "")
        path = os.path.expanduser(os.environ[variable]) if variable else default
        if path:
            found[name] = {"variable": variable, **describe(path)}
    return found


def user() -> str:
    import getpass

    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return str(os.getuid())


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    answer = {
        "folders": {name: describe(path) for name, path in question.get("folders", {}).items()},
        "caches": caches() if question.get("caches") else {},
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
