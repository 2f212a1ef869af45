"""Files with a fixed form: YAML and JSON read strictly, every problem at once, and written in one way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field

from patchq.document import (
    MAX_ALIASES,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    Document,
    One,
    load_yaml,
    nearest,
    parse_json,
    parse_yaml,
    read_regular,
    sha256,
    sha256_file,
    to_json,
    write_atomic,
)
from patchq.errors import Invalid, Prevented


class Inner(Document):
    name: str
    count: int = 0


class Outer(Document):
    title: str = ""
    inner: Inner | None = None
    table: dict[str, Inner] = {}
    rows: tuple[Inner, ...] = ()
    named: int = Field(default=0, alias="called")
    word: Annotated[str, Field(pattern="^[a-z]*$")] = ""
    anything: Any = None
    form: One = 1


def problems(text: str | bytes, where: str = "f") -> list[str]:
    """What is wrong with a YAML file, one string each."""
    with pytest.raises(Invalid) as caught:
        parse_yaml(text.encode() if isinstance(text, str) else text, Outer, where)
    return [str(problem) for problem in caught.value.problems]


def test_numbers_in_quotes_and_pairs_of_surrogates_are_text() -> None:
    read = parse_yaml(b'title: "1e3"\nanything: "\\ud83d\\ude00"\nform: 1\n', Outer, "f")
    assert (read.title, read.anything) == ("1e3", "\U0001f600")


def test_a_good_file_is_read() -> None:
    text = b"title: x\ninner: {name: a}\ntable:\n  one: {name: b, count: 3}\nrows: [{name: c}]\ncalled: 4\n"
    read = parse_yaml(text, Outer, "f")
    assert (read.title, read.inner, read.table["one"].count, read.rows[0].name, read.named) == (
        "x", Inner(name="a"), 3, "c", 4,
    )  # fmt: skip
    assert parse_yaml(b"", Outer, "f") == parse_yaml(b"# nothing\n", Outer, "f") == Outer()


def test_every_problem_of_a_file_is_said_with_its_line() -> None:
    text = "titel: x\ninner:\n  nmae: a\ntable:\n  one: {name: 5}\nrows:\n- {name: a, count: many}\nword: UP\n"
    assert sorted(problems(text)) == [
        "f:1: unknown key 'titel' (did you mean 'title'?)",
        "f:2: the key 'inner.name' is missing",
        "f:3: unknown key 'nmae' (did you mean 'name'?)",
        "f:5: table.one.name: YAML reads 5 as a number (put it in quotes)",
        "f:7: rows.0.count: Input should be a valid integer, not 'many'",
        "f:8: word: String should match pattern '^[a-z]*$', not 'UP'",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title: a\ntitle: b\n", "f:2: the key 'title' stands here a second time"),
        ("inner:\n  name: a\n  name: b\n", "f:3: the key 'name' stands here a second time"),
        ("title: !!python/object:os.system x\n", "f:1: the tag tag:yaml.org,2002:python/object:os.system is not"),
        ("title: !mine x\n", "f:1: the tag !mine is not allowed"),
        ("title: !!binary aGk=\n", "f:1: the tag tag:yaml.org,2002:binary is not allowed"),
        ("anything: !!bool perhaps\n", "f:1: cannot read the value 'perhaps'"),
        ("anything: !!int x\n", "f:1: cannot read the value 'x'"),
        ("[a]: b\n", "f:1: a key has to be a plain word"),
        ("title: [\n", "f:2: is not YAML: expected the node content, but found '<stream end>'"),
        ("title: a\n---\ntitle: b\n", "f:2: is not YAML: but found another document"),
        ("title: 'a\n\n", "f:3: is not YAML: found unexpected end of stream"),
        ("title: *nobody\n", "f:1: is not YAML: found undefined alias"),
        ("\ttitle: a\n", "f:1: is not YAML: found character '\\t' that cannot start any token"),
        ("title: a\n\x00", "f:2: holds the control character 0x00"),
        ("title: a\nword: \x1b[31m\n", "f:2: holds the control character 0x1b"),
        ("- a\n", "f:1: the document: Input should be an object"),
        ("just words\n", "f:1: the document: Input should be an object, not 'just words'"),
        ("title: 1234567890123456789012345678901234567890\n", "a number (put it in quotes)"),
        ("title: 1e3\ncalled: 1.5\n", "f:2: called: Input should be a valid integer"),
        ("title: 1e3\n", "f:1: title: YAML reads 1000.0 as a number (put it in quotes)"),
        ('title: "a\\udc00\\ud800b"\n', "f:1: holds half of a pair of surrogates"),
        ("form: true\n", "f:1: form: the number 1 is due, not True"),
        ("form: 1.0\n", "f:1: form: the number 1 is due, not 1.0"),
        ("form: 2\n", "f:1: form: Input should be 1, not 2"),
        ("title: yes\n", "f:1: title: Input should be a valid string, not True"),
        ("<<: {title: a}\n", "f:1: unknown key '<<'"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused_in_words(text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(text)), problems(text)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbftitle: a\n",
        b"title: \xff\n",
        b"anything: &x [*x]\n",
        b"anything: &x {a: {b: *x}}\n",
        b"anything: " + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"anything: &a []\nrows: [" + b"*a," * (MAX_ALIASES + 1) + b"]\n",
        b"anything: [" + b"a," * MAX_NODES + b"]\n",
        b"a: &a [" + b"x," * 5000 + b"]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b]\n",
        b'title: "\\ud800"\n',
        b"anything: 2026-13-45\nx: 1\n",
        b"title: " + b"\xf0\x9f\x92\xa9" * 10 + b"\x7f\n",
    ],
)
def test_hostile_files_are_refused_quickly(text: bytes) -> None:
    assert problems(text)


def test_a_date_is_the_word_that_it_is() -> None:
    assert parse_yaml(b"title: 2026-01-02\n", Outer, "f").title == "2026-01-02"


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | st.text("{}[]&*!|>-:?'\"#,%@`a1 \n\t~.", max_size=60).map(str.encode))
@example(b"? a\n")
@example(b"anything: =\n")
@example(b"anything: 0o9\n")
@example(b"anything: 190:20:30\n")
def test_any_bytes_are_read_or_refused_and_never_more(data: bytes) -> None:
    try:
        parse_yaml(data, Outer, "f")
    except Invalid as error:
        assert all(problem.where.startswith("f") and problem.what for problem in error.problems)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(_JSON)
def test_json_has_one_form_that_reads_back(value: object) -> None:
    written = to_json(value)
    assert json.loads(written) == value
    assert to_json(json.loads(written)) == written
    assert written.endswith(b"\n") and b" \n" not in written


def test_the_json_form_is_made_to_be_reviewed() -> None:
    value = {"b": [1, 2], "a": {"y": {"z": "ü"}, "x": "\udcff"}, "long": ["x" * 200, "y" * 200]}
    assert to_json(value).decode() == (
        '{\n  "a": {\n    "x": "\\udcff",\n    "y": {"z": "ü"}\n  },\n  "b": [1, 2],\n'
        f'  "long": [\n    "{"x" * 200}",\n    "{"y" * 200}"\n  ]\n}}\n'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{", "is not JSON"),
        (b'{"title": "a", "title": "b"}', "a key stands there twice"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"called": NaN}', "called"),
        (b"\xff", "is not JSON"),
        (b'{"titel": 1}', "did you mean 'title'?"),
        (b'"x"', "Input should be an object"),
    ],
)
def test_json_is_as_strict(text: bytes, expected: str) -> None:
    with pytest.raises(Invalid, match="f: ") as caught:
        parse_json(text, Outer, "f")
    assert expected in str(caught.value)


def test_only_plain_files_of_some_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x: 1\n")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 1))
    for name, what in (
        ("link", "is a symbolic link"),
        ("fifo", "is not a plain file"),
        ("none", "there is no such file"),
        ("large", "at most 1048576 are allowed"),
        (".", "is not a plain file"),
    ):
        with pytest.raises(Invalid, match=what) as caught:
            load_yaml(tmp_path / name, Outer)
        assert caught.value.problems[0].where == str(tmp_path / name)
    assert read_regular(tmp_path / "file") == b"x: 1\n"
    with pytest.raises(Prevented, match="cannot be read"):
        read_regular(tmp_path / "file" / "below")


def test_a_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o644
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x").touch()
    with pytest.raises(OSError, match="Is a directory"):
        write_atomic(tmp_path / "folder", b"three")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "new"]


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 3_000_000)
    assert sha256_file(tmp_path / "x") == sha256(b"a" * 3_000_000)
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_hints_name_what_is_near_or_all_there_is() -> None:
    assert nearest("smal", ["small", "large"]) == "did you mean 'small'?"
    assert nearest("x", ["b", "a"]) == "known: a, b"
    assert nearest("x", []) == nearest("x", [f"name-{n}" for n in range(20)]) == ""
