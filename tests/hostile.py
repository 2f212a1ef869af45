"""A user whose git is set up in ordinary ways that change what git does, and whose environment steers it."""

from __future__ import annotations

from pathlib import Path

import pytest

_CONFIG = """\
[apply]
	whitespace = fix
	ignoreWhitespace = change
[core]
	autocrlf = true
	eol = crlf
	safecrlf = true
	hooksPath = {hooks}
	fsmonitor = {hooks}/post-checkout
	attributesFile = {folder}/attributes
	excludesFile = {folder}/ignore
	fileMode = false
	symlinks = false
	ignoreCase = true
	precomposeUnicode = true
	quotePath = true
	abbrev = 4
	compression = 0
	looseCompression = 0
	bigFileThreshold = 1
	whitespace = trailing-space,tab-in-indent
	sharedRepository = group
	logAllRefUpdates = false
	pager = false
	editor = false
[diff]
	noprefix = true
	mnemonicPrefix = true
	external = false
	renames = copies
	algorithm = patience
	context = 0
	interHunkContext = 5
	suppressBlankEmpty = true
[filter "upper"]
	clean = tr a-z A-Z
	smudge = tr a-z A-Z
	required = true
[commit]
	gpgSign = true
	template = {folder}/ignore
[tag]
	gpgSign = true
[gpg]
	program = false
[init]
	templateDir = {folder}/template
	defaultBranch = trunk
	defaultObjectFormat = sha256
	defaultRefFormat = reftable
[pack]
	depth = 1
	window = 1
	threads = 3
	compression = 0
	indexVersion = 1
	packSizeLimit = 1m
	writeBitmaps = true
[index]
	version = 4
	sparse = true
[feature]
	manyFiles = true
	experimental = true
[protocol]
	version = 0
	allow = never
[fetch]
	fsckObjects = true
	prune = true
	recurseSubmodules = true
	writeCommitGraph = true
	unpackLimit = 1
[transfer]
	hideRefs = refs
	unpackLimit = 100000
[uploadpack]
	hideRefs = refs
	packObjectsHook = {hooks}/post-checkout
[gc]
	auto = 1
	autoDetach = false
[maintenance]
	auto = true
[submodule]
	recurse = true
[merge]
	conflictStyle = diff3
	renames = false
[am]
	threeWay = true
	keepcr = false
[i18n]
	commitEncoding = latin1
	logOutputEncoding = latin1
[url "/nowhere/"]
	insteadOf = /
[user]
	name = Mallory
	email = mallory@example.org
	useConfigOnly = true
[alias]
	apply = !false
"""
_HOOKS = ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "pre-auto-gc", "post-merge",
          "commit-msg", "applypatch-msg", "pre-applypatch", "fsmonitor-watchman", "proc-receive", "update")  # fmt: skip


def be_hostile(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Set it all up below the new `folder`; returns a file that any hook which runs leaves."""
    mark, hooks = folder / "a-hook-ran", folder / "hooks"
    for place in (hooks, folder / "template/hooks", folder / "template/info"):
        place.mkdir(parents=True)
    for name in _HOOKS:
        for hook in (hooks / name, folder / "template/hooks" / name):
            hook.write_text(f"#!/bin/sh\necho {name} >> {mark}\nexit 1\n")
            hook.chmod(0o755)
    attributes = "* text=auto eol=crlf ident filter=upper working-tree-encoding=UTF-16\n"
    (folder / "attributes").write_text(attributes)
    (folder / "template/info/attributes").write_text(attributes)
    (folder / "ignore").write_text("*\n")
    (folder / "template/info/exclude").write_text("*\n")
    config = _CONFIG.format(folder=folder, hooks=hooks)
    (folder / "template/config").write_text(config)
    (folder / ".gitconfig").write_text(config)
    (folder / "xdg/git").mkdir(parents=True)
    (folder / "xdg/git/config").write_text(config)
    (folder / "xdg/git/attributes").write_text(attributes)
    (folder / "xdg/git/ignore").write_text("*\n")
    _steer(patch, folder)
    return mark


def _steer(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The environment: what git reads of it, and what changes output and times."""
    settings = ("core.autocrlf", "true"), ("apply.whitespace", "fix"), ("core.hooksPath", str(folder / "hooks"))
    steering = {
        "HOME": folder, "XDG_CONFIG_HOME": folder / "xdg", "GIT_CONFIG_GLOBAL": folder / ".gitconfig",
        "GIT_CONFIG_SYSTEM": folder / ".gitconfig", "GIT_CONFIG_COUNT": len(settings),
        "GIT_CONFIG_PARAMETERS": "'core.eol'='crlf'", "GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": folder / "index", "GIT_OBJECT_DIRECTORY": folder, "GIT_COMMON_DIR": "/nowhere",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere", "GIT_NAMESPACE": "x", "GIT_PREFIX": "x/",
        "GIT_TEMPLATE_DIR": folder / "template", "GIT_DEFAULT_HASH": "sha256", "GIT_INDEX_VERSION": "4",
        "GIT_AUTHOR_NAME": "Mallory", "GIT_AUTHOR_EMAIL": "m@example.org", "GIT_AUTHOR_DATE": "1 +0500",
        "GIT_COMMITTER_NAME": "Mallory", "GIT_COMMITTER_DATE": "2 +0500", "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "-u0", "GIT_REPLACE_REF_BASE": "refs/x/", "GIT_GRAFT_FILE": folder / "ignore",
        "GIT_SHALLOW_FILE": "/nowhere", "GIT_CEILING_DIRECTORIES": "/", "GIT_LITERAL_PATHSPECS": "1",
        "GIT_ICASE_PATHSPECS": "1", "GIT_EXEC_PATH": "/nowhere", "GIT_PAGER": "false", "GIT_EDITOR": "false",
        "GIT_ALLOW_PROTOCOL": "none", "GIT_PROTOCOL": "version=0", "GIT_SSH_COMMAND": "false",
        "GIT_TRACE": "1", "GIT_TRACE_PACKET": "1", "GIT_FLUSH": "0", "GIT_ATTR_SOURCE": "HEAD",
        "GIT_PYTHON_GIT_EXECUTABLE": "/nowhere", "GIT_PYTHON_REFRESH": "error",
        "TZ": "Asia/Kathmandu", "LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8", "LANGUAGE": "de", "COLUMNS": "20",
        "PAGER": "false", "EDITOR": "false", "POSIXLY_CORRECT": "1",
    }  # fmt: skip
    for number, (key, value) in enumerate(settings):
        steering |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    for name, value in steering.items():
        patch.setenv(name, str(value))
