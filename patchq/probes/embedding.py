"""An embedding service: its health, then one real request. Prints one JSON document.

Question: {"url": BASE, "model": NAME, "text": TEXT, "health": PATH, "path": PATH}. The request and the answer have the
form of OpenAI's embeddings endpoint, which vLLM and others serve.
"""

from __future__ import annotations

import json
import math
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

SECONDS = 60
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def opened(url: str, data: bytes | None = None) -> bytes:
    """The body of a response; a proxy never stands between this machine and itself."""
    proxies: dict[str, str] | None = {} if urlsplit(url).hostname in LOOPBACK else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with opener.open(request, timeout=SECONDS) as response:
        body: bytes = response.read()
        return body


def said(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}: {error.read()[:200].decode('utf-8', 'replace')}"
    return str(getattr(error, "reason", error))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    base = question["url"].rstrip("/")
    try:
        opened(base + question.get("health", "/health"))
    except (OSError, ValueError) as error:
        return {"health": said(error)}
    body = json.dumps({"model": question["model"], "input": [question.get("text", "2 + 3 = ?")]}).encode()
    try:
        told = json.loads(opened(base + question.get("path", "/v1/embeddings"), body))
        vector = [float(number) for number in told["data"][0]["embedding"]]
    except (OSError, ValueError) as error:
        return {"health": "", "error": said(error)}
    except (KeyError, IndexError, TypeError) as error:
        return {"health": "", "error": f"the answer has another form: {type(error).__name__}: {error}"}
    norm = math.sqrt(sum(number * number for number in vector))
    if not math.isfinite(norm):
        return {"health": "", "error": "the vector is not finite"}
    return {"health": "", "model": told.get("model"), "dimension": len(vector), "norm": norm}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
