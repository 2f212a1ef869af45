"""Patch series that other people made: import → apply → refresh of Debian source packages gives the same bytes.

The packages come from `apt-get source`, with sources and lists of our own: nothing of the machine's apt is changed.
`PATCHQ_DEBIAN="hello sed …"` takes others than the ones chosen here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from world import contents, git, patchq

from patchq.commands.place import Place
from patchq.patch import parse_patch

pytestmark = pytest.mark.upstream

# Small ones that have among them: folders in `series`, comments, mails, dpatch and `Index:` heads, Latin-1 and UTF-8,
# CR LF, a file without a newline at its end, new and deleted files, modes, and a patch that is an empty file.
CHOSEN = ("arj", "cowsay", "cron", "cscope", "curl", "file", "giflib", "net-tools", "patch", "procps", "rsync",
          "screen")  # fmt: skip
# Changed by hand without its index line: in a matching file the result is another than the recorded one.
STALE = {"curl": "Use-correct-path-when-loading-libnss-pem-ckbi-.so.patch"}
# Package → the exit code of its import, and the patch that is why: fuzz, a stale index line, two names of a file.
REFUSED = {
    "clamsmtp": (3, "include_order.patch"),
    "curl": (3, STALE["curl"]),
    "hfsplus": (2, "120137_ftbfs_hppa_gcc3.0.dpatch"),
}
PACKAGES = tuple(os.environ.get("PATCHQ_DEBIAN", " ".join(CHOSEN)).split())
TARGET = """\
description: a machine
work: {work}
upstreams:
  up: {{baseline: git, environments: [local]}}
environments:
  local:
    python: /usr/bin/python3
"""


@dataclass(frozen=True)
class Apt:
    """apt-get with lists and sources below `folder`."""

    folder: Path

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        settings = {
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache": self.folder / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "2",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        argv = ["apt-get", "--quiet", *options, *words]
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> Apt:
    for tool in ("apt-get", "dpkg-source"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    asked = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    rows = {tuple(row.split()) for row in told.splitlines() if row.startswith("Debian ") and "-" not in row.split()[2]}
    if not rows:
        pytest.skip("this machine's apt has no sources of Debian")
    made = Apt(tmp_path_factory.mktemp("apt"))
    for name in ("lists/partial", "cache/archives/partial"):
        (made.folder / name).mkdir(parents=True)
    text = "".join(f"deb-src {site} {release} {component}\n" for _, site, release, component in sorted(rows))
    (made.folder / "sources.list").write_text(text)
    done = made.run("update")
    if done.returncode:
        pytest.skip(f"apt-get update: {done.stderr.strip().splitlines()[-1]}")
    return made


@dataclass(frozen=True)
class Package:
    """A source package, unpacked in `folder`: the upstream's files as a clone, and Debian's `debian/`."""

    folder: Path

    @property
    def clone(self) -> Path:
        return self.folder / "clone"

    @property
    def packaging(self) -> Path:
        return self.folder / "packaging"

    @property
    def patches(self) -> Path:
        return self.packaging / "debian/patches"

    def unpack(self, out: str, *options: str) -> Path:
        """The package as dpkg-source unpacks it, which patches it, without fuzz, unless told otherwise."""
        (description,) = self.folder.glob("*.dsc")
        run("dpkg-source", "--extract", *options, str(description), out, cwd=self.folder)
        return self.folder / out

    def patched(self) -> dict[str, tuple[str, bytes]]:
        """The upstream's files as Debian patches them."""
        folder = self.unpack("patched")
        return {path: found for path, found in contents(folder).items() if not path.startswith(("debian/", ".pc/"))}


@pytest.fixture
def package(apt: Apt, tmp_path: Path, request: pytest.FixtureRequest) -> Package:
    made = Package(tmp_path / "package")
    made.packaging.mkdir(parents=True)
    done = apt.run("source", "--download-only", request.param, cwd=made.folder)
    if done.returncode:
        pytest.skip(f"apt-get source {request.param}: {done.stderr.strip().splitlines()[0]}")
    (made.unpack("clone", "--skip-patches") / "debian").rename(made.packaging / "debian")
    git(made.clone, "init", "-q", "-b", "main", ".")
    (made.clone / ".git/info/attributes").write_text("* -text -eol -ident -filter -working-tree-encoding\n")
    git(made.clone, "add", "-A", "-f", ".")
    git(made.clone, "commit", "-q", "-m", "as released")
    return made


@pytest.fixture
def room(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a new queue with the package's files as its upstream `up`; the current one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    room = tmp_path / "queue"
    room.mkdir()
    git(room, "init", "-q", ".")
    monkeypatch.chdir(room)
    assert patchq("init") == 0
    assert patchq("import", package.clone, "--as-upstream", "up", "--at", "main") == 0
    (room / "series/targets/local.yaml").write_text(TARGET.format(work=tmp_path / "work"))
    return room


@pytest.mark.parametrize("package", PACKAGES, indirect=True)
def test_a_series_comes_through_byte_for_byte(package: Package, room: Path, request: pytest.FixtureRequest) -> None:
    stale = STALE.get(request.node.callspec.params["package"])
    if stale:
        path = package.patches / stale
        path.write_bytes(b"".join(row for row in path.read_bytes().splitlines(True) if not row.startswith(b"index ")))
    assert patchq("import", package.packaging, "--upstream", "up", "--layer", "device") == 0
    before = dict(Place(room / "series").queue.files)
    assert_kept(package.patches, before)

    assert patchq("edit", "--target", "local", "up") == 0
    copy = room / "edit/local/up"
    assert {path: found for path, found in contents(copy).items() if not path.startswith(".git/")} == package.patched()
    git(copy, "rebase", "-q", "--force-rebase", "--empty=keep", "baseline")
    assert patchq("refresh", copy) == 0
    assert Place(room / "series").queue.files == before
    assert patchq("check") == 0


@pytest.mark.parametrize("package", [name for name in REFUSED if "PATCHQ_DEBIAN" not in os.environ], indirect=True)
def test_what_is_not_exact_is_refused_by_name_and_nothing_is_imported(
    package: Package, room: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(Place(room / "series").queue.files)
    code, patch = REFUSED[request.node.callspec.params["package"]]
    assert patchq("import", package.packaging, "--upstream", "up", "--layer", "device") == code
    assert patch in capsys.readouterr().err
    assert Place(room / "series").queue.files == before


def assert_kept(patches: Path, files: dict[str, bytes]) -> None:
    """Each patch is in the queue, in its order, with all its bytes: only what its header lacked was added."""
    rows = (patches / "series").read_text("utf-8", "surrogateescape").splitlines()
    names = [row.split()[0] for row in rows if row.strip() and not row.lstrip().startswith("#")]
    listed = [row.split()[0] for row in files["up/series"].decode().splitlines() if row and not row.startswith("#")]
    assert len(names) == len(listed)
    for name, ours in zip(names, listed, strict=True):
        old = (patches / name).read_bytes()
        new = files[f"up/{ours}"]
        start = parse_patch(name, old, name).diff_start
        assert new.endswith(old[start:]) and set(old[:start].split(b"\n")) <= set(new.split(b"\n")), name


def run(*argv: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(argv, cwd=cwd, env={**os.environ, **environment}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
