"""Trees and series to measure with: the same from the same seed, in repositories of their own."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WORDS = ("loss", "mask", "reward", "actor", "critic", "rollout", "batch", "tensor", "shard", "rank", "worker", "token")
SEED = 20260701
_BEGAN = 1_782_900_000
_TEXT = (".py", ".sh", ".md", ".rst", ".yaml")
_HOT = 25
_CLEAN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C", "TZ": "UTC",
          "GIT_COMMITTER_NAME": "Cy", "GIT_COMMITTER_EMAIL": "cy@example.org",
          "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}  # fmt: skip


def clean_environment() -> dict[str, str]:
    """For every peer, what patchq gives its own git: nothing of the user's configuration."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _CLEAN


def git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    """What git prints in `folder`; raises where it fails."""
    return subprocess.run(("git", *words), cwd=folder, env=clean_environment(), input=stdin,
                          stdout=subprocess.PIPE, check=True).stdout  # fmt: skip


def blobs(folder: Path, identities: Sequence[str]) -> Iterator[bytes]:
    """The bytes of each blob, from one process."""
    answer = git(folder, "cat-file", "--batch", stdin="".join(f"{identity}\n" for identity in identities).encode())
    at = 0
    for _ in identities:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].rpartition(b" ")[2])
        yield answer[end + 1 : end + 1 + size]
        at = end + size + 2


@dataclass(frozen=True)
class Tree:
    """A tree to patch: `commit` in the bare repository `git_dir`, all in one pack."""

    name: str
    git_dir: Path
    commit: str

    def texts(self) -> dict[str, list[str]]:
        """The text files that a generated patch may change, as lines."""
        listed = git(self.git_dir, "ls-tree", "-r", "-z", self.commit).decode().split("\0")
        rows = [(row.split("\t")[1], *row.split("\t")[0].split(" ")) for row in listed if row]
        wanted = [(path, identity) for path, mode, _, identity in rows if mode != "120000" and path.endswith(_TEXT)]
        datas = blobs(self.git_dir, [identity for _, identity in wanted])
        return {
            path: data.decode().split("\n")
            for (path, _), data in zip(wanted, datas, strict=True)
            if b"\r" not in data and len(data) > 400 and data.endswith(b"\n")
        }


def import_tree(name: str, folder: Path, files: Iterator[tuple[str, str, bytes]]) -> Tree:
    """One commit that holds `files` (path, mode, bytes), in a new bare repository."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare", ".")
    stream = [f"commit refs/heads/base\ncommitter Cy <cy@example.org> {_BEGAN} +0000\ndata 0\n".encode()]
    for path, mode, data in files:
        stream.append(b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), path.encode(), len(data), data))
    git(folder, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", stdin=b"".join(stream))
    return Tree(name, folder, git(folder, "rev-parse", "base").decode().strip())


def synthetic(folder: Path, count: int) -> Tree:
    """`count` modules in folders of fifty, about 1 kB each."""
    rng = random.Random(SEED)

    def files() -> Iterator[tuple[str, str, bytes]]:
        for n in range(count):
            lines = [f"def {rng.choice(WORDS)}_{k}(x):\n    return x + {rng.randrange(10**6)}\n\n" for k in range(20)]
            yield f"pkg/part{n // 2500:03d}/group{n // 50 % 50:02d}/module{n:05d}.py", "100644", "".join(lines).encode()

    return import_tree(f"{count:,} files", folder, files())


@dataclass(frozen=True)
class Series:
    """A generated series: patch files in their order, in git's form and in one that plain `patch` reads."""

    tree: Tree
    git_form: tuple[Path, ...]
    plain: tuple[Path, ...]
    trees: tuple[str, ...]

    def first(self, count: int) -> Series:
        """The first patches of it."""
        return Series(self.tree, self.git_form[:count], self.plain[:count], self.trees[:count])

    def touched(self) -> int:
        """How many times a patch of it touches a file."""
        return sum(patch.read_bytes().count(b"\ndiff --git ") for patch in self.git_form)

    def __len__(self) -> int:
        return len(self.git_form)


def generate(tree: Tree, folder: Path, count: int) -> Series:
    """`count` patches: most edit one to three files, a quarter the same few; some add, rename, delete, chmod."""
    return _format(tree, folder, b"".join(_Writer(tree, random.Random(SEED)).stream(count)))


def one_large(tree: Tree, folder: Path, files: int, lines: int) -> Series:
    """One patch that puts `lines` lines into each of `files` files."""
    return _format(tree, folder, b"".join(_Writer(tree, random.Random(SEED)).wide(files, lines)))


