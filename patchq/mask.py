"""Keeping secrets out of output, records and bundles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_HEADER = re.compile(r"(?i)\b(authorization\s*[:=]\s*)(?:bearer|basic|token)?\s*\S+")
_KNOWN_TOKENS = re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[\w-]{20,})")
# Where language models are trained, most tokens are none: max_new_tokens=512, pad_token=<|x|>, eos_token_id: 2.
_TOKEN = r"token(?![a-z])(?=[\w.-]*\s*[=:](?!\s*(?:<|\d{1,7}(?![\w.-])|(?:true|false|none|null)\b)))"
_PARAMETER = re.compile(
    rf"(?i)((?:{_TOKEN}|secret|passw(?:or)?d|api_?key|access_?key)[\w.-]*\s*[=:]\s*)(?!\s|\$)[^\s&'\"]+"
)
_SECRET_NAME = re.compile(
    r"(?i)token(?![a-z])|secret|passw|credential|api_?key|access_?key|private_?key|cookie|auth(?!or)"
)


def mask(text: str) -> str:
    """`text` with credentials in URLs, authorization headers, and values named like secrets hidden."""
    text = _CREDENTIALS.sub(f"{HIDDEN}@", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _KNOWN_TOKENS.sub(HIDDEN, text)
    return _PARAMETER.sub(rf"\1{HIDDEN}", text)


def mask_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables fit to be kept: secret names lose their value, the others their credentials."""
    return {
        name: HIDDEN if _SECRET_NAME.search(name) and value else mask(value)
        for name, value in sorted(variables.items())
    }


def mask_values(value: Any) -> Any:
    """JSON types with every string in them masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: mask_values(item) for key, item in value.items()}
    return [mask_values(item) for item in value] if isinstance(value, list) else value
