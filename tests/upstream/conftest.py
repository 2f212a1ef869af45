"""The interpreters that train for real; one is built at most, for the whole session and all its workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from training import VERL_PYTHON, training_python


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with torch, Ray and what LLaMA-Factory and DeepSpeed import."""
    base = tmp_path_factory.getbasetemp()
    return training_python(base.parent if base.name.startswith("popen-") else base)


@pytest.fixture(scope="session")
def torch_python(request: pytest.FixtureRequest) -> Path:
    """An interpreter with torch, Ray and pyarrow: the one that verl's tests are run with, where it is named."""
    if VERL_PYTHON:
        return Path(VERL_PYTHON)
    python: Path = request.getfixturevalue("training")
    return python