def _format(tree: Tree, folder: Path, stream: bytes) -> Series:
    git(tree.git_dir, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--force", stdin=stream)
    span = f"{tree.commit}..generated"
    forms = []
    for form, options in (("git", ("-M", "--full-index")), ("plain", ("--no-renames",))):
        out = folder / form
        git(tree.git_dir, "format-patch", "-q", "--zero-commit", "--no-signature", "-N", *options, "-o", str(out), span)
        forms.append(tuple(sorted(out.iterdir())))
    trees = git(tree.git_dir, "log", "--reverse", "--format=%T", span).decode().split()
    # Neither peer nor patchq may find the results there already.
    git(tree.git_dir, "update-ref", "-d", "refs/heads/generated")
    git(tree.git_dir, "-c", "gc.reflogExpire=now", "repack", "-a", "-d", "-q", "--no-write-bitmap-index")
    git(tree.git_dir, "prune", "--expire=now")
    return Series(tree, *forms, tuple(trees))


@dataclass
class _Writer:
    """Writes commits for `git fast-import`, and keeps what each file holds by then."""

    tree: Tree
    rng: random.Random
    files: dict[str, list[str]] = field(init=False)
    hot: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.files = self.tree.texts()
        modules = [path for path in self.files if path.endswith(".py")]
        self.hot = sorted(modules, key=lambda path: (-len(self.files[path]), path))[:_HOT]

    def stream(self, count: int) -> Iterator[bytes]:
        for number in range(1, count + 1):
            who = f"Dev {number % 7} <dev{number % 7}@example.org> {_BEGAN + number * 60} +0000"
            text = f"Keep {self._word()} and {self._word()} consistent ({number})\n\nSeen in run {number}.\n".encode()
            yield f"commit refs/heads/generated\nauthor {who}\ncommitter {who}\ndata {len(text)}\n".encode() + text
            if number == 1:
                yield f"from {self.tree.commit}\n".encode()
            yield from self._changes(number)
            yield b"\n"

    def wide(self, files: int, lines: int) -> Iterator[bytes]:
        yield f"commit refs/heads/generated\ncommitter Cy <cy@example.org> {_BEGAN} +0000\ndata 5\nWide\n".encode()
        yield f"from {self.tree.commit}\n".encode()
        for path in sorted(self.files)[:files]:
            self.files[path][10:10] = [self._line() for _ in range(lines)]
            yield self._write(path)

    def _changes(self, number: int) -> Iterator[bytes]:
        files = sorted(self.files)
        touched: set[str] = set()
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            path = self.rng.choice(self.hot if self.rng.random() < 0.25 else files)
            if path not in touched and path in self.files:
                touched.add(path)
                yield from self._change(path, number)

    def _change(self, path: str, number: int) -> Iterator[bytes]:
        chance = self.rng.random()
        folder = path.rpartition("/")[0]
        beside = f"{folder}/made_{number:04d}.py".lstrip("/")
        if chance < 0.05:
            self.files[beside] = [f"def made_{k}():" if k % 2 else f"    {self._line()}" for k in range(1, 60)] + [""]
            yield self._write(beside)
        elif path not in self.hot and chance < 0.08:
            self.files[beside] = self.files.pop(path)
            yield f"R {path} {beside}\n".encode()
            self._edit(beside)
            yield self._write(beside)
        elif path not in self.hot and chance < 0.09:
            del self.files[path]
            yield f"D {path}\n".encode()
        else:
            self._edit(path)
            yield self._write(path, "100755" if path.endswith(".sh") and chance < 0.3 else "100644")

    def _edit(self, path: str) -> None:
        lines = self.files[path]
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            at = self.rng.randrange(len(lines))
            taken = self.rng.choice((0, 0, 1, 2))
            lines[at : min(at + taken, len(lines) - 1)] = [self._line() for _ in range(self.rng.randrange(1, 6))]

    def _write(self, path: str, mode: str = "100644") -> bytes:
        data = "\n".join(self.files[path]).encode()
        return f"M {mode} inline {path}\ndata {len(data)}\n".encode() + data + b"\n"

    def _line(self) -> str:
        return f"    {self._word()}_{self._word()} = {self._word()}({self.rng.randrange(10**6)})  # local"

    def _word(self) -> str:
        return self.rng.choice(WORDS)


def mailbox(patches: Sequence[Path], path: Path) -> Path:
    """All patches in one file, for `git am`."""
    path.write_bytes(b"".join(patch.read_bytes() for patch in patches))
    return path


def folder_of(patches: Sequence[Path], folder: Path, extra: Mapping[str, str] | None = None) -> Path:
    """A quilt folder with these patches and their `series`."""
    folder.mkdir(parents=True)
    for patch in patches:
        (folder / patch.name).write_bytes(patch.read_bytes())
    (folder / "series").write_text("".join(f"{patch.name}\n" for patch in patches))
    for name, text in (extra or {}).items():
        (folder / name).write_text(text)
    return folder
