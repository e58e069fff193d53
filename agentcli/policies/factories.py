"""The functions that create the built-in policies.

Heavy modules are imported by the function that needs them. `pool` is the engine pool,
`model_dir` a model directory or hub id, None for policies without a model.
"""

from typing import Any

import msgspec

from agentcli.environments.protocol import World
from agentcli.errors import MAKE_A_MODEL, UsageError
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings


def transformers(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """A transformers model loaded in this process, for text or text with pictures."""
    from agentcli.policies.hf import TransformersPolicy
    from agentcli.policies.load import load_model, load_tokenizer
    from agentcli.policies.sight import load_sight

    policy = settings.policy
    model = _named(model_dir)
    network = load_model(model, policy.adapter, policy.device, policy.dtype)
    tokenizer = load_tokenizer(model, policy.chat_template_kwargs)
    sight = load_sight(model, policy.chat_template_kwargs)
    return TransformersPolicy(network, tokenizer, policy, sight)


def vllm(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """A causal language model in a vLLM engine that is started here."""
    from agentcli.policies.chat_tokens import ChatTokens, configured_ends
    from agentcli.policies.load import load_tokenizer
    from agentcli.policies.vllm_engine import VllmEngine, VllmPolicy

    policy = settings.policy
    model = _named(model_dir)
    ends = configured_ends(model)
    tokenizer = load_tokenizer(model, policy.chat_template_kwargs)
    tokens = ChatTokens(tokenizer, ends, policy.max_prompt_tokens)
    return VllmPolicy(VllmEngine(model, settings), tokens)


def _named(model: str | None) -> str:
    """Returns the model. Raises UsageError if none is set."""
    if model is None:
        raise UsageError(
            "policy.model is not set; name one with --model DIR|ID, or make one with: "
            f"{MAKE_A_MODEL}"
        )
    return model


def openai(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """A model behind a server that speaks the OpenAI protocol."""
    from agentcli.policies.openai import OpenAIPolicy, key_from_environment

    policy = msgspec.structs.replace(
        settings.policy, model=model_dir or settings.policy.model
    )
    return OpenAIPolicy(policy, key_from_environment(policy.endpoint.api_key_variable))


def expert(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """The expert that follows a plan computed from the true state."""
    from agentcli.policies.model_free import Expert

    return Expert(pool, world.card.exploring)


def search(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """The world's expert that has to search for things."""
    from agentcli.policies.searcher import Searcher

    return Searcher(world)


def random(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """A policy that takes any admissible action."""
    from agentcli.policies.model_free import Uniform

    return Uniform()


def demonstrator(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """The policy of settings.demos, with its deliberate faults."""
    from agentcli.policies.demonstrator import Demonstrator
    from agentcli.policies.registry import make_policy

    if settings.demos.policy == "demonstrator":
        raise UsageError(
            "demos.policy: demonstrator cannot demonstrate itself; use search or expert"
        )
    kind = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    inner = make_policy(
        msgspec.structs.replace(settings, policy=kind), world, pool, model_dir
    )
    return Demonstrator(inner, world, settings.demos)


def tool_judge(
    settings: Settings,
    world: World,
    pool: Any,
    model_dir: str | None,
) -> Policy:
    """The engine's own verdict on a query. It is for `rollout.judge` and cannot act."""
    from agentcli.policies.model_free import ToolJudge

    return ToolJudge(pool)
