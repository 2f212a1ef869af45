"""The real verl: a clone in `VERL_SOURCE`, and the baseline that the shipped queue pins."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

BASELINE = "1bf9d2d76c244238e8219531c582819a6b407d47"
SERIES = Path(__file__).resolve().parents[2] / "series"


def verl_source() -> Path:
    """The clone, which nobody writes to; skips the test where there is none with the baseline."""
    named = os.environ.get("VERL_SOURCE", "")
    if not named:
        pytest.skip("VERL_SOURCE names no clone of verl")
    seen = subprocess.run(("git", "-C", named, "cat-file", "-e", f"{BASELINE}^{{commit}}"), check=False)
    if seen.returncode:
        pytest.skip(f"{named} has no commit {BASELINE}")
    return Path(named)
