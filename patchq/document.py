"""Files with a fixed form: strict models, YAML and JSON in and out, digests. The only door to yaml."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from patchq.errors import Invalid, Prevented, Problem
from patchq.exclusive import replacing

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_NESTING = 100  # of JSON, which no person writes
MAX_ALIASES = 16
MAX_NODES = 20_000
MAX_LINE = 320

Location = tuple[str | int, ...]


def _plain_one(value: Any) -> Any:
    if type(value) is not int:
        raise ValueError("the number 1 is due")
    return value


# What stands under `schema` in every file of the first form; Python would take `true` and `1.0` for it.
One = Annotated[Literal[1], BeforeValidator(_plain_one)]


class Document(BaseModel):
    """Base of every model that is read from or written to a file: frozen, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)


Model = TypeVar("Model", bound=Document)


def sha256(data: bytes) -> str:
    """The SHA-256 of `data`, 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def read_regular(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; never through a link, a FIFO or a device.

    Raises `Invalid` for anything else and `Prevented` where the machine says no.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Invalid("there is no such file", where=str(path)) from None
    except OSError as error:
        if path.is_symlink():
            raise Invalid("is a symbolic link; a plain file is due", where=str(path)) from error
        raise Prevented(f"cannot be read: {error.strerror}", where=str(path)) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Invalid("is not a plain file", where=str(path))
    with os.fdopen(descriptor, "rb") as stream:
        if status.st_size > limit:
            raise Invalid(f"has {status.st_size} bytes; at most {limit} are allowed", where=str(path))
        return stream.read()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the block writes goes to `path`: an `OSError` that names no file, as on a full disk, gets this one."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.errno:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a new file, and the folders that it lies in."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `data` in one step: a crash leaves the old bytes or the new ones, and nothing for good."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, mode) as stream:
            stream.write(data)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_plain = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def to_json(value: Any) -> bytes:
    """The one JSON form of patchq's files: sorted keys, two spaces, one newline at the end.

    What holds only plain values stands on one line if it is short, so that a lock is read line by line in review.
    """
    return (_json(value, "") + "\n").encode("utf-8", "backslashreplace")


def _json(value: Any, indent: str) -> str:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    if not any(isinstance(item, dict | list | tuple) for item in inner):
        line = _plain(value)
        if not inner or len(line) <= MAX_LINE:
            return line
    deeper = indent + "  "
    if isinstance(value, dict):
        rows = [f"{_plain(key)}: {_json(value[key], deeper)}" for key in sorted(value)]
    else:
        rows = [_json(item, deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(deeper + row for row in rows) + f"\n{indent}{closing}"


def load_json(path: Path, model: type[Model], limit: int = 64 * MAX_BYTES) -> Model:
    """Read a JSON file into `model`; raises `Invalid` with every problem of the file."""
    return parse_json(read_regular(path, limit), model, str(path))


def parse_json(data: bytes, model: type[Model], where: str) -> Model:
    """Like `load_json` for bytes; `where` names their source in messages."""
    try:
        value = json.loads(data, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"is not JSON: {error}", where=where) from error
    if is_deep(value):
        raise Invalid(f"is nested more than {MAX_NESTING} deep", where=where)
    return validate(value, model, where, {})


def is_deep(value: Any) -> bool:
    """Whether JSON types lie in each other deeper than `MAX_NESTING`, which nobody means; others would recurse."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [inner for item in level if isinstance(item, (dict, list))
                 for inner in (item.values() if isinstance(item, dict) else item)]  # fmt: skip
    return bool(level)


def load_yaml(path: Path, model: type[Model]) -> Model:
    """Read a YAML file into `model`; raises `Invalid` with every problem of the file and its line."""
    return parse_yaml(read_regular(path), model, str(path))


def parse_yaml(data: bytes, model: type[Model], where: str) -> Model:
    """Like `load_yaml` for bytes; `where` names their source in messages."""
    builder = _Builder(where)
    value = builder.value(_compose(data, where), ())
    if builder.problems:
        raise Invalid(builder.problems)
    return validate({} if value is None else value, model, where, builder.lines)


def place_in(data: bytes, where: str, at: Location) -> str:
    """`FILE:LINE` of a location in a YAML file that can be read, or of what it lies in; `where` names the file."""
    builder = _Builder(where)
    builder.value(_compose(data, where), ())
    line = next(builder.lines[at[:n]] for n in range(len(at), -1, -1) if at[:n] in builder.lines)
    return f"{where}:{line}"


def validate(value: Any, model: type[Model], where: str, lines: dict[Location, int]) -> Model:
    """Check `value` (JSON types) against `model`; `lines` says on which line each location stands."""
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise Invalid([_problem(dict(item), model, where, lines) for item in error.errors()]) from None
    except ValueError as error:
        raise Invalid(f"is not plain data: {error}", where=where) from error


