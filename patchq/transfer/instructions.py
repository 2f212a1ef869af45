"""`INSTRUCTIONS.txt`: the same job with nothing but git, tar and coreutils, as a script that can be read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import chain

from patchq.lock import Lock, LockedSelection
from patchq.printable import clean
from patchq.queue.load import Queue
from patchq.store.bundlefile import REF
from patchq.transfer.manifest import Manifest

_HEAD = """\
# How to apply this bundle where patchq cannot run: git, tar and coreutils are enough.
#
# Queue {queue}, target {target}, lock {lock}.
# Run it:   sh INSTRUCTIONS.txt FOLDER [VARIANT]
# FOLDER is made and gets one patched tree an upstream; VARIANT is one of: {variants}.
# It stops at the first thing that is not as it should be, and every tree is compared with the lock.
# Who made it? Before you run this, with a list of signers that did not come with the bundle (what stands here may be
# forged as well; docs/security.md says the same):
#   ssh-keygen -Y find-principals -s MANIFEST.json.sig -f ALLOWED_SIGNERS
#   ssh-keygen -Y verify -n patchq -f ALLOWED_SIGNERS -I WHO -s MANIFEST.json.sig < MANIFEST.json
#   sed -n '/^  "files": {{/,/^  }}/s/^    "\\(.*\\)": "\\([0-9a-f]*\\)",\\{{0,1\\}}$/\\2  \\1/p' MANIFEST.json \\
#     | sha256sum --quiet --strict -c -
# Where patchq can run, this is shorter and proves more:
#   python{python} -m venv pq && pq/bin/pip install --no-index --find-links wheels patchq
#   pq/bin/patchq apply --target {target} --bundle .

set -eu
[ $# -ge 1 ] || {{ echo "usage: sh INSTRUCTIONS.txt FOLDER [VARIANT]" >&2; exit 2; }}
BUNDLE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
WORK=$(cd "$1" && pwd)
VARIANT=${{2:-}}

# 1. Every file is as it was sent.
(cd "$BUNDLE" && sha256sum --quiet --strict -c SHA256SUMS)

# 2. Nothing of your own git configuration may change a result.
unset $(env | sed -n 's/^\\(GIT_[A-Z_]*\\)=.*/\\1/p') || true
HOME=$(mktemp -d); XDG_CONFIG_HOME=$HOME; LC_ALL=C; TZ=UTC; GIT_CONFIG_NOSYSTEM=1; GIT_ATTR_NOSYSTEM=1
GIT_CEILING_DIRECTORIES=$WORK
export HOME XDG_CONFIG_HOME LC_ALL TZ GIT_CONFIG_NOSYSTEM GIT_ATTR_NOSYSTEM GIT_CEILING_DIRECTORIES
trap 'rm -rf "$HOME"' EXIT

start() {{ # FOLDER: an empty repository that keeps every byte
    mkdir -p "$1"; cd "$1"; git init -q --template= .; mkdir -p .git/info
    echo '* -text -eol -ident -filter -working-tree-encoding !diff' > .git/info/attributes
}}
same() {{ # TREE WHAT
    [ "$(git write-tree)" = "$1" ] || {{ echo "$2: the tree is not the one in the lock" >&2; exit 1; }}
}}
put() {{ # STRIP PATCH TREE
    git apply --index --whitespace=nowarn "-p$1" "$BUNDLE/series/$2"; same "$3" "$2"; echo "applied $2"
}}
"""


def instructions(queue: Queue, lock: Lock, target: str, manifest: Manifest) -> str:
    """The whole text of `INSTRUCTIONS.txt` for a target."""
    variants = sorted({locked.variant for locked in lock.selections.values() if locked.variant})
    environments = queue.target(target).environments.values()
    python = next((environment.minor for environment in environments if environment.minor), "3")
    head = _HEAD.format(
        queue=queue.settings.name,
        target=target,
        lock=lock.digest,
        variants=", ".join(variants) or "(none)",
        python=python,
    )
    if manifest.requires:
        note = f"# This bundle builds on lock {manifest.requires.lock}; only patchq can join the two.\nexit 2\n"
        return f"{head}\n{note}"
    plain = lock.of(target, None)
    parts = chain.from_iterable(_upstream(queue, lock, target, locked) for locked in plain.values())
    return head + "".join(f"{line}\n" for line in parts) + "\necho done\n"


def _upstream(queue: Queue, lock: Lock, target: str, locked: LockedSelection) -> Iterator[str]:
    yield f"\n# {locked.upstream} {clean(locked.version)}, from the baseline {locked.base_commit}"
    if locked.baseline == "installed":
        yield from _installed(locked)
        return
    yield f'start "$WORK/{locked.upstream}"'
    yield from _git(locked) if locked.baseline == "git" else _sdist(queue, locked)
    yield f"same {locked.base_tree} {shlex.quote(locked.upstream + ' baseline')}"
    yield 'case "$VARIANT" in'
    variants = [item for item in lock.selections.values() if (item.target, item.upstream) == (target, locked.upstream)]
    for selection in variants:
        yield f"{shlex.quote(selection.variant or '')})"
        yield from (f"    put {patch.strip} {patch.name} {patch.tree}" for patch in selection.patches)
        yield f"    same {selection.tree} {locked.upstream} ;;"
    yield '*) echo "no such variant: $VARIANT" >&2; exit 2 ;;'
    yield "esac"


def _git(locked: LockedSelection) -> Iterator[str]:
    yield f"echo {locked.base_commit} > .git/shallow"
    yield f'git fetch -q "$BUNDLE/git/{locked.upstream}.bundle" {REF}:{REF}'
    yield f"git checkout -q --detach {locked.base_commit}"
    for path, commit in locked.submodules.items():
        name = f"{locked.upstream}.{path.replace('/', '.')}"
        inner, bundle = shlex.quote(f"{locked.upstream}/{path}"), shlex.quote(f"{name}.bundle")
        yield f'start "$WORK"/{inner}; echo {commit} > .git/shallow'
        yield f'git fetch -q "$BUNDLE"/git/{bundle} {REF}:{REF}; git checkout -q --detach {commit}'
        yield f'cd "$WORK/{locked.upstream}"'


def _sdist(queue: Queue, locked: LockedSelection) -> Iterator[str]:
    sdist = queue.upstream(locked.upstream).baseline.sdist
    assert sdist
    yield f'tar -xzf "$BUNDLE/sdist/{sdist.filename}" --strip-components=1 --no-same-owner'
    yield "git add -A -f ."


def _installed(locked: LockedSelection) -> Iterator[str]:
    yield "# It is changed where it is installed. Set SITE_PACKAGES to that folder to have it done here."
    yield 'if [ -n "${SITE_PACKAGES:-}" ] && [ -z "$VARIANT" ]; then'
    yield '    cd "$SITE_PACKAGES"'
    for path, file in locked.files.items():
        yield (
            f"    echo {shlex.quote(f'{file.before}  {path}')} | sha256sum --quiet -c -"
            if file.before
            else f"    test ! -e {shlex.quote(path)}"
        )
    for patch in locked.patches:
        yield f'    GIT_CEILING_DIRECTORIES=$PWD/.. git apply -p{patch.strip} "$BUNDLE/series/{patch.name}"'
    for path, file in locked.files.items():
        yield (
            f"    echo {shlex.quote(f'{file.after}  {path}')} | sha256sum --quiet -c -"
            if file.after
            else f"    test ! -e {shlex.quote(path)}"
        )
    yield "else"
    yield f"    echo 'not done: {locked.upstream} (SITE_PACKAGES is not set)'"
    yield "fi"
