"""The series file: a valid quilt series whose comments carry guards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid
from patchq.series import SeriesEntry, parse_series

GOOD = """\
# A comment, and a blank line:

device/one.patch
device/two.patch -p0
device/three.patch      #+ppu #-a100
backport/4.patch -p2 #+driver-470  # since 470
research/five.patch\t# free #words
device/six.patch #
 \t
"""


def test_a_good_series_is_read_and_comes_back_byte_for_byte() -> None:
    series = parse_series(GOOD.encode(), "s")
    assert series.format() == GOOD.encode()
    assert [(entry.name, entry.strip, entry.guards, entry.comment, entry.line) for entry in series.entries] == [
        ("device/one.patch", 1, (), "", 3),
        ("device/two.patch", 0, (), "", 4),
        ("device/three.patch", 1, ("+ppu", "-a100"), "", 5),
        ("backport/4.patch", 2, ("+driver-470",), "since 470", 6),
        ("research/five.patch", 1, (), "free #words", 7),
        ("device/six.patch", 1, (), "", 8),
    ]
    three = series.entries[2]
    assert (three.layer, three.required, three.forbidden) == ("device", ("ppu",), ("a100",))


def test_a_last_line_without_a_newline_gets_one() -> None:
    assert parse_series(b"device/a.patch", "s").format() == b"device/a.patch\n"
    assert parse_series(b"", "s").format() == b""


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ("device/a.patch\r", "ends in a carriage return", "save the file with LF line ends"),
        (" device/a.patch", "begins with white space", "start in column 0"),
        ("\t# comment", "begins with white space", "quilt would take an indented comment for a patch"),
        ("device/a.patch#+ppu", "a guard needs white space before its '#'", "device/a.patch #+ppu"),
        ("device/a.patch # see #+ppu", "a guard stands inside a comment", "put guards before the comment"),
        ("device/a.patch #+ppu # and #-x", "a guard stands inside a comment", ""),
        ("device/a.patch -R", "-R is not supported", "forward direction"),
        ("device/a.patch -p10", "cannot read '-p10'", "-pN"),
        ("device/a.patch -p 1", "cannot read '-p'", ""),
        ("device/a.patch ppu", "cannot read 'ppu'", ""),
        ("device/a.patch #+PPU", "cannot read the guard '#+PPU'", "lower case"),
        ("device/a.patch #+", "cannot read the guard '#+'", ""),
        ("device/a.patch #ppu", "cannot read the guard '#ppu'", "a blank after the # of a comment"),
        ("device/a b.patch", "cannot read 'b.patch'", ""),
        ("device/ü.patch", "holds 'ü'", "letters, digits"),
        ("device/../a.patch", "is not a plain path", "LAYER/NAME.patch"),
        ("/device/a.patch", "is not a plain path", ""),
        ("device//a.patch", "is not a plain path", ""),
        ("-p1", "is not a plain path", ""),
        ("a.patch", "is in no layer", "write one of backport, device, research"),
        ("devices/a.patch", "is in no layer", ""),
        ("device/deep/a.patch", "is in no layer", ""),
        ("device/a.patch\x0c-p0", "holds '\\x0c'", ""),
        ("device/a.patch\xa0#+ppu", "a guard needs white space", ""),
        ("device/a.patch\xa0-p0", "holds '\\xa0'", ""),
    ],
)
def test_each_wrong_line_is_named_with_its_fix(line: str, what: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_series(f"# first\n{line}\n".encode(), "s")
    (problem,) = caught.value.problems
    assert what in problem.what and hint in problem.hint and problem.where == "s:2"


def test_every_problem_is_said_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        parse_series(b"\xef\xbb\xbfdevice/a.patch\ndevice/b.patch -R\ndevice/c.patch\ndevice/c.patch\n", "s")
    said = [str(problem) for problem in caught.value.problems]
    assert any("byte order mark" in line for line in said)
    assert any("-R" in line for line in said)
    assert "s:4: device/c.patch stands here a second time; first on line 3 (name every patch once)" in said


def test_too_many_lines_are_refused() -> None:
    with pytest.raises(Invalid, match="at most 100000 are allowed"):
        parse_series(b"\n" * 100_001, "s")


def test_a_new_entry_has_one_form() -> None:
    entry = SeriesEntry("device/a.patch", 0, ("+ppu", "-a100"), "why")
    assert entry.format() == "device/a.patch -p0 #+ppu #-a100 # why"
    (again,) = parse_series(f"{entry.format()}\n".encode(), "s").entries
    assert (again.name, again.strip, again.guards, again.comment) == ("device/a.patch", 0, ("+ppu", "-a100"), "why")
    assert SeriesEntry("device/a.patch").format() == "device/a.patch"


_NAMES = st.from_regex(r"(backport|device|research)/[A-Za-z0-9_+][A-Za-z0-9_+-]{0,8}\.patch", fullmatch=True)
_GUARDS = st.lists(st.from_regex(r"#[+-][a-z0-9][a-z0-9.-]{0,6}", fullmatch=True), max_size=3)
_COMMENTS = st.just("") | st.text(st.characters(exclude_characters="#\r\n", exclude_categories=["Cs"]), max_size=9).map(
    lambda text: f"# {text}"
)
_GAPS = st.sampled_from([" ", "  ", "\t", " \t "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    parts = [draw(_NAMES), *draw(st.sampled_from([[], ["-p0"], ["-p1"], ["-p3"]])), *draw(_GUARDS), draw(_COMMENTS)]
    return "".join(part + draw(_GAPS) for part in parts if part).rstrip(" \t")


@settings(max_examples=60, deadline=None)
@given(st.lists(lines() | st.sampled_from(["", "# comment", "#", "  ", "#+not-a-guard"]), max_size=8))
def test_what_is_good_comes_back_byte_for_byte(rows: list[str]) -> None:
    data = "".join(f"{row}\n" for row in rows).encode()
    names = [row.split()[0] for row in rows if row.strip() and not row.startswith("#")]
    if len(set(names)) < len(names):
        return
    series = parse_series(data, "s")
    assert series.format() == data
    assert [entry.name for entry in series.entries] == names


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=50) | st.text("device/a.patch#+- p01\t\r\n", max_size=50).map(str.encode))
def test_any_bytes_are_read_or_refused_and_never_more(data: bytes) -> None:
    try:
        series = parse_series(data, "s")
    except Invalid as error:
        assert all(problem.where.startswith("s") for problem in error.problems)
    else:
        assert series.format() == (data if data.endswith(b"\n") or not data else data + b"\n")


@pytest.mark.skipif(not shutil.which("quilt"), reason="quilt is not installed")
def test_quilt_reads_the_same_patches(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches/series").write_text(GOOD)
    listed = subprocess.run(("quilt", "series"), cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    names = [line.removeprefix("patches/") for line in listed.splitlines()]
    assert names == [entry.name for entry in parse_series(GOOD.encode(), "s").entries]
