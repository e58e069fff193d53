"""Shared by all tests: helpers beside a test file are importable by name, and torch uses one thread."""

import gc
import os
import signal
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tables in a pipe are as wide as they like, unless somebody says otherwise.
os.environ.pop("COLUMNS", None)
# What a shell starts with `&` ignores Ctrl-C, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test is timed: a slow machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="module", autouse=True)
def _leave_alone_what_stays() -> None:
    """Keeps the garbage collector out of every imported module: each training collects, 0.3 s of it for nothing."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No AGENTCLI_* variables."""
    for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
        monkeypatch.delenv(name)
