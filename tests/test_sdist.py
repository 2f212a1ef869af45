"""Reading source distributions and wheels: what becomes a file, and what is refused."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid
from patchq.index.download import fetch, find_sdist
from patchq.patch.names import check_path
from patchq.sdist import SourceFile, archive, open_wheel, read_sdist


class Entry(tarfile.TarInfo):
    """A member with its content attached."""

    content = b""


def entry(name: str, data: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE) -> Entry:
    member = Entry(name)
    member.type, member.mode = kind, mode
    if kind == tarfile.REGTYPE:
        member.size = len(data)
    else:
        member.linkname = os.fsdecode(data)
    member.content = data
    return member


def link(name: str, target: str) -> Entry:
    return entry(name, os.fsencode(target), 0o777, tarfile.SYMTYPE)


def folder(name: str) -> Entry:
    return entry(name, kind=tarfile.DIRTYPE, mode=0o755)


def tar_bytes(*members: Entry, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        for member in members:
            made.addfile(member, io.BytesIO(member.content) if member.isreg() else None)
    return buffer.getvalue()


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., tuple[SourceFile, ...]]:
    def read_members(*members: Entry) -> tuple[SourceFile, ...]:
        path = tmp_path / "p-1.tar.gz"
        path.write_bytes(gzip.compress(tar_bytes(*members)))
        return read_sdist(path)

    return read_members


@pytest.fixture
def refuse(tmp_path: Path) -> Callable[[bytes], str]:
    """The message with which the archive of these bytes is refused."""

    def message(data: bytes) -> str:
        path = tmp_path / "p-1.tar.gz"
        path.write_bytes(data)
        with pytest.raises(Invalid) as caught:
            read_sdist(path)
        assert str(caught.value).startswith(f"{path}: ")
        return str(caught.value).removeprefix(f"{path}: ")

    return message


def test_files_modes_and_order(read: Callable[..., tuple[SourceFile, ...]]) -> None:
    assert read(
        folder("p-1/"),
        entry("p-1/z", b"z", 0o604),
        entry("p-1/a/b", b"\r\n\0", 0o4744),
        entry("p-1/a-b", b"", 0o055),
        link("p-1/a/l", "../z"),
        folder("p-1/empty"),
        entry("p-1/文 件\t", b"\xff", 0o777),
    ) == (
        SourceFile("a-b", "100644", b""),
        SourceFile("a/b", "100755", b"\r\n\0"),
        SourceFile("a/l", "120000", b"../z"),
        SourceFile("z", "100644", b"z"),
        SourceFile("文 件\t", "100755", b"\xff"),
    )


def test_what_is_ignored(read: Callable[..., tuple[SourceFile, ...]]) -> None:
    member = entry("./p-1/a", b"x")
    member.uid, member.uname, member.mtime = 1000, "ada", 1e9 + 0.5
    member.pax_headers = {"comment": "c", "SCHILY.xattr.user.x": "v"}
    assert read(folder("./"), member, entry("p-1/A", b"y")) == (
        SourceFile("A", "100644", b"y"),
        SourceFile("a", "100644", b"x"),
    )


LONG = "p-1/" + "/".join(["d" * 90] * 4) + "/" + "f" * 200


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_forms_of_tar(tmp_path: Path, form: int, pack: Callable[[bytes], bytes]) -> None:
    names = {LONG: b"1", "p-1/l\udce9": b"2"}
    data = tar_bytes(*(entry(n, d) for n, d in names.items()), link(LONG + "l", "f" * 150), form=form)
    (tmp_path / "p-1.tar").write_bytes(pack(data))
    found = {file.path: file.data for file in read_sdist(tmp_path / "p-1.tar")}
    assert found == {LONG[4:]: b"1", "l\udce9": b"2", LONG[4:] + "l": b"f" * 150}


A = entry("p-1/a", b"a")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([A, A], "member 'a' is there twice"),
        ([A, entry("p-1/a/b")], "member 'a' is a folder of other members"),
        (
            [entry("p-1/d/x/y"), entry("p-1/d-"), link("p-1/d", ".")],
            "member 'd' is a folder of other members",
        ),
        ([A, folder("p-1/a")], "member 'a' is a folder of other members"),
        ([A, entry("q/b")], "member 'q/b' lies outside the top-level folder 'p-1'"),
        ([entry("p-1")], "member 'p-1' stands where the one top-level folder is due"),
        ([link("p-1", "x")], "stands where the one top-level folder is due"),
        ([entry("p-1/../a")], "member '../a' has the part '..'"),
        ([entry("../a")], "leads out"),
        ([entry("/p-1/a")], "is absolute"),
        ([entry("p-1/a//b")], "has an empty part"),
        ([entry("p-1/\\a")], "is absolute"),
        ([entry("p-1/C:/a")], "is absolute"),
        ([entry("p-1/.git/config")], "inside .git"),
        ([entry("p-1/x/.GIT/config")], "inside .git"),
        ([entry("p-1/git~1/config")], "inside .git"),
        ([entry("p-1/.g\u200cit/config")], "inside .git"),
        ([entry("p-1/a\nb")], "newline"),
        ([entry("p-1/h", b"p-1/a", kind=tarfile.LNKTYPE)], "member 'p-1/h' is a hard link"),
        ([entry("p-1/c", kind=tarfile.CHRTYPE)], "is a character device"),
        ([entry("p-1/b", kind=tarfile.BLKTYPE)], "is a block device"),
        ([entry("p-1/f", kind=tarfile.FIFOTYPE)], "is a FIFO"),
        ([entry("p-1/s", kind=tarfile.GNUTYPE_SPARSE)], "is a sparse file"),
        ([entry("p-1/s", kind=b"Z")], "is of the unknown type b'Z'"),
        ([link("p-1/l", "/etc/passwd")], "points to the absolute"),
        ([link("p-1/l", "../x")], "points out of the tree"),
        ([link("p-1/l", "a/../../x")], "points out of the tree"),
        ([link("p-1/l", ".git/hooks")], "points into .git"),
        ([link("p-1/l", "")], "has no readable target"),
        ([link("p-1/l", "x" * 4096)], "is too long"),
        ([link("p-1/a/b/up", "../.."), link("p-1/l", "a/b/up/../x")], "out of the tree through other links"),
        ([link("p-1/l", "m"), link("p-1/m", "l")], "never ends"),
        ([link("p-1/l", "l/" + "x/../" * 300)], "never ends"),
    ],
)
def test_refused_members(refuse: Callable[[bytes], str], members: list[Entry], message: str) -> None:
    assert message in refuse(tar_bytes(*members))


@pytest.mark.parametrize("target", ["b", "../p", ".", "./b//c", "nowhere", "sub/../b", "loop-free"])
def test_links_that_stay_inside(read: Callable[..., tuple[SourceFile, ...]], target: str) -> None:
    found = read(entry("p-1/d/b/c"), link("p-1/d/loop-free", "b"), link("p-1/d/sub", "b"), link("p-1/d/l", target))
    assert SourceFile("d/l", "120000", target.encode()) in found


def pax(**said: str) -> bytes:
    member = entry("p-1/a", b"abc")
    member.pax_headers = {key.replace("_", "."): value for key, value in said.items()}
    return tar_bytes(member)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is neither a tar nor a zip archive"),
        (b"#!/bin/sh\n" * 100, "is neither a tar nor a zip archive"),
        (gzip.compress(b"x" * 600), "is not a readable archive"),
        (gzip.compress(tar_bytes(A))[:-9], "is not a readable archive"),
        (gzip.compress(tar_bytes(A)) + b"junk", "is not a readable archive"),
        (b"PK\x03\x04" + b"x" * 100, "is not a readable archive"),
        (tar_bytes(A)[:512], "member 'p-1/a' is cut off"),
        (tar_bytes(A)[:1024], "is cut off"),
        (tar_bytes(A)[:1024] + b"x" * 1024, "is not a readable archive"),
        (tar_bytes(A)[:2048] + tar_bytes(entry("p-1/hidden")), "has data after its end"),
        (pax(GNU_sparse_major="1", GNU_sparse_minor="0"), "is a sparse file"),
        (pax(path="p-1/../b"), "has the part '..'"),
        (pax(comment="x" * 70000), "is a header of"),
        (pax(comment="x").replace(b"comment=", b"comment:"), "damaged extended header"),
        (pax(comment="x").replace(b"13 comment", b"99 comment"), "damaged extended header"),
        (
            pax(comment="xxxxxxxx").replace(b"comment=xxxxxxxx", b"path=p-1\0xxxxxxx"),
            "damaged extended header",
        ),
        (pax(path="x")[:1024] + bytes(1024), "between a long name and the member"),
        (pax(size="-1"), "has the size '-1'"),
        (pax(size="999999999999999"), "is cut off"),
    ],
    ids=map(str, range(19)),
)
def test_refused_archives(refuse: Callable[[bytes], str], data: bytes, message: str) -> None:
    assert message in refuse(data)


def test_one_path_for_all_is_refused(refuse: Callable[[bytes], str]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", pax_headers={"path": "p-1/x"}) as made:
        made.addfile(entry("p-1/a"))
    assert "gives one path to all members" in refuse(buffer.getvalue())


def test_a_folder_with_content_is_refused(refuse: Callable[[bytes], str]) -> None:
    member = folder("p-1/d")
    member.size = 3
    assert "is a folder with 3 bytes" in refuse(tar_bytes(member))


def test_bombs(refuse: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    dense = gzip.compress(bytes(archive.RATIO_FLOOR + (1 << 20)))
    assert "more than 200 times its size" in refuse(dense)
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 20)
    assert "more than 1 MiB" in refuse(gzip.compress(bytes(2 << 20)))
    monkeypatch.setattr(archive, "MAX_MEMBERS", 20)
    many = [entry(f"p-1/{number}") for number in range(30)]
    assert "more than 20 members" in refuse(tar_bytes(*many))
    assert "more than 20 members" in refuse(zip_bytes(*((member.name, b"", 0o644) for member in many)))


def test_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p-1.tar.gz")
    with pytest.raises(Invalid, match="not a plain file"):
        read_sdist(tmp_path / "p-1.tar.gz")


def zip_bytes(*entries: tuple[str, bytes, int], system: int = 3) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as made:
        warnings.simplefilter("ignore")  # of two members of one name
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = system, mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, data)
    return buffer.getvalue()


def test_zip(tmp_path: Path) -> None:
    path = tmp_path / "p-1.zip"
    path.write_bytes(zip_bytes(("p-1/", b"", 0o40755), ("p-1/x", b"1", 0o100755), ("p-1/l", b"x", 0o120777)))
    assert read_sdist(path) == (SourceFile("l", "120000", b"x"), SourceFile("x", "100755", b"1"))
    path.write_bytes(zip_bytes(("p-1/x", b"1", 0o100755), system=0))
    assert read_sdist(path) == (SourceFile("x", "100644", b"1"),)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zip_bytes(("p-1/a", b"", 0o644), ("p-1/a", b"", 0o644)), "is there twice"),
        (zip_bytes(("p-1/../../a", b"", 0o644)), "has the part '..'"),
        (zip_bytes(("p-1/l", b"/etc", 0o120777)), "points to the absolute"),
        (zip_bytes(("p-1/f", b"", 0o10644)), "unusual mode"),
        (zip_bytes(("p-1/d/", b"x", 0o40755)), "is a folder with 1 bytes"),
        (zip_bytes(("p-1/ab", b"", 0o644)).replace(b"p-1/ab", b"p-1/a\0"), "has a NUL in its name"),
        (zip_bytes(("p-1/a", bytes(50 << 20), 0o644)), "more than 200 times"),
        (zip_bytes(("p-1/a", b"hello", 0o644))[:-30], "is not a readable archive"),
    ],
)
def test_refused_zips(refuse: Callable[[bytes], str], data: bytes, message: str) -> None:
    assert message in refuse(data)


names = st.lists(
    st.text(st.characters(exclude_categories=(), exclude_characters="/\0\n"), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
).map("/".join)
contents = st.tuples(st.binary(max_size=600), st.sampled_from([0o644, 0o755, 0o600, 0o100]))


def is_usable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return check_path(name) is None and os.fsdecode(os.fsencode(name)) == name


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(names.filter(is_usable), contents, max_size=8), gnu=st.booleans())
def test_round_trip(tmp_path: Path, files: dict[str, tuple[bytes, int]], gnu: bool) -> None:
    files = {n: f for n, f in files.items() if not any(other.startswith(f"{n}/") for other in files)}
    members = [entry(f"p-1/{name}", data, mode) for name, (data, mode) in files.items()]
    form = tarfile.GNU_FORMAT if gnu else tarfile.PAX_FORMAT
    (tmp_path / "p.tar").write_bytes(tar_bytes(folder("p-1"), *members, form=form))
    expected = [SourceFile(name, "100755" if mode & 0o100 else "100644", data) for name, (data, mode) in files.items()]
    assert list(read_sdist(tmp_path / "p.tar")) == sorted(expected, key=lambda file: os.fsencode(file.path))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 4095), st.integers(1, 255)), min_size=1, max_size=4))
def test_damage_is_refused_or_harmless(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(pax(comment="x")[:2560] + tar_bytes(link("p-1/l", "a"))[:1536])
    for place, change in flips:
        data[place % len(data)] ^= change
    (tmp_path / "p.tar").write_bytes(data)
    try:
        found = read_sdist(tmp_path / "p.tar")
    except Invalid:
        return
    assert all(check_path(file.path) is None for file in found)


def wheel_bytes(files: dict[str, bytes], record: str | None = None, mode: int = 0o644) -> bytes:
    info = "p-1.0.dist-info"
    files = {**files, f"{info}/METADATA": b"Name: p\n"}
    rows = [
        f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b'=').decode()},{len(d)}\n"
        for n, d in files.items()
    ]
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n" if record is None else record).encode()
    return zip_bytes(*((name, data, mode) for name, data in files.items()))


def opened(tmp_path: Path, data: bytes, name: str = "p-1.0-py3-none-any.whl") -> list[str]:
    (tmp_path / name).write_bytes(data)
    return [file.path for file in open_wheel(tmp_path / name)]


def test_a_wheel(tmp_path: Path) -> None:
    data = wheel_bytes({"p/__init__.py": b"", "p/with,comma.py": b"1"}, None)
    data = data.replace(b"p/with,comma.py,sha", b"p/with,comma.py,sha")
    with pytest.raises(Invalid, match=r"RECORD:2: is not PATH,DIGEST,SIZE"):
        opened(tmp_path, data)
    assert opened(tmp_path, wheel_bytes({"p/__init__.py": b""})) == [
        "p-1.0.dist-info/METADATA",
        "p-1.0.dist-info/RECORD",
        "p/__init__.py",
    ]


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (wheel_bytes({"p/a": b"1"}), "q-1.0-py3-none-any.whl", "has no RECORD of q 1.0"),
        (wheel_bytes({"p/a": b"1"}), "p-1.1-py3-none-any.whl", "has no RECORD of p 1.1"),
        (wheel_bytes({"p/a": b"1"}), "p.whl", "Invalid wheel filename"),
        (wheel_bytes({"p/a": b"1"}, "p/b,sha256=x,1\n"), "", "'p/b' is listed in RECORD, but missing"),
        (wheel_bytes({"p/a": b"1"}, ""), "", "member 'p/a' is not listed"),
        (wheel_bytes({"p/a": b"1"}, "p/a,sha256=x,1\n"), "", "member 'p/a' is not what RECORD says"),
        (wheel_bytes({"p/a": b"1"}, "p/a,,\n"), "", "member 'p/a' is not what RECORD says"),
        (wheel_bytes({"p/a": b"1"}, "p/a,md5=x,1\n"), "", "member 'p/a' is not what RECORD says"),
        (wheel_bytes({"p/a": b"1"}, "p/a,,\np/a,,\n"), "", "RECORD:2: is not PATH"),
        (wheel_bytes({"../a": b"1"}), "", "has the part '..'"),
        (wheel_bytes({"p/a": b"b"}, mode=0o120777), "", "is a link"),
    ],
)
def test_refused_wheels(tmp_path: Path, data: bytes, name: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        opened(tmp_path, data, name or "p-1.0-py3-none-any.whl")
    assert message in str(caught.value)


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("name", "version", "digest", "modes"),
    [
        (
            "deepspeed",
            "0.18.4",
            "4702fb79890cb10f2399bf19254c96d83dc618c9011d77ed37499033b86b4198",
            {"100644": 1115, "100755": 100},
        ),
        (
            "llamafactory",
            "0.9.5",
            "1702c0bfb864e80577a59521d2edcacd2aab05ec6aee06188fcba335a589681f",
            {"100644": 539, "120000": 1},
        ),
    ],
)
def test_real_sdists(tmp_path: Path, name: str, version: str, digest: str, modes: dict[str, int]) -> None:
    pin = find_sdist(name, version)
    assert pin.sha256 == digest
    files = read_sdist(fetch(pin, tmp_path))
    assert Counter(file.mode for file in files) == modes
    by_path = {file.path: file for file in files}
    if name == "deepspeed":
        assert by_path["deepspeed/ops/adam/cpu_adam.py"].mode == "100755"
    else:
        assert [f.data for f in files if f.mode == "120000"] == [b".ai/CLAUDE.md"]