def nearest(name: str, known: Iterator[str] | list[str]) -> str:
    """A hint that names the entry of `known` most like `name`, or all of them when they are few."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(options)}" if 0 < len(options) <= 12 else ""


def _compose(data: bytes, where: str) -> yaml.Node | None:
    if data.startswith(b"\xef\xbb\xbf"):
        raise Invalid("begins with a byte order mark; save it as plain UTF-8", where=f"{where}:1")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid("is not UTF-8", where=f"{where}:{line}") from error
    try:
        node: yaml.Node | None = _Limited(text, where).get_single_node()
        return node
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Invalid(f"holds the control character {error.character:#04x}", where=f"{where}:{line}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise Invalid(f"is not YAML: {error.problem or error.context}", where=place) from None
    except yaml.YAMLError as error:
        raise Invalid(f"is not YAML: {str(error).splitlines()[0]}", where=where) from None


class _Limited(yaml.SafeLoader):
    """Refuses depth, aliases and sheer number as they are read, before the recursive composer meets them."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self._where = where
        self._depth = self._aliases = self._count = 0

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            self._aliases += 1
        self._count += 1
        if self._depth > MAX_DEPTH or self._aliases > MAX_ALIASES or self._count > MAX_NODES:
            what = f"is nested more than {MAX_DEPTH} deep" if self._depth > MAX_DEPTH else "has too many aliases"
            what = what if self._count <= MAX_NODES else f"holds more than {MAX_NODES} things"
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise Invalid(what, where=f"{self._where}:{line}")
        return event


_HALF_A_PAIR = "[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
# A number to YAML 1.2, and to most that read it; text to the 1.1 of PyYAML.
_NUMBER = r"[-+]?[0-9]+[eE][-+]?[0-9]+"
_KINDS = ("str", "int", "float", "bool", "null", "map", "seq")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in _KINDS)


class _Builder:
    """Turns nodes into plain values; keeps the line of each location, and what is wrong.

    Aliases make small files large and endless: depth and number are counted here, where they are followed.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[Location, int] = {}
        self.problems: list[Problem] = []
        self._nodes = 0
        self._loader = yaml.SafeLoader("")

    def value(self, node: yaml.Node | None, at: Location) -> Any:
        """The value of a node at a location; raises `Invalid` where there is no end to it."""
        if node is None:
            return None
        line = node.start_mark.line + 1
        self.lines.setdefault(at, line)
        self._nodes += 1
        if self._nodes > MAX_NODES or len(at) > MAX_DEPTH:
            raise Invalid("its aliases unfold to more than anybody means", where=f"{self.where}:{line}")
        if node.tag not in _PLAIN_TAGS:
            if node.tag == "tag:yaml.org,2002:timestamp":
                return str(node.value)
            return self._refuse(f"the tag {node.tag} is not allowed", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*at, i)) for i, item in enumerate(node.value)]
        if "\0" in str(node.value):
            return self._refuse("holds a NUL", line)
        if re.search(_HALF_A_PAIR, str(node.value)):
            return self._refuse("holds half of a pair of surrogates, which is no letter", line)
        if isinstance(node, yaml.ScalarNode) and node.style is None and re.fullmatch(_NUMBER, node.value):
            return float(node.value)
        try:
            return self._loader.construct_object(node)
        except (ValueError, KeyError, yaml.YAMLError):
            return self._refuse(f"cannot read the value {node.value!r}", line)

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse("a key has to be a plain word", line)
                continue
            key = str(key_node.value)
            if "\0" in key:
                self._refuse("a key holds a NUL", line)
            if key in built:
                self._refuse(f"the key {key!r} stands here a second time", line)
            here = (*at, key)
            self.lines[here] = line
            built[key] = self.value(value_node, here)
        return built

    def _refuse(self, what: str, line: int) -> None:
        self.problems.append(Problem(what, f"{self.where}:{line}"))


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError("a key stands there twice")
    return built


def _problem(item: dict[str, Any], model: type[Document], where: str, lines: dict[Location, int]) -> Problem:
    at: Location = item["loc"]
    line = next((lines[at[:n]] for n in range(len(at), -1, -1) if at[:n] in lines), None)
    place = f"{where}:{line}" if line else where
    name = ".".join(map(str, at)) or "the document"
    kind, value = item["type"], item.get("input")
    if kind == "extra_forbidden":
        return Problem(f"unknown key {at[-1]!r}", place, nearest(str(at[-1]), _keys_at(model, at[:-1])))
    if kind == "missing":
        return Problem(f"the key {name!r} is missing", place)
    if kind == "string_type" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return Problem(f"{name}: YAML reads {value!r} as a number", place, "put it in quotes")
    message = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    shown = "" if isinstance(value, (dict, list)) or value is None else f", not {value!r}"
    return Problem(f"{name}: {message}{shown}", place)


def _keys_at(model: type[Document], at: Location) -> list[str]:
    """The keys that `model` knows at a location, as far as plain nesting of models can tell."""
    current: Any = model
    for part in at:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = field.annotation if field else None
        else:
            current = next(iter(reversed(get_args(current))), None)
        current = _unwrap(current)
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _unwrap(annotation: Any) -> Any:
    options = [option for option in get_args(annotation) if option is not type(None)]
    is_optional = type(None) in get_args(annotation)
    return options[0] if is_optional and options else annotation
