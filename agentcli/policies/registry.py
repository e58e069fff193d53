"""The registry of all policies; each is imported when it is created.

An installed package adds its own under the entry-point group `agentcli.policies`: a
function with the signature of `make_policy`.
"""

from importlib.util import find_spec
from typing import Any

from agentcli.environments.protocol import World
from agentcli.errors import MissingError
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings
from agentcli.registry import Registry
from agentcli.requirements import remedy_for

POLICIES = {
    "transformers": "agentcli.policies.factories:transformers",
    "vllm": "agentcli.policies.factories:vllm",
    "openai": "agentcli.policies.factories:openai",
    "expert": "agentcli.policies.factories:expert",
    "search": "agentcli.policies.factories:search",
    "random": "agentcli.policies.factories:random",
    "demonstrator": "agentcli.policies.factories:demonstrator",
    "tool-judge": "agentcli.policies.factories:tool_judge",
}
"""Name -> "module:function". demonstrator: the policy described by settings.demos, with
its deliberate faults.
"""

LOADING = ("transformers", "vllm")
"""Policies that load a model in this process: a directory or hub id, with or without an
adapter.
"""

MODEL_FREE = ("expert", "search", "random", "tool-judge")
"""Policies that do not use a model."""

REGISTRY = Registry("agentcli.policies", POLICIES, key="policy.kind", kind="policy")


def policy_names() -> list[str]:
    """Every kind that `make_policy` accepts, sorted."""
    return REGISTRY.names()


def make_policy(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """Creates the policy that settings.policy.kind names.

    `pool` provides plans (expert); `model_dir` is a model directory or hub id, None for
    policies without a model. Raises UsageError for an unknown kind, a missing model or
    settings that cannot take effect.
    """
    kind = settings.policy.kind
    policy: Policy = REGISTRY.load(kind)(settings, world, pool, model_dir)
    return policy


def refuse_missing_vllm() -> None:
    """Raises MissingError if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise MissingError(f"vllm is not installed; type: {remedy_for('vllm')}")
