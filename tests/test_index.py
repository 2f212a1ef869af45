"""Finding, checking and resolving files of a package index: a small index on this disk, read by real pip."""

from __future__ import annotations

import base64
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from patchq.document import sha256
from patchq.errors import Invalid, Prevented, Refused
from patchq.index import Pin, Platform
from patchq.index import sources as sources_module
from patchq.index.download import fetch, find_sdist
from patchq.index.pipconfig import PipConfig, from_options, pip_config
from patchq.index.resolve import resolve

NEW = Platform("manylinux_2_28_x86_64")


def wheel(name: str, version: str, tag: str = "py3-none-any", requires: tuple[str, ...] = ()) -> tuple[str, bytes]:
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-{tag}.whl", buffer.getvalue()


def sdist(name: str, version: str) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        setup = b"raise SystemExit('a setup.py was run')\n"
        member = tarfile.TarInfo(f"{name}-{version}/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup))
    return f"{name}-{version}.tar.gz", buffer.getvalue()


FILES = dict(
    [
        wheel("app", "1.0", requires=("backport>=1; python_version < '3.11'", "fast")),
        wheel("backport", "1.2"),
        wheel("fast", "3.0", "cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64"),
        wheel("fast", "3.0", "cp313-cp313-manylinux_2_28_x86_64"),
        wheel("left", "1", requires=("backport==1.2",)),
        wheel("right", "1", requires=("backport!=1.2",)),
        sdist("bare", "0.5"),
        sdist("fast", "3.0"),
    ]
)


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def clear() -> None:
        for cached in (pip_config, sources_module._session, sources_module._finders):
            cached.cache_clear()

    clear()
    yield
    clear()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No configuration of pip but what a test sets."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return monkeypatch


@pytest.fixture
def index(tmp_path: Path, only: pytest.MonkeyPatch) -> Path:
    """A simple index (PEP 503) of `FILES`, named by `PIP_INDEX_URL`."""
    root = tmp_path / "simple"
    for filename, data in FILES.items():
        folder = root / filename.partition("-")[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / filename).write_bytes(data)
        with (folder / "index.html").open("a") as page:
            page.write(f'<a href="{filename}#sha256={sha256(data)}">{filename}</a>\n')
    only.setenv("PIP_INDEX_URL", root.as_uri())
    only.setattr(sources_module, "pip_config", lambda: PipConfig(index_url=root.as_uri()))
    return root


def pin_of(filename: str) -> Pin:
    name, version = filename.removesuffix(".tar.gz").split("-")[:2]
    return Pin(name=name, version=version, filename=filename, sha256=sha256(FILES[filename]))


def test_every_kind_of_file_is_fetched(index: Path, tmp_path: Path) -> None:
    for filename, data in FILES.items():
        place = fetch(pin_of(filename), tmp_path / "got")
        assert place == tmp_path / "got" / filename
        assert place.read_bytes() == data
    assert {path.name for path in (tmp_path / "got").iterdir()} == set(FILES)


def test_a_file_that_is_there_is_kept_and_a_wrong_one_replaced(index: Path, tmp_path: Path) -> None:
    pin = pin_of("bare-0.5.tar.gz")
    place = tmp_path / pin.filename
    place.write_bytes(b"half of it")
    assert fetch(pin, tmp_path).read_bytes() == FILES[pin.filename]
    for file in index.rglob("*"):
        if file.is_file():
            file.unlink()
    assert fetch(pin, tmp_path) == place


@pytest.mark.parametrize("told", [True, False])
def test_another_file_under_the_same_name_is_refused(index: Path, tmp_path: Path, told: bool) -> None:
    pin = pin_of("bare-0.5.tar.gz").model_copy(update={"sha256": "0" * 64})
    if not told:
        (index / "bare/index.html").write_text(f'<a href="{pin.filename}">{pin.filename}</a>')
    with pytest.raises(Refused) as caught:
        fetch(pin, tmp_path / "got")
    assert "0" * 64 in str(caught.value) and sha256(FILES[pin.filename]) in str(caught.value)
    assert list((tmp_path / "got").iterdir()) == []


def test_a_file_that_lies_about_its_digest_is_refused(index: Path, tmp_path: Path) -> None:
    pin = pin_of("bare-0.5.tar.gz")
    (index / "bare" / pin.filename).write_bytes(b"something else")
    with pytest.raises(Refused, match=sha256(b"something else")):
        fetch(pin, tmp_path)


def test_what_no_index_has_is_named(index: Path, tmp_path: Path) -> None:
    pin = Pin(name="absent", version="1", filename="absent-1.tar.gz", sha256="0" * 64)
    with pytest.raises(Prevented, match=r"absent 1 \(absent-1.tar.gz\): no configured package index has it"):
        fetch(pin, tmp_path)


@pytest.mark.fault
def test_find_links_and_a_dead_index_side_by_side(only: pytest.MonkeyPatch, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    filename, data = sdist("bare", "0.5")
    (links / filename).write_bytes(data)
    only.setenv("PIP_FIND_LINKS", str(links))
    only.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    pin = find_sdist("bare", "0.5")
    assert pin == Pin(name="bare", version="0.5", filename=filename, sha256=sha256(data))
    assert fetch(pin, tmp_path / "got").read_bytes() == data
    with pytest.raises(Prevented, match="not every package index answered") as caught:
        find_sdist("absent", "1")
    assert "secret" not in str(caught.value)
    with pytest.raises(Prevented, match="not every package index answered"):
        resolve(["absent"], python="3.12", platform=NEW)


@pytest.mark.fault
def test_the_configuration_file_of_pip_is_read(only: pytest.MonkeyPatch, tmp_path: Path) -> None:
    filename, data = sdist("bare", "0.5")
    (tmp_path / filename).write_bytes(data)
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links =\n    {tmp_path}\n")
    only.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert find_sdist("Bare", "0.5.0").sha256 == sha256(data)


class Server(http.server.BaseHTTPRequestHandler):
    """An index with one project: it wants a password, and breaks off in the middle of the file."""

    broken = True

    def do_GET(self) -> None:
        filename, data = "bare-0.5.tar.gz", FILES["bare-0.5.tar.gz"]
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"user:secret").decode():
            return self.answer(401, b"who is there?")
        if self.path == "/simple/bare/":
            return self.answer(200, f'<a href="/files/{filename}">{filename}</a>'.encode())
        if self.path != f"/files/{filename}":
            return self.answer(500, b"on fire")
        return self.answer(200, data[: len(data) // 2] if self.broken else data, len(data))

    def answer(self, code: int, body: bytes, length: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(only: pytest.MonkeyPatch) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{running.server_port}/simple"
        only.setenv("PIP_INDEX_URL", f"http://user:secret@{address}")
        only.setenv("no_proxy", "127.0.0.1")
        yield address
        running.shutdown()


@pytest.mark.fault
def test_over_http_with_a_password(server: str, only: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pin = pin_of("bare-0.5.tar.gz")
    with pytest.raises(Prevented) as caught:
        fetch(pin, tmp_path)
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Prevented, match="500"):
        find_sdist("other", "1")
    only.setattr(Server, "broken", False)
    assert fetch(pin, tmp_path).read_bytes() == FILES[pin.filename]
    assert "secret" not in pin.model_dump_json()


@pytest.mark.fault
def test_without_the_password(server: str, only: pytest.MonkeyPatch) -> None:
    only.setenv("PIP_INDEX_URL", f"http://{server}")
    with pytest.raises(Prevented, match="401"):
        find_sdist("bare", "0.5")


def test_an_sdist_is_pinned(index: Path) -> None:
    assert find_sdist("fast", "3.0") == pin_of("fast-3.0.tar.gz")
    with pytest.raises(Prevented, match=r"it has 3\.0"):
        find_sdist("fast", "3.1")
    with pytest.raises(Invalid, match="main"):
        find_sdist("fast", "main")


def test_wheels_are_those_of_the_target(index: Path) -> None:
    old = resolve(["app"], python="3.10", platform=Platform("manylinux2014_x86_64"))
    assert [str(pin) for pin in old] == [
        "app 1.0 (app-1.0-py3-none-any.whl)",
        "backport 1.2 (backport-1.2-py3-none-any.whl)",
        "fast 3.0 (fast-3.0-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl)",
    ]
    new = resolve(["app"], python="3.13.2", platform=NEW)
    assert [pin.filename for pin in new] == [
        "app-1.0-py3-none-any.whl",
        "fast-3.0-cp313-cp313-manylinux_2_28_x86_64.whl",
    ]
    assert all(pin == pin_of(pin.filename) for pin in (*old, *new))
    assert [pin.name for pin in resolve(["app"], python="3.13", platform=NEW, deps=False)] == ["app"]


@pytest.mark.fault
@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("bare", "bare: there is only a source distribution"),
        ("fast==3.0", r"fast==3.0: no wheel fits CPython 3.12 on manylinux_2_28_x86_64"),
        ("fast>=4", r"fast>=4: the index has no such version \(newest first: 3.0\)"),
        ("left right", "not a requirement"),
        ("--index-url=x", "not a requirement"),
        ("app @ file:///app-1.0-py3-none-any.whl", "names an address"),
    ],
)
def test_what_cannot_be_resolved_is_named(index: Path, requirement: str, message: str) -> None:
    with pytest.raises((Refused, Invalid), match=message):
        resolve([requirement], python="3.12", platform=NEW)


@pytest.mark.fault
def test_a_conflict_names_both_sides(index: Path) -> None:
    with pytest.raises(Refused) as caught:
        resolve(["left", "right"], python="3.12", platform=NEW)
    assert "left 1 depends on backport==1.2" in str(caught.value)
    assert "right 1 depends on backport!=1.2" in str(caught.value)


@pytest.mark.parametrize("python", ["3", "3.x", "2.7", "main"])
def test_what_is_no_python_is_refused(python: str) -> None:
    with pytest.raises(Invalid):
        resolve([], python=python, platform=NEW)


def test_platforms() -> None:
    assert Platform("manylinux2014_aarch64").tags == (
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
        "linux_aarch64",
    )
    assert Platform("manylinux2010_x86_64").tags[-2:] == ("manylinux1_x86_64", "linux_x86_64")
    for wrong in ("win_amd64", "manylinux_2_28", "linux_x86_64", "", "manylinux_2_x_x86_64"):
        with pytest.raises(Invalid):
            Platform(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filename", "../x.whl"),
        ("filename", ".x"),
        ("filename", "a/b"),
        ("sha256", "A" * 64),
        ("name", "Ray"),
        ("filename", "a\n"),
    ],
)
def test_a_pin_is_checked(field: str, value: str) -> None:
    good = {"name": "ray", "version": "1", "filename": "ray-1.tar.gz", "sha256": "0" * 64}
    with pytest.raises(ValidationError):
        Pin(**{**good, field: value})


def test_options_of_pip() -> None:
    config = from_options(
        {"proxy": "proxy.invalid:8080", "no-index": "yes", "timeout": "3", "trusted-host": "a\nb"},
        {"CURL_CA_BUNDLE": "/ca.pem"},
    )
    assert (config.proxy, config.use_index, config.timeout) == ("http://proxy.invalid:8080", False, 3.0)
    assert config.trusted_hosts == ("a", "b")
    with pytest.raises(Prevented, match="certificates"):
        config.tls()


@pytest.mark.upstream
def test_markers_hold_for_the_target() -> None:
    def names(python: str) -> set[str]:
        return {pin.name for pin in resolve(["pytest"], python=python, platform=NEW)}

    assert {"exceptiongroup", "tomli", "pytest"} <= names("3.10")
    assert not {"exceptiongroup", "tomli"} & names("3.13")


@pytest.mark.upstream
def test_a_real_sdist(tmp_path: Path) -> None:
    pin = find_sdist("deepspeed", "0.18.4")
    assert pin.sha256 == "4702fb79890cb10f2399bf19254c96d83dc618c9011d77ed37499033b86b4198"
    assert fetch(pin, tmp_path).name == "deepspeed-0.18.4.tar.gz"
