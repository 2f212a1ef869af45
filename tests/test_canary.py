"""One secret and one hostile name, sent through every verb: neither comes out raw, whatever the form."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultkit import EVERY
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json
from world import World

from patchq.printable import clean, json_text

SOURCE = str(Path(__file__).parents[1])
CANARY = "c4naryValue0123456789ABCDEFabcdef"
EVIL = "\x1b]0;owned\x07\x1b[31m[bold red]x[/bold red]\x9b2J\u202e\r"
VERBS = [
    ["status"], ["check"], ["check", "--source", f"alpha=https://me:{CANARY}@127.0.0.1:9/x"],
    ["check", "--source", f"alpha=https://127.0.0.1:9/x?access_token={CANARY}"], ["lock"],
    ["series", "--target", "plain", "--why"],
    ["apply", "--target", "plain"], ["verify", "--target", "plain"], ["smoke", "--target", "plain"],
    ["show", "small-only"], ["files"], ["graph"], ["annotate", "alpha/core.py", "--target", "plain"],
    ["run", "--target", "plain", "--", "true", "--hf-token", CANARY, f"https://me:{CANARY}@h", f"API_KEY={CANARY}"],
    ["run", "--target", "plain", "--", f"no-such-program-{EVIL}", "--token", CANARY],
    ["record", "attach", "{file}", "--target", "plain", "--kind", "resolved-config"],
    ["record", "list", "--target", "plain"], ["record", "export", "--target", "plain", "--out", "{out}"],
    ["bundle", "--target", "plain", "--out", "{out}"], ["prune", "--target", "plain"], ["series", "--target", EVIL],
    ["show", f"{EVIL}?token={CANARY}"], [EVIL, f"--password={CANARY}"], ["revert", "--target", "plain"],
]  # fmt: skip
ENVIRONMENT = {"HF_TOKEN": CANARY, "WANDB_API_KEY": CANARY, "https_proxy": f"http://me:{CANARY}@127.0.0.1:9",
               "LS_COLORS": EVIL, "MY_SECRET": CANARY}  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("form", [[], *([["--json"]] if EVERY else [])])
def test_no_verb_lets_them_out(own: World, form: list[str], tmp_path: Path) -> None:
    text = (own.root / "alpha/device/small-only.patch").read_text()
    text = text.replace("Description: Only on small machines", f"Description: Only {EVIL.replace(chr(13), '')} small")
    own.write({"alpha/device/small-only.patch": text}).locked()
    (tmp_path / "config").write_text(f'{{"wandb": {{"api_key": "{CANARY}"}}, "x": "{EVIL!r}"}}\n')
    environ = {**os.environ, "PYTHONPATH": SOURCE, **ENVIRONMENT, "TMPDIR": str(tmp_path)}
    for number, verb in enumerate(VERBS):
        words = [
            word.format(file=tmp_path / "config", out=tmp_path / f"out-{number}") if "{" in word else word
            for word in verb
        ]
        at = words.index("--") if "--" in words else len(words)
        argv = [sys.executable, "-m", "patchq", *words[:at], "--queue", str(own.root), *form, *words[at:]]
        done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, check=False, timeout=120)
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        assert done.returncode in range(6), (verb, said)
        assert CANARY not in said, (verb, said)
        if form or verb != ["show", "small-only"]:  # whose patch is data: byte for byte, where there is no terminal
            assert not {"\x1b", "\x9b", "\r", "\x07", "\u202e"} & set(said), (verb, said)
        if form and done.stdout and verb[0] != "run":
            json.loads(done.stdout)
    assert not list(tmp_path.glob("patchq-*"))
    assert not list(leaking([own.work, *tmp_path.glob("out-*")]))


def leaking(folders: list[Path]) -> Iterator[Path]:
    """Files that hold the secret."""
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes())


# What lies in wait for a terminal: colours, a title, a link, the clipboard, C1, a bell, lines that overwrite, marks of
# direction, what nobody sees, markup of rich; and a letter that is half of a pair.
TRAPS = (
    "\x1b[31m\x1b]0;owned\x07\x1b]8;;http://x\x1b\\\\link\x1b]52;c;b3duZWQ=\x07\x9b2J\x9d0;x\x9c\r\b\u202e\u2066"
    "\u200b\u00ad\u3164\ufe0f\ufeff\U000e0041[/][red][link=http://x]x[/link] :smile:\n\x00\udc80"
)
EXPORTED = TRAPS.partition("\0")[0]  # what a variable can hold
LIAR = """\
import json, subprocess, sys
evil = json.loads(sys.argv[1])

def spoiled(value):
    if isinstance(value, str):
        return value + evil
    if isinstance(value, float):
        return float("nan")
    if isinstance(value, dict):
        return {key: spoiled(item) for key, item in value.items()}
    return [spoiled(item) for item in value] if isinstance(value, list) else value

done = subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.PIPE)
for line in done.stdout.splitlines():
    try:
        line = json.dumps(spoiled(json.loads(line))).encode()
    except ValueError:
        pass
    sys.stdout.buffer.write(line + b"\\n")
for stream in (sys.stdout, sys.stderr):
    stream.buffer.write(evil.replace("\\n", "").encode("utf-8", "surrogateescape") + b"\\n")
sys.exit(done.returncode)
"""
LADDER = """\
    profile: {profile}
    ladder:
      step:
        commands: [{{name: speak, run: [python, -c, "raise SystemExit('Traceback')"]}}]
