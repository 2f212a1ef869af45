"""Running git so that nothing of the user's, of the repository's or of the caller's changes a result."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import Prevented
from patchq.process import Outcome, run

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


@dataclass(frozen=True)
class Git:
    """git bound to one repository: `git_dir`, a private `home`, and further variables in `extra`."""

    git_dir: Path
    home: Path
    extra: tuple[tuple[str, str], ...] = ()

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
        return Git(self.git_dir, self.home, (*self.extra, *variables.items()))

    def try_run(self, args: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None) -> Outcome:
        """Run git and return how it ended, whatever that was; raises `Prevented` where there is no git."""
        return run(("git", *_FIXED, *args), env=self.environment(), cwd=cwd or self.home, stdin=stdin)

    def run(self, args: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
        """Run git and return its standard output; raises `Prevented` with git's own last line if it fails."""
        outcome = self.try_run(args, stdin=stdin, cwd=cwd)
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
    """The line of git's error output that says most: the last `fatal:` or `error:`, else the last one."""
    lines = [line for line in outcome.error_text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return (telling or lines or [f"exit status {outcome.code}"])[-1]


def git_version() -> tuple[int, int]:
    """Major and minor version of the git on `PATH`; raises `Prevented` where there is none."""
    outcome = run(("git", "--version"))
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
