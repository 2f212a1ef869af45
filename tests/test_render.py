"""Reports for people: nothing of a name or a log reaches the terminal raw, and every state has its mark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchq.errors import Problem
from patchq.printable import clean
from patchq.render import show, show_problems
from patchq.report import Report, State, Step

HOSTILE = "\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] \u202eabc\u2066 \r\n\x00\x9b1m tab\there :smile: \udcff"


def test_hostile_text_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step(HOSTILE, State.FAILED, HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)
    show(Report("x", (step, step)), to_stderr=False)
    show_problems([Problem(HOSTILE, HOSTILE, HOSTILE)])
    shown = "".join(capsys.readouterr())
    assert not any(char in shown for char in "\x1b\x07\u202e\u2066\r\x00\x9b\udcff")
    assert "[bold]x[/bold]" in shown and ":smile:" in shown and "tab here" in shown


@given(st.text(max_size=40))
def test_any_text_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert "\n" not in cleaned and "\x1b" not in cleaned
    cleaned.encode()


def test_secrets_are_hidden_before_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(Report("x", (Step("a", State.NOTE, "https://me:pw@host", detail=("HF_TOKEN=abcdefghijkl",)),)), to_stderr=True)
    shown = capsys.readouterr()
    assert not shown.out and "pw" not in shown.err and "abcdefghijkl" not in shown.err


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_mark_and_counts(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("verb", (Step("one", state, "said"), Step("two", state)))
    show(report, to_stderr=False)
    shown = capsys.readouterr().out
    assert "one" in shown and "said" in shown
    assert f"verb: 2 {state.value} (exit {report.exit_code})" in shown
    is_bad = state.code not in (0, 4)
    assert ("✗" in shown) == is_bad and ((f"  {state.value}" in shown) or not is_bad)


def test_check_is_a_matrix_and_says_once_what_is_shared(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Step("up/device/a.patch", State.APPLIED, group=scope) for scope in ("gpu", "ppu")]
    steps += [
        Step("up/device/b.patch", State.EXCLUDED, "guard", group="gpu"),
        Step("up/device/b.patch", State.CONFLICT, "why", "ppu"),
    ]
    steps += [Step("shared", State.FAILED, "the same", group=scope) for scope in ("gpu", "ppu")]
    show(Report("check", tuple(steps)), to_stderr=False)
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.startswith(("patch", "up/"))}
    assert rows == {"patch": ["gpu", "ppu"], "up/device/a.patch": ["✓", "✓"], "up/device/b.patch": ["–", "✗"]}
    assert shown.count("the same") == 1 and "gpu, ppu" in shown


def test_columns_that_are_no_number_are_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("", "0", "-5", "wide", "1e3", "20"):
        monkeypatch.setenv("COLUMNS", value)
        show(Report("x", (Step("a" * 100, State.PASSED),)), to_stderr=False)
        assert "a" * 100 in capsys.readouterr().out
