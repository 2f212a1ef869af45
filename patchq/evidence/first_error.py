"""The first effective error of a log: the root cause in a pile of Ray, torchrun and vLLM tracebacks.

Not the last line, and not simply the first traceback either. Within one process the error that counts is the one
it did not survive; where an exception led to another, the first of the chain; and across processes the earliest,
passing over those that only say that somebody else has died.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patchq.evidence.logline import Line, read_line
from patchq.mask import mask

EXCERPT = 24
MAX_LINE = 4096
MAX_STRAYS = 20
MESSAGE_LINES = 5

_BEGIN = re.compile(r"\s*(?:[+|]\s*)?(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_REMOTE = re.compile(r"\s*ray::\S+.*\(pid=")
_RAISED = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:\((?P<inner>[\w.]+)\))?(?::(?:\s(?P<text>.*))?)?$")
_EXCEPTION_NAME = re.compile(
    r"(?:^|\.)[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout|Stop|Failure|Warning|Expired|Refused|Killed)\w*$"
    r"|\.[A-Z]\w*$|^(?:StopIteration|Empty|Full)$"
)
_CHAINED = re.compile(
    r"During handling of the above exception|The above exception was the direct cause of the following"
)
_IGNORED = re.compile(r"Exception ignored in|Error in atexit|Exception in thread .*\(most likely raised during")

# Exceptions that say that another process has failed, or that somebody was told to stop.
_CONSEQUENCE_KINDS = re.compile(
    r"(?:.*\.)?(?:ChildFailedError|CalledProcessError|RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError"
    r"|ActorUnavailableError|OwnerDiedError|NodeDiedError|LocalRayletDiedError|EngineDeadError|EngineGenerateError"
    r"|MPClientEngineMonitorError|ProcessRaisedException|ProcessExitedException|BrokenProcessPool|SystemExit"
    r"|KeyboardInterrupt|BrokenPipeError|ConnectionResetError|EOFError|SignalException|CancelledError|GeneratorExit)$"
)
_CONSEQUENCE_TEXTS = re.compile(
    r"See root cause above|Engine core initialization failed|Engine process failed to start|EngineCore (?:died|failed)"
    r"|The actor (?:is dead|died)|Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|worker died"
    r"|remote process exited or there was a network error|Watchdog caught collective operation timeout"
    r"|Some NCCL operations have failed or timed out|WorkerProc initialization failed|peer closed connection"
    r"|recvValue failed|Stop_waiting response|cancelled because|store may be down"
)

# Deaths that leave no Python traceback, and errors of launchers and shells.
_DEATHS = re.compile(
    r"(?P<kind>Fatal Python error|Segmentation fault|\*{3} SIG[A-Z]+ received|Bus error|Illegal instruction"
    r"|terminate called after throwing|Out of memory: Killed process|oom-kill|symbol lookup error"
    r"|error while loading shared libraries|No module named|command not found|error: unrecognized arguments"
    r"|error: the following arguments are required|error: argument|No space left on device|Killed$)"
)
# One of these stands in every line that is more than progress; most lines have none, and cost no more than this.
_NOTABLE = (
    "xception", "rror", "SIG", "ault", "llegal", "terminate", "illed", "memory", "shared", "module", "not found",
    "No space", "oom",
)  # fmt: skip
_ERROR_LIKE = re.compile(r"\b(?:error|fatal|exception|panic|abort(?:ed)?|cannot|failed|failure)\b", re.IGNORECASE)
_AFTERMATH = re.compile(
    r"error|fail|fatal|exception|traceback|warn|shut|exit|terminat|clos|abort|clean|stop|kill|died|dead|signal|cause"
    r"|retry|destroy|leaked|root cause|host\s+:|rank\s+:|time\s+:|traceback\s+:|^[-=*\s]*$|NOTE|repeated",
    re.IGNORECASE,
)
_TORCHRUN_RANK = re.compile(r"rank\s*:\s*(\d+)")


@dataclass(frozen=True)
class FirstError:
    """The root cause: where it stands in the log (1-based), what it is, in which process, and its last lines.

    `kind` is the exception's type, or words for a death without a traceback; `process` the prefix under which Ray,
    torchrun or vLLM show the process (empty: none); `led_to` the exception that came of it in the same process.
    """

    line: int
    kind: str
    message: str
    process: str = ""
    excerpt: tuple[str, ...] = ()
    led_to: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    def facts(self) -> dict[str, Any]:
        """As JSON types, with secrets masked."""
        return {
            "line": self.line,
            "kind": self.kind,
            "message": mask(self.message),
            "process": self.process,
            "excerpt": [mask(row) for row in self.excerpt],
            "led_to": mask(self.led_to),
        }


@dataclass(frozen=True)
class _Candidate:
    """An error that may be the one: `handled` says that it was only logged, `survived` that its process went on."""

    error: FirstError
    consequence: bool
    handled: bool = False
    survived: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.error.kind.rpartition(".")[2], self.error.message


@dataclass
class _Stream:
    """What one process says: the traceback that it is in, and the candidates so far."""

    frames: deque[str] = field(default_factory=lambda: deque(maxlen=EXCERPT))
    inside: bool = False
    strays: int = 0
    message_lines: int = 0
    chained: bool = False
    quiet: bool = False
    found: list[_Candidate] = field(default_factory=list)

    def feed(self, line: Line) -> None:
        if "Traceback" in line.text and _BEGIN.match(line.text):
            self._begin(line)
        elif self.inside:
            self._inside(line)
        elif not any(word in line.text for word in _NOTABLE):
            if line.text.strip():
                self._outside(line)
        elif _CHAINED.search(line.text):
            self.chained = bool(self.found)
        elif _IGNORED.search(line.text):
            self.quiet = True
        elif death := _DEATHS.search(line.text):
            self._add(line, death["kind"].strip("* "), line.text.strip())
        elif line.text.strip():
            self._outside(line)

    def _begin(self, line: Line) -> None:
        self.quiet = self.quiet or line.level in ("WARNING", "INFO", "DEBUG")
        self.frames.clear()
        self.frames.append(line.text.rstrip())
        self.inside, self.strays = True, 0

    def _inside(self, line: Line) -> None:
        text = line.text.rstrip()
        if not text or text[0].isspace() or text[0] in "|+":
            self.frames.append(text)
        elif (raised := _RAISED.match(text)) and _EXCEPTION_NAME.search(raised["kind"]):
            self.frames.append(text)
            self._raised(line, raised)
        else:
            self.strays += 1
            self.inside = self.strays < MAX_STRAYS

    def _raised(self, line: Line, raised: re.Match[str]) -> None:
        """The line that names the exception; a Ray error carries the remote traceback after it."""
        self.inside = False
        text = (raised["text"] or "").strip()
        if raised["inner"] or _REMOTE.match(text):
            self._begin(line)
        else:
            self._add(line, raised["kind"], text)

    def _add(self, line: Line, kind: str, text: str) -> None:
        if self.chained:
            first = self.found[-1]
            error = replace(first.error, led_to=f"{kind}: {text}" if text else kind)
            self.found[-1] = replace(first, error=error, handled=self.quiet, survived=False)
        else:
            error = FirstError(line.number, kind, text, line.process, tuple(self.frames))
            consequence = bool(_CONSEQUENCE_KINDS.fullmatch(kind) or _CONSEQUENCE_TEXTS.search(text))
            self.found.append(_Candidate(error, consequence, self.quiet))
        self.chained = self.quiet = False
        self.message_lines = MESSAGE_LINES
        self.frames.clear()

    def _outside(self, line: Line) -> None:
        """A line that belongs to no error: a process that prints such after an exception has survived it."""
        self.quiet = False
        self.message_lines -= 1
        is_message = self.message_lines >= 0 and not line.level
        if not self.found or self.found[-1].survived or is_message:
            return
        if not _AFTERMATH.search(line.text):
            self.found[-1] = replace(self.found[-1], survived=True)


def first_error(lines: Iterable[str]) -> FirstError | None:
    """The first effective error of a log, or None where nothing in it looks like one."""
    streams: dict[str, _Stream] = {}
    blamed: set[str] = set()
    is_blaming = False
    looks_like: FirstError | None = None
    for number, raw in enumerate(lines, 1):
        for line in read_line(number, raw[:MAX_LINE]):
            streams.setdefault(line.process, _Stream()).feed(line)
            is_blaming = is_blaming or "Root Cause (first observed failure)" in line.text
            if is_blaming and (rank := _TORCHRUN_RANK.search(line.text)):
                blamed.add(f"rank{rank[1]}")
                is_blaming = False
            if looks_like is None and _looks_like_one(line):
                looks_like = FirstError(number, "error", line.text.strip(), line.process, (line.text.rstrip(),))
    found = [one for stream in streams.values() for one in stream.found]
    return _choose(sorted(found, key=lambda one: one.error.line), blamed) or looks_like


def _looks_like_one(line: Line) -> bool:
    return line.level in ("ERROR", "CRITICAL") or (not line.level and bool(_ERROR_LIKE.search(line.text)))


def _choose(found: Sequence[_Candidate], blamed: set[str]) -> FirstError | None:
    """The earliest of the best kind; an error that comes again later was not survived, whatever was said between."""
    unhandled = [one for one in found if not one.handled]
    roots = [one for one in unhandled if not one.consequence]
    fatal_keys = {one.key for one in roots if not one.survived}
    fatal = [one for one in roots if one.key in fatal_keys]
    named = [one for one in fatal if one.error.process in blamed]
    for group in (named, fatal, roots[-1:], unhandled, found):
        if group:
            return group[0].error
    return None
