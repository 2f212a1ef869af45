"""Where upstream took a patch's lines in, as far as its history is at hand."""

from __future__ import annotations

import re

from patchq.patch import Patch
from patchq.queue.load import Upstream
from patchq.rebase.candidate import Candidate, clone_of
from patchq.sources import Sources


def landed(sources: Sources, upstream: Upstream, candidate: Candidate, patch: Patch) -> str:
    """The upstream commit that brought a patch's lines, where the history is at hand."""
    clone, git = clone_of(sources, upstream), upstream.baseline.git
    lines = [line for line in patch.data[patch.diff_start :].split(b"\n") if re.match(rb"\+(?!\+\+)", line)]
    if clone is None or git is None or candidate.form != "git" or not lines:
        return ""
    text = max(lines, key=len)[1:].strip().decode("utf-8", "surrogateescape")
    span = f"{git.commit}..{candidate.base.commit}"
    found = clone.git.try_run(("log", "-1", "--format=%h %s", f"-S{text}", span, "--", *sorted(patch.paths)))
    return found.text.strip() if found.ok else ""