"""
TOLD: list[list[str]] = [
    ["apply"], ["verify"], ["smoke", "--from", "step"], ["install"], ["run", "--", "true"], ["env"], ["status"],
    ["record", "list"], ["record", "show", "{last}"], ["record", "diff", "{first}", "{last}"],
    ["record", "export", "{last}", "--out", "{out}"], ["lock"], ["check"], ["graph"], ["graph", "--format", "mermaid"],
    ["files"], ["show", "small-only"], ["annotate", "alpha/core.py"], ["bundle", "--out", "{out}"],
    ["apply", "--bundle", EXPORTED], ["record", "diff", "{foreign}", "{first}"], ["revert"],
]  # fmt: skip


def trapped(own: World, folder: Path) -> None:
    """A target whose interpreter, profile, queue and environment variables all say what steers a terminal."""
    (folder / "liar.py").write_text(LIAR)
    real, python = own.python, folder / "bin/python"
    python.parent.mkdir()
    told = shlex.quote(json.dumps(TRAPS))
    python.write_text(f'#!/bin/sh\nexec {real} {folder}/liar.py {told} {real} "$@"\n')
    python.chmod(0o755)
    (folder / "profile.sh").write_text(f"printf '%s' {shlex.quote(EXPORTED)}; export MINE={shlex.quote(EXPORTED)}\n")
    target = (own.root / "targets/plain.yaml").read_text().replace(str(real), str(python))
    target = target.replace("description: plain", f"description: {json.dumps(EXPORTED)}")
    own.write({"targets/plain.yaml": target + LADDER.format(profile=folder / "profile.sh")}).locked()


@pytest.mark.fault
def test_no_verb_hands_on_what_an_environment_says(own: World, tmp_path: Path) -> None:
    trapped(own, tmp_path)
    environ = {**os.environ, "PYTHONPATH": SOURCE, "MINE": EXPORTED, "TMPDIR": str(tmp_path), "TERM": "dumb"}
    said = ""
    for number, verb in enumerate(TOLD):
        records = sorted(path.parent for path in own.work.glob("records/*/record.json"))
        named = {"first": records[0].name, "last": records[-1].name, "foreign": "foreign"} if records else {}
        if records:
            foreign(records[0], tmp_path / "foreign")
        for form, (call, more) in FORMS.items():
            named["out"] = f"out-{number}-{form}"
            words = [named.get(word.strip("{}"), word) for word in verb]
            code, shown, err = call(patchq_argv(own, words, more), environ, tmp_path)
            assert code in range(6), (verb, code, shown, err)
            is_data = form == "plain" and verb[0] in ("show", "annotate", "env")  # byte for byte, into a pipe
            for text in (err,) if is_data else (shown, err):
                assert not steering(text), (verb, form, steering(text), text)
            if form == "json" and verb[0] != "run":
                from_json(shown, allow_inf_nan=False)  # which takes no half of a pair either
            said += shown + err
    pages = list(tmp_path.glob("out-*/RECORD.md"))
    assert len(pages) == len(FORMS) and not any(steering(page.read_text("utf-8")) for page in pages)
    assert "[/][red][link=http://x]x[/link] :smile:" in said and "\\x1b[31m" in said


def patchq_argv(own: World, words: list[str], more: list[str]) -> list[str]:
    at = words.index("--") if "--" in words else len(words)
    target = [] if words[0] in ("status", "lock", "files", "show") else ["--target", "plain"]
    return [sys.executable, "-m", "patchq", *words[:at], "--queue", str(own.root), *target, *more, *words[at:]]


def foreign(record: Path, to: Path) -> None:
    """A record of another host, whose steps and facts say what steers a terminal."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(record, to)
    text = json.loads((to / "record.json").read_text())
    step = {"name": EXPORTED, "state": EXPORTED, "summary": EXPORTED, "detail": [EXPORTED]}
    text |= {"facts": {EXPORTED: [EXPORTED]}, "host": EXPORTED, "steps": [step]}
    (to / "record.json").write_text(json.dumps(text))
    rows = (to / "SHA256SUMS").read_text().splitlines()
    kept = [row for row in rows if not row.endswith("  record.json")]
    digest = hashlib.sha256((to / "record.json").read_bytes()).hexdigest()
    (to / "SHA256SUMS").write_text("".join(f"{row}\n" for row in [*kept, f"{digest}  record.json"]))


def piped(argv: list[str], environ: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, each through a pipe."""
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, check=False, timeout=120)
    return done.returncode, *(text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))


def on_terminal(argv: list[str], environ: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """Exit code and what a terminal gets; it has neither colours nor a cursor, so nothing of patchq's own is in it."""
    ours, theirs = os.openpty()
    child = subprocess.Popen(argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    pieces = []
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while piece := os.read(ours, 1 << 16):
            pieces.append(piece)
    os.close(ours)
    shown = b"".join(pieces).replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
    return child.wait(timeout=120), shown, ""


FORMS = {"plain": (piped, []), "json": (piped, ["--json"]), "terminal": (on_terminal, [])}


def steering(text: str) -> set[str]:
    """The letters of a text that a terminal acts on, or that nobody sees."""
    unseen = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return unseen - {"\n"} | {"\u3164", "\ufe0f"} & set(text)


@given(st.text(max_size=80))
def test_no_text_steers_a_terminal_or_breaks_json(text: str) -> None:
    assert not steering(clean(text)) and "\n" not in clean(text)
    told = json_text({text: [text, (text,), float("nan"), float("-inf")]})
    assert not steering(told)
    told.encode()
    ((key, (one, (two,), *numbers)),) = json.loads(told, parse_constant=lambda word: pytest.fail(word)).items()
    assert key == one == two and numbers == ["nan", "-inf"]
