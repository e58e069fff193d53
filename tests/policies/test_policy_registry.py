"""Policies by name, built in and installed."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from agentcli.policies.demonstrator import Demonstrator
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.model_free import Expert, ToolJudge, Uniform
from agentcli.policies.openai import OpenAIPolicy
from agentcli.policies.registry import make_policy, policy_names
from agentcli.policies.searcher import Searcher
from agentcli.records.settings import DemosSettings, PolicySettings, Settings
from refusal import refused
from small_world import SmallWorld

WORLD = SmallWorld()


def settings(kind: str, **demos: Any) -> Settings:
    return Settings(policy=PolicySettings(kind=kind), demos=DemosSettings(**demos))


def installed(settings: Settings, world: Any, pool: Any, model_dir: str | None) -> Any:
    """What an installed package would offer."""
    return (settings.policy.kind, world, pool, model_dir)


def test_every_kind_is_made(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    kinds = {
        "expert": Expert,
        "search": Searcher,
        "random": Uniform,
        "demonstrator": Demonstrator,
        "transformers": TransformersPolicy,
        "openai": OpenAIPolicy,
        "tool-judge": ToolJudge,
    }
    apart = ("plausible", "vllm")
    for kind, expected in kinds.items():
        chosen = settings(kind)
        chosen.policy.endpoint.base_url = "http://127.0.0.1:1/v1"
        assert type(make_policy(chosen, WORLD, None, str(tmp_path))) is expected
    # vllm is made in tests/vllm, where it is installed, plausible in a world that forejudges.
    assert policy_names() == sorted([*kinds, *apart])


def test_unknown_names_get_the_nearest() -> None:
    refused(lambda: make_policy(settings("exprt"), WORLD, None, None), names=("policy.kind", "exprt"), remedy="expert")
    refused(lambda: make_policy(settings("zzz"), WORLD, None, None), names="zzz", remedy="demonstrator")


def test_a_model_must_be_named() -> None:
    refused(lambda: make_policy(settings("transformers"), WORLD, None, None), names="policy.model", remedy="--model")


def test_installed_packages_add_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("mine", f"{__name__}:installed", "agentcli.policies")
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: metadata.EntryPoints([point]).select(**wanted))
    assert make_policy(settings("mine"), WORLD, "pool", "dir") == ("mine", WORLD, "pool", "dir")
    assert "mine" in policy_names()


def test_a_demonstrator_cannot_wrap_itself() -> None:
    refused(
        lambda: make_policy(settings("demonstrator", policy="demonstrator"), WORLD, None, None), names="demonstrator"
    )


def test_policies_without_a_model_load_no_torch() -> None:
    code = (
        "import sys; from agentcli.policies.registry import make_policy; from agentcli.records.settings import *;"
        "from agentcli.environments.registry import make_world; settings = Settings(policy=PolicySettings(kind='demonstrator'));"
        "make_policy(settings, make_world(settings.environment), None, None);"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
