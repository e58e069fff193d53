"""All policies by name. Nothing heavy is imported before a policy that needs it is made.

An installed package adds its own under the entry-point group `agentcli.policies`: a function with the signature of
`make_policy`.
"""

import difflib
from collections.abc import Callable
from importlib import metadata
from typing import Any

import msgspec

from agentcli.environments.protocol import World
from agentcli.errors import UsageError
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings

ENTRY_POINTS = "agentcli.policies"

Factory = Callable[[Settings, World, Any, str | None], Policy]


def policy_names() -> list[str]:
    """Every kind that `make_policy` knows, sorted."""
    return sorted({*POLICIES, *(point.name for point in metadata.entry_points(group=ENTRY_POINTS))})


def make_policy(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    """The policy that settings.policy.kind names.

    `pool` is asked for plans (expert); `model_dir` is a model directory or hub id, None for policies without a model.
    Raises UsageError for an unknown kind, a missing model or settings that cannot take effect.
    """
    kind = settings.policy.kind
    if kind in POLICIES:
        policy = POLICIES[kind](settings, world, pool, model_dir)
        return _in_parallel(policy, world) if kind in MODEL_FREE and settings.rollout.method == "dpepo" else policy
    for point in metadata.entry_points(group=ENTRY_POINTS, name=kind):
        return point.load()(settings, world, pool, model_dir)
    near = difflib.get_close_matches(kind, policy_names(), 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(policy_names())}"
    raise UsageError(f"policy.kind: no policy {kind!r}; {hint}")


def _transformers(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    if model_dir is None:
        raise UsageError(
            "policy.model is not set; name one with --model DIR|ID, or make one with agentcli sft --model tiny"
        )
    from agentcli.policies.hf import TransformersPolicy
    from agentcli.policies.load import load_model, load_tokenizer

    policy = settings.policy
    model = load_model(model_dir, policy.adapter, policy.device, policy.dtype)
    return TransformersPolicy(model, load_tokenizer(model_dir), policy)


def _openai(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    from agentcli.policies.openai import OpenAIPolicy, key_from_environment

    policy = msgspec.structs.replace(settings.policy, model=model_dir or settings.policy.model)
    return OpenAIPolicy(policy, key_from_environment(policy.endpoint.api_key_variable))


def _expert(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    from agentcli.policies.model_free import Expert

    return Expert(pool)


def _search(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    from agentcli.policies.model_free import Search

    return Search(world)


def _random(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    from agentcli.policies.model_free import Uniform

    return Uniform()


def _in_parallel(policy: Policy, world: World) -> Policy:
    from agentcli.policies.parallel_expert import in_parallel

    return in_parallel(policy, world)


def _demonstrator(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    """The policy of settings.demos, with its faults."""
    from agentcli.policies.demonstrator import Demonstrator

    if settings.demos.policy == "demonstrator":
        raise UsageError("demos.policy: demonstrator cannot demonstrate itself; use search or expert")
    kind = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    inner = make_policy(msgspec.structs.replace(settings, policy=kind), world, pool, model_dir)
    return Demonstrator(inner, world, settings.demos)


POLICIES: dict[str, Factory] = {
    "transformers": _transformers,
    "openai": _openai,
    "expert": _expert,
    "search": _search,
    "random": _random,
    "demonstrator": _demonstrator,
}
"""demonstrator: the policy that settings.demos describes, faults on purpose included."""

MODEL_FREE = ("expert", "search", "random")
"""Policies that answer for several copies of the environment when rollout.method is dpepo; a model learns to by itself."""
