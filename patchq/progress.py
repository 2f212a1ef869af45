"""Saying what takes long while it is under way; whoever listens decides how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(text: str) -> None:
    """Say what begins now, in a few words; nothing happens where nobody listens."""
    listener = _listener.get()
    if listener:
        listener(text)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let `listener` hear what is told during the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
