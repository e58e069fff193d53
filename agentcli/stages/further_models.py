"""The further models of an exploration method, a judge for instance: checked in a plan,
and opened beside the policy.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import World
from agentcli.errors import AgentCliError, UsageError
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import make_policy, policy_names
from agentcli.records.settings import PolicySettings, Settings
from agentcli.registry import nearest
from agentcli.stages.plan import check_model, model_sources
from agentcli.stages.threads import use_threads


def check_further_models(settings: Settings) -> None:
    """Refuse what could not be opened.

    Raises UsageError for an unknown kind of policy, and for a model or a server that is
    not named, and what `check_model` raises.
    """
    for name, chosen in settings.rollout.further_models.items():
        setting = f"rollout.{name}"
        if chosen.kind not in policy_names():
            raise UsageError(
                f"{setting}.kind: no policy {chosen.kind!r}; "
                f"{nearest(chosen.kind, policy_names())}"
            )
        if chosen.kind == "openai":
            if chosen.endpoint.base_url is None:
                base_url = f"{setting}.endpoint.base_url"
                raise UsageError(
                    f"{base_url}: is not set; name the server with --set {base_url}=URL"
                )
            continue
        model = f"{setting}.model"
        if chosen.kind == "transformers" and chosen.model is None:
            raise UsageError(f"{model}: is not set; name one with --set {model}=DIR|ID")
        check_model(chosen.model, model, f"--set {model}=DIR|ID")


def names_of(settings: Settings) -> dict[str, str | None]:
    """The models in use, by the path of their setting."""
    return {
        f"rollout.{name}": chosen.model
        for name, chosen in settings.rollout.further_models.items()
    }


def further_sources(settings: Settings) -> list[Path]:
    """The directories of the further models, those that there are."""
    return [
        path
        for chosen in settings.rollout.further_models.values()
        for path in model_sources(chosen.model)
    ]


@asynccontextmanager
async def open_further_models(
    settings: Settings, world: World, pool: EnginePool
) -> AsyncIterator[dict[str, Policy]]:
    """Open all of them for the block only. Raises what opening a policy raises, with
    the setting before it.
    """
    async with AsyncExitStack() as stack:
        models = dict[str, Policy]()
        for name, chosen in settings.rollout.further_models.items():
            try:
                models[name] = _opened(settings, chosen, world, pool)
            except AgentCliError as error:
                raise type(error)(f"rollout.{name}: {error}") from error
            stack.push_async_callback(models[name].close)
        yield models


def _opened(
    settings: Settings, chosen: PolicySettings, world: World, pool: EnginePool
) -> Policy:
    if chosen.model is not None and chosen.kind != "openai":
        use_threads(settings.threads)
    return make_policy(
        msgspec.structs.replace(settings, policy=chosen), world, pool, chosen.model
    )
