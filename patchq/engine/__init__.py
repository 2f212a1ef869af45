"""Applying a selection, where its hunks landed, and who is responsible for what did not fit."""

from patchq.engine.engine import Base, Engine, Placed

__all__ = ["Base", "Engine", "Placed"]
