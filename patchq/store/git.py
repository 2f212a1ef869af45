"""Running git so that nothing of the user's, of the repository's or of the caller's changes a result."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.errors import Prevented
from patchq.exclusive import Use
from patchq.process import Outcome, run, run_together

# git 2.25 does not know GIT_CONFIG_GLOBAL, so that the private home has to hold the file; `safe.directory` is
# for `upload-pack` of a source that somebody else owns, which no command-line setting reaches.
GLOBAL_CONFIG = '[safe]\n\tdirectory = *\n[protocol "ext"]\n\tallow = never\n'

_FIXED = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
    "-c", "core.autocrlf=false",
    "-c", "core.fileMode=true",
    "-c", "core.symlinks=true",
    "-c", "core.protectNTFS=true",
    "-c", "core.protectHFS=true",
    "-c", "protocol.ext.allow=never",
    "-c", "apply.whitespace=nowarn",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "advice.detachedHead=false",
)  # fmt: skip


UNWRITABLE = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
_MACHINE = (*UNWRITABLE, os.strerror(errno.EIO), os.strerror(errno.ENOMEM))
_FATAL = 128
_NOT_MINE = "error: insufficient permission for adding an object to repository database"


@dataclass(frozen=True)
class Git:
    """git bound to one repository: `git_dir`, a private `home`, and further variables in `extra`.

    With `use`, that the repository is used; a git that outlives this process keeps that up.
    """

    git_dir: Path
    home: Path
    extra: tuple[tuple[str, str], ...] = ()
    use: Use | None = None

    def environment(self) -> dict[str, str]:
        """The whole environment of a git child: no inherited `GIT_*`, no user or system configuration."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        return {
            **inherited,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CEILING_DIRECTORIES": str(self.git_dir.parent),
            "GIT_DIR": str(self.git_dir),
            "LC_ALL": "C",
            "LANGUAGE": "C",
            "TZ": "UTC",
            **dict(self.extra),
        }

    def overriding(self) -> dict[str, str]:
        """Our variables for a child that inherits the caller's environment: what steers git is set to nothing.

        Only for commands that need no work tree. What may not be empty names this very repository.
        """
        ours = {name: value for name, value in self.environment().items() if os.environ.get(name) != value}
        nothing = dict.fromkeys((name for name in os.environ if name.startswith("GIT_")), "")
        here = dict.fromkeys(("GIT_COMMON_DIR", "GIT_WORK_TREE"), str(self.git_dir))
        objects = str(self.git_dir / "objects")
        return {**nothing, **here, **ours, "GIT_OBJECT_DIRECTORY": objects, "GIT_CONFIG_COUNT": "0"}

    def with_variables(self, variables: Mapping[str, str]) -> Git:
        """The same git with more variables set (`GIT_INDEX_FILE`, `GIT_WORK_TREE`, …)."""
        return replace(self, extra=(*self.extra, *variables.items()))

    def try_run(self, args: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None) -> Outcome:
        """Run git and return its answer, whatever that is.

        Raises `Prevented` where it has none: there is no git, it was killed, or the machine did not let it write.
        """
        with self.noted() as (kept, ended):
            outcome = run(("git", *_FIXED, *args), env=self.environment(), cwd=cwd or self.home, stdin=stdin, kept=kept)
            ended(outcome)
        if outcome.code < 0 or (not outcome.ok and _is_the_machines(last_line(outcome))):
            raise Prevented(f"git {_command(args)} failed: {last_line(outcome)}", where=str(self.git_dir))
        return outcome

    def run(self, args: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
        """Run git and return its standard output; raises `Prevented` with git's own last line if it fails."""
        return self._output(args, self.try_run(args, stdin=stdin, cwd=cwd))

    def run_together(self, commands: Sequence[tuple[Sequence[str], bytes]]) -> list[bytes]:
        """Like `run` for several commands (arguments, stdin), which work at the same time."""
        prepared = [(("git", *_FIXED, *args), stdin) for args, stdin in commands]
        with self.noted() as (kept, ended):
            outcomes = run_together(prepared, env=self.environment(), cwd=self.home, kept=kept)
            ended(*outcomes)
        return [self._output(args, outcome) for (args, _), outcome in zip(commands, outcomes, strict=True)]

    @contextlib.contextmanager
    def noted(self) -> Iterator[tuple[tuple[int, ...], Callable[..., None]]]:
        """For a block that runs git: the descriptors that it keeps, and what is to hear how it ended.

        One that did not end by itself, or failed where one that it started was killed, may have left something.
        """
        heard: list[Outcome] = []
        try:
            yield (self.use.descriptor,) if self.use else (), lambda *outcomes: heard.extend(outcomes)
        finally:
            if self.use and not (heard and all(0 <= outcome.code < _FATAL for outcome in heard)):
                with contextlib.suppress(OSError):
                    self.use.doubt()

    @staticmethod
    def _output(args: Sequence[str], outcome: Outcome) -> bytes:
        if not outcome.ok:
            raise Prevented(f"git {_command(args)} failed: {last_line(outcome)}")
        return outcome.stdout

    def line(self, args: Sequence[str], *, stdin: bytes = b"") -> str:
        """The one line that git prints, without its newline."""
        return self.run(args, stdin=stdin).decode("utf-8", "surrogateescape").rstrip("\n")


def make_home(folder: Path) -> Path:
    """Create (once) the private home that git children get, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / ".gitconfig"
    if not config.exists():
        config.write_text(GLOBAL_CONFIG)
    return folder


def _command(args: Sequence[str]) -> str:
    """The command among git's arguments: what follows the settings in front of it."""
    at = 0
    while args[at] == "-c":
        at += 2
    return args[at]


def last_line(outcome: Outcome) -> str:
    """The line of git's error output that says most: what the machine said, else the last `fatal:` or `error:`, else
    the last one."""
    lines = [line for line in outcome.error_text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    machine = [line for line in lines if _is_the_machines(line)]
    return (machine or telling or lines or [f"exit status {outcome.code}"])[-1]


def _is_the_machines(line: str) -> bool:
    return line.endswith(_MACHINE) or line.startswith(_NOT_MINE)


def git_version() -> tuple[int, int]:
    """Major and minor version of the git on `PATH`; raises `Prevented` where there is none."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    nobody = {"HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    outcome = run(("git", "--version"), env={**alone, **nobody})
    found = re.search(r"(\d+)\.(\d+)", outcome.text)
    if not outcome.ok or not found:
        raise Prevented("git does not answer to --version")
    return int(found[1]), int(found[2])


def own_identity(folder: Path) -> str:
    """`NAME <MAIL> SECONDS ZONE` as the person's own git in `folder` says it; empty where it knows nobody."""
    outcome = run(("git", "var", "GIT_AUTHOR_IDENT"), cwd=folder)
    return outcome.text.strip() if outcome.ok else ""


def require_git(minimum: tuple[int, int], verb: str) -> str:
    """The version of git as text; raises `Prevented` when it is older than `verb` needs."""
    version = git_version()
    shown = ".".join(map(str, version))
    if version < minimum:
        raise Prevented(f"git {shown} is too old for {verb}; {minimum[0]}.{minimum[1]} is the oldest that will do")
    return shown
