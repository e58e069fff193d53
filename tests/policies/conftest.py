"""A tokenizer, a model and one thread for every test of this folder."""

from typing import Any

import pytest
import torch
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.tagged import write_tagged
from agentcli.records.training_settings import TinySettings
from policy_requests import ENTITIES, PROMPTS


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are reached whatever proxy this machine uses."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return make_tokenizer([*PROMPTS, write_tagged("explore", "find the apple", "take apple 1 from fridge 1")], ENTITIES)


@pytest.fixture
def model(tokenizer: Any) -> Any:
    return make_model(
        TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=64, initializer_range=0.2), tokenizer, 1
    )
