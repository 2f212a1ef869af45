"""What a terminal and a strict reader of JSON may be handed: text from outside, with what steers them written out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from patchq.mask import mask, mask_values

# C0 and C1 controls, line and paragraph ends, marks of direction, and what a reader does not see at all (Unicode's
# Default_Ignorable_Code_Point: zero-width, fillers, variation selectors, tags).
_UNSEEN = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_STEERING = f"[\x00-\x1f\ud800-\udfff{_UNSEEN}]"


def clean(text: str) -> str:
    """`text` on one line, with secrets hidden and control characters written out."""
    return re.sub(_STEERING, lambda found: _written(ord(found[0])), mask(text).replace("\t", " "))


def storable(value: Any) -> Any:
    """JSON types as every reader takes them: bytes of file names that are no text become escapes, and numbers that JSON
    does not have (NaN, the infinities) words."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {storable(key): storable(item) for key, item in value.items()}
    return [storable(item) for item in value] if isinstance(value, list | tuple) else value


def json_text(document: Mapping[str, Any]) -> str:
    """A document for stdout: strict JSON, secrets hidden, and nothing raw in it that steers a terminal."""
    text = json.dumps(mask_values(storable(document)), ensure_ascii=False, allow_nan=False, indent=2)
    return re.sub(f"[{_UNSEEN}]", lambda found: json.dumps(found[0])[1:-1], text)


def _written(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
