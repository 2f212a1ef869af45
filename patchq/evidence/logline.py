"""One line of a training log without what Ray, torchrun, vLLM and loggers put before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_PROCESS = re.compile(
    r"\((?P<ray>(?:[\w.<>:*-]+ )?(?:pid|ip)=[^)]*|raylet[^)]*|autoscaler[^)]*)\) ?"
    r"|\[(?P<rank>(?:rank|default)\d+)\]: ?"
)
_LEVEL = re.compile(
    r"(?P<vllm>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\] ?"
    r"|(?P<glog>[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d+)?\s+\d+ [^\]]*\] ?"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d+)?\]?(?: -)? \[?(?P<plain>DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?"
    r"(?: -| \[[^\]]*\]| [\w.]+:\d+ --)* ?"
    r"|\[(?P<hf>DEBUG|INFO|WARNING|ERROR|CRITICAL)\|[^\]]*\][^>]*>> ?"
    r"|(?P<basic>DEBUG|INFO|WARNING|ERROR|CRITICAL):[\w.]+:"
)
_GLOG = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")


@dataclass(frozen=True)
class Line:
    """What a process said: its text, the level of its logger (or empty), and who it was (or empty)."""

    number: int
    text: str
    process: str = ""
    level: str = ""


def read_line(number: int, raw: str) -> Iterator[Line]:
    """The line, or the lines where a progress bar was drawn over itself."""
    text = raw.rstrip("\r\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    for part in text.split("\r"):
        yield _read(number, _REPEATED.sub("", part) if "[repeated" in part else part)


def _read(number: int, text: str) -> Line:
    process = level = ""
    for _ in range(4):
        if found := _PROCESS.match(text):
            process = process or _name(found)
        elif not level and (found := _LEVEL.match(text)):
            level = _level(found)
        else:
            break
        text = text[found.end() :]
    return Line(number, text, process, level)


def _name(found: re.Match[str]) -> str:
    if found["ray"]:
        return found["ray"]
    return found["rank"].replace("default", "rank")


def _level(found: re.Match[str]) -> str:
    words = (found["vllm"], found["plain"], found["hf"], found["basic"], _GLOG.get(found["glog"] or ""))
    return next(word for word in words if word)
