"""The further models of an exploration method, for instance a judge.

A plan checks them; they are opened together with the policy.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Toolbox, World, world_as
from agentcli.errors import AgentCliError, UsageError
from agentcli.exploration.judge import JudgeSettings, judges
from agentcli.policies.kept_replies import KeptReplies
from agentcli.policies.load import existing
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import LOADING, make_policy, policy_names
from agentcli.records.free_memory import use_threads
from agentcli.records.settings import Settings
from agentcli.registry import nearest
from agentcli.stages.plan import check_model


def check_further_models(settings: Settings) -> None:
    """Refuses models that could not be opened.

    Raises UsageError for an unknown kind of policy and for a model or server without a
    name, and what `check_model` raises.
    """
    for name, chosen in settings.rollout.further_models.items():
        kind = f"rollout.{name}.kind"
        model = f"rollout.{name}.model"
        base_url = f"rollout.{name}.endpoint.base_url"
        if chosen.kind not in policy_names():
            raise UsageError(
                f"{kind}: no policy {chosen.kind!r}; "
                f"{nearest(chosen.kind, policy_names())}"
            )
        # A server may choose its model itself; otherwise it needs only an address.
        if chosen.kind != "openai":
            if chosen.kind in LOADING and chosen.model is None:
                raise UsageError(
                    f"{model}: is not set; name one with --set {model}=DIR|ID"
                )
            check_model(chosen.model, model, f"--set {model}=DIR|ID")
        elif chosen.endpoint.base_url is None:
            raise UsageError(
                f"{base_url}: is not set; name the server with --set {base_url}=URL"
            )


@asynccontextmanager
async def open_further_models(
    settings: Settings,
    world: World,
    pool: EnginePool,
) -> AsyncIterator[dict[str, Policy]]:
    """Opens all of them for the block only.

    Raises what opening a policy raises, prefixed with the setting.
    """
    async with AsyncExitStack() as stack:
        models = dict[str, Policy]()
        for name, chosen in settings.rollout.further_models.items():
            as_policy = msgspec.structs.replace(settings, policy=chosen)
            try:
                model = start_policy(as_policy, world, pool, chosen.model)
            except AgentCliError as error:
                raise type(error)(f"rollout.{name}: {error}") from error
            stack.push_async_callback(model.close)
            if isinstance(chosen, JudgeSettings) and chosen.cache is not None:
                tools = world_as(world, Toolbox, f"rollout.{name}", "a judge").tools
                model = KeptReplies(model, chosen, Path(chosen.cache), judges(tools))
            models[name] = model
        yield models


def start_policy(
    settings: Settings,
    world: World,
    pool: EnginePool,
    model: str | None,
) -> Policy:
    """Loads the policy; the caller must close it.

    A policy that computes in this process uses `threads` torch threads.
    """
    if model is not None and settings.policy.kind != "openai":
        if settings.policy.kind in LOADING:
            existing(model)
        use_threads(settings.threads)
    return make_policy(settings, world, pool, model)
