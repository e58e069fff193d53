"""The folder in which all tests with vLLM work."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import chained
from vllm_commands import CHAIN, SETTINGS


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chained(tmp_path_factory.mktemp("vllm") / "made", SETTINGS, CHAIN)


@pytest.fixture
def folder(made: Path) -> Iterator[Path]:
    """The folder with toy.yaml, demos and sft, which all tests share."""
    with contextlib.chdir(made):
        yield made
