"""Pull requests of verl against the baseline: each ends in the state that git and the rules for `upstreamed` give.

Judged are their own diffs (merge base to head), by git's `apply --check` on a full index in a repository of its own.
A sample is taken of the newest 900; `PATCHQ_PULLS=900` takes them all.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from verl_source import BASELINE, verl_source

from patchq.engine import Base, Engine, Placed
from patchq.errors import Invalid
from patchq.patch import Patch, parse_patch
from patchq.queue.load import QueuedPatch
from patchq.report import State
from patchq.series import SeriesEntry
from patchq.store import Source, Store, fetch_commit

pytestmark = pytest.mark.upstream

NEWEST = 900
SAMPLE = int(os.environ.get("PATCHQ_PULLS", "60"))
_OUR_REFUSALS = re.compile(r"is a symbolic link|is a submodule's|points out of the tree|points to the absolute")


@dataclass(frozen=True)
class Judge:
    """Plain git on a bare repository that borrows the clone's objects; the index holds the whole baseline."""

    folder: Path
    source: Path

    @classmethod
    def make(cls, folder: Path, source: Path) -> Judge:
        judge = cls(folder, source)
        judge.git("init", "-q", "--bare", str(folder))
        (folder / "objects/info/alternates").write_text(f"{source / 'objects'}\n")
        judge.git("read-tree", BASELINE)
        return judge

    def git(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        self.folder.mkdir(exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env = {**inherited, "GIT_DIR": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
        argv = ("git", *words)
        return subprocess.run(argv, cwd=self.folder, env=env, input=stdin, capture_output=True, check=False)

    def diff(self, head: str) -> bytes:
        """A pull request's own diff; nothing where it has no history in common with the main branch."""
        base = self.git("merge-base", "refs/remotes/main", head).stdout.decode().strip()
        return self.git("diff", "--binary", "--full-index", "-M", base, head).stdout if base else b""

    def state(self, diff: bytes) -> State:
        """What git and the rules say of a diff on the baseline."""
        if self.git("apply", "--cached", "--check", stdin=diff).returncode == 0:
            return State.APPLIED
        back = self.git("apply", "--cached", "--check", "-v", "-R", stdin=diff)
        is_there = back.returncode == 0 and b"offset" not in back.stderr
        return State.UPSTREAMED if is_there and self._every_place_is_the_only_one(diff) else State.CONFLICT

    def tree(self, diff: bytes) -> str:
        """The tree after a diff that applies."""
        try:
            assert self.git("apply", "--cached", "--whitespace=nowarn", stdin=diff).returncode == 0
            return self.git("write-tree").stdout.decode().strip()
        finally:
            self.git("read-tree", BASELINE)

    def _every_place_is_the_only_one(self, diff: bytes) -> bool:
        """Whether what each hunk leaves stands once in its file, compared line by line."""
        for path, block in _left_behind(diff):
            lines = self.git("cat-file", "blob", f"{BASELINE}:{path}").stdout.split(b"\n")
            places = [at for at in range(len(lines)) if lines[at : at + len(block)] == block]
            if block and len(places) != 1:
                return False
        return True


def _left_behind(diff: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Path, and the lines after the change, of each hunk of each text file that is there after it."""
    for part in re.split(rb"^diff --git ", diff, flags=re.MULTILINE)[1:]:
        name = re.search(rb"^\+\+\+ b/(.*?)\t?$", part, re.MULTILINE)
        if not name or b"\nGIT binary patch\n" in part:
            continue
        for hunk in re.split(rb"^@@ .*\n", part, flags=re.MULTILINE)[1:]:
            rows = hunk.split(b"\n")[:-1]
            yield os.fsdecode(name[1]), [row[1:] for row in rows if row[:1] in (b" ", b"+")]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    source = verl_source()
    made = Judge.make(tmp_path_factory.mktemp("judge") / "git", source)
    main = subprocess.run(("git", "-C", str(source), "rev-parse", "main"), capture_output=True, text=True, check=True)
    made.git("update-ref", "refs/remotes/main", main.stdout.strip())
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(tmp_path_factory.mktemp("store"))
    fetch_commit(store, Source("verl", str(verl_source())), BASELINE)
    return store


def pulls(source: Path) -> dict[int, str]:
    """Number → head of the newest pull requests, or of a sample of them."""
    argv = ("git", "-C", str(source), "for-each-ref", "--format=%(refname) %(objectname)", "refs/pull/*/head")
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    heads = {int(name.split("/")[2]): head for name, head in (row.split() for row in listed)}
    newest = sorted(heads, reverse=True)[:NEWEST]
    return {number: heads[number] for number in sorted(random.Random(5).sample(newest, min(SAMPLE, len(newest))))}


def parsed(number: int, diff: bytes) -> Patch | tuple[str, ...]:
    """The patch, or why it is refused."""
    name = f"verl/backport/pull-{number}.patch"
    try:
        return parse_patch(name, b"Description: a pull request\nOrigin: other\n\n" + diff, name)
    except Invalid as error:
        return tuple(problem.what for problem in error.problems)


def placed(engine: Engine, base: Base, patch: Patch) -> Placed:
    (step,) = engine.apply(base, [QueuedPatch("verl", SeriesEntry(patch.name.partition("/")[2]), patch.data)])
    return step


def test_pull_requests_end_as_git_and_the_rules_say(
    judge: Judge, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    base = Base.of(store, BASELINE)
    with Engine.on(store) as engine:
        for number, head in pulls(judge.source).items():
            diff = judge.diff(head)
            if not diff:
                counts["without a diff"] += 1
                continue
            patch = parsed(number, diff)
            if isinstance(patch, tuple):
                counts["malformed"] += 1
                wrong += [f"{number}: {what}" for what in patch if not _OUR_REFUSALS.search(what)]
                continue
            step = placed(engine, base, patch)
            counts[step.state.value] += 1
            expected = judge.state(diff)
            if step.state is not expected:
                wrong.append(f"{number}: {step.state.value}, git says {expected.value}")
            elif step.ok and step.tree != judge.tree(diff):
                wrong.append(f"{number}: applied, but to another tree than git's")
            elif not step.ok and not (step.applied and step.applied.errors):
                wrong.append(f"{number}: {step.state.value} without a reason")
    with capsys.disabled():
        sys.stderr.write(f"\n{sum(counts.values())} pull requests: {dict(counts.most_common())}\n")
    assert not wrong, "\n".join(wrong)
