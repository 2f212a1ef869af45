"""Keeping secrets out of output, records and bundles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"<>]*@")
_HEADER = re.compile(
    r"(?i)\b(authorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?)(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s\"']+"
)
_COOKIE = re.compile(r"(?i)\b(cookie[\"']?\s{0,9}[:=]\s{0,9}[\"']?)[^\s;\"']+(?:;\s*[^\s;=\"']+=[^\s;\"']+)*")
_KNOWN_TOKENS = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,}"
    r"|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{20,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{35}|dckr_pat_[\w-]{20,}|A[KS]IA[A-Z0-9]{16}|eyJ[\w-]{8,}\.eyJ[\w.-]{8,})"
)
# Where language models are trained, most tokens are none: max_new_tokens=512, pad_token=<|x|>, eos_token_id: 2.
_PLAIN = r"(?:<|\[|\d{1,7}(?![\w.-])|(?:true|false|none|null)\b)"
_TOKEN = rf"token(?![a-z])(?=[\w.-]{{0,99}}\\?[\"']?\s{{0,9}}[=:](?!\s{{0,9}}\\?[\"']?{_PLAIN}))"
_NAMES = r"secret(?!ar)|passw(?:or)?d|passphrase|(?:api|access|private|account)[_-]?key|shared[_-]?access"
_NAME = rf"(?i)((?:{_TOKEN}|{_NAMES})[\w.-]{{0,99}}\\?[\"']?\s{{0,9}}[=:]\s{{0,9}})"
_QUOTED = re.compile(rf"{_NAME}(\\?[\"'])(?!\s|\$)[^\"'\n]+?\2")
_PARAMETER = re.compile(rf"{_NAME}(?!\s|\$|\\?[\"'])[^\s&'\"]+")
_SIGNED = re.compile(r"(?i)([?&](?:sig|signature|x-amz-(?:signature|credential))=)[^\s&'\"]+")
_OPTION = rf"--?[\w-]{{0,99}}(?:token(?![a-z])|{_NAMES})[\w-]{{0,99}}"
_OPTIONS = re.compile(rf"(?i)((?<![\w-]){_OPTION}[ \t]+[\"']?)(?!-|\$|[\"']|{_PLAIN})[^\s'\"]+")
_IS_OPTION = re.compile(rf"(?i){_OPTION}")
_USER = re.compile(r"((?<![\w-])(?:-u|--user|--proxy-user)[ =][\"']?[^\s:'\"]+:)[^\s'\"]+")
_NETRC = re.compile(r"(?i)\b(login\s{1,9}\S{1,200}\s{1,9}password\s{1,9})\S+")
_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^-]+")
_SECRET_NAME = re.compile(
    r"(?i)token(?![a-z])|secret|passw|credential|api_?key|access_?key|private_?key|cookie|auth(?!or)"
)


def mask(text: str) -> str:
    """`text` with credentials in URLs, headers and options, and values named like secrets hidden."""
    text = _CREDENTIALS.sub(f"{HIDDEN}@", text)
    for pattern in (_HEADER, _COOKIE, _SIGNED, _OPTIONS, _USER, _NETRC, _KEY):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    text = _KNOWN_TOKENS.sub(HIDDEN, text)
    return _PARAMETER.sub(rf"\1{HIDDEN}", _QUOTED.sub(rf"\1\2{HIDDEN}\2", text))


def mask_words(words: Sequence[str]) -> list[str]:
    """A command's words, also where a secret follows its option as a word of its own."""
    return [
        HIDDEN if word and _IS_OPTION.fullmatch(before) and _OPTIONS.match(f"{before} {word}") else mask(word)
        for before, word in zip(("", *words), words, strict=False)
    ]


def mask_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables fit to be kept: secret names lose their value, the others their credentials."""
    return {
        name: HIDDEN if _SECRET_NAME.search(name) and value else mask(value)
        for name, value in sorted(variables.items())
    }


def mask_values(value: Any) -> Any:
    """JSON types with every string in them masked, a name of a secret and its value seen together."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(str(key)): _named(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        masked = mask_words([item if isinstance(item, str) else "" for item in value])
        return [text if isinstance(item, str) else mask_values(item) for item, text in zip(value, masked, strict=True)]
    return value


def _named(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not value:
        return mask_values(value)
    quoted = value.replace('"', " ").replace("'", " ").replace("\n", " ")
    return HIDDEN if f"'{HIDDEN}'" in mask(f"{name}: '{quoted}'") else mask(value)
