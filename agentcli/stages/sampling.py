"""The plans of all stages that sample, their checks, and the models that they open.

A plan checks the further models of an exploration method, for instance a judge; they
are opened together with the policy.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Examining, Toolbox, World, world_as
from agentcli.environments.registry import make_world
from agentcli.errors import AgentCliError, MissingError, UsageError, prefixed
from agentcli.exploration.judge import JudgeSettings, KeptReplies, judges
from agentcli.exploration.registry import check
from agentcli.policies.load import existing
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import (
    LOADING,
    make_policy,
    policy_names,
    require_installed,
)
from agentcli.policies.registry import REGISTRY as POLICIES
from agentcli.prompts.registry import make_dialect
from agentcli.records.free_memory import use_threads
from agentcli.records.processes import process_count
from agentcli.records.settings import ClusterSettings, Settings
from agentcli.records.types import Panel
from agentcli.registry import nearest, own_files
from agentcli.stages.plan import (
    StagePlan,
    check_model,
    model_sources,
)


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
            with prefixed(f"rollout.{name}", AgentCliError):
                model = start_policy(as_policy, world, pool, chosen.model)
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


SECTIONS = ("environment", "policy", "prompt", "rollout")
MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"
HOME_TOKEN = Path("~/.ray/auth_token")


@dataclass(frozen=True, kw_only=True)
class SamplerPlan:
    """The part of a plan that is needed to grow a tree."""

    settings: Settings
    world: World
    model: str | None
    """Model directory, hub id, or a server's name for it; None without a model."""
    critic: str | None = None
    """Directory of the critic that gives every step a value."""
    prm: str | None = None
    """Directory or hub id of the process reward model that scores every step."""


@dataclass(frozen=True, kw_only=True)
class SamplingPlan(SamplerPlan, StagePlan):
    """A stage that plays the tasks of a panel."""

    panel: Panel
    seed: int
    """The seeds of all trees derive from it."""


def check_sampling(
    settings: Settings,
    model: str | None,
    world: World | None = None,
) -> World:
    """The world of these settings, after checks that its first tree can grow.

    `world` is passed if it already exists. Raises UsageError for an unknown world,
    method, policy, budget or prompt style, if torchrun started several processes, and
    what `check_model` raises.
    """
    _refuse_torchrun()
    check(settings)
    check_cluster(settings.cluster)
    world = world or make_world(settings.environment)
    check_capability(settings, world)
    make_dialect(settings.prompt, world, settings.rollout.numbered)
    check_policy(settings, settings.policy.kind)
    check_model(model)
    check_further_models(settings)
    return world


def _refuse_torchrun() -> None:
    """Raises UsageError if torchrun started several processes: all would sample."""
    count = process_count()
    if count > 1:
        raise UsageError(
            f"torchrun started {count} processes, and trees grow in one; start this "
            "without torchrun; `run` trains in several with run.processes=N"
        )


def check_cluster(cluster: ClusterSettings) -> None:
    """Refuses a cluster setting with which no tree could grow, before anything starts.

    Raises UsageError if it is misspelt or points to a cluster without token
    authentication, MissingError without Ray or without a token for a running cluster.
    """
    if cluster.is_local:
        return
    from importlib.util import find_spec

    host, _, port = cluster.on.removeprefix("ray://").rpartition(":")
    is_address = cluster.on.startswith("ray://") and host and port.isdecimal()
    if cluster.on != "ray" and not is_address:
        raise UsageError(
            f"cluster.on: {cluster.on!r} is no place; use local, ray or ray://HOST:PORT"
        )
    if os.environ.get(MODE, "token") != "token":
        raise UsageError(
            f"{MODE}={os.environ[MODE]}: without a token whoever reaches the cluster "
            f"can run code there; type: unset {MODE}"
        )
    if is_address and not _has_token():
        raise MissingError(
            f"cluster.on {cluster.on}: no token; name the file of the cluster's with "
            f"{TOKEN_FILE}=FILE"
        )
    if find_spec("ray") is None:
        raise MissingError("ray is not installed; type: pip install 'agentcli[ray]'")


def _has_token() -> bool:
    if os.environ.get(TOKEN):
        return True
    return Path(os.environ.get(TOKEN_FILE, HOME_TOKEN)).expanduser().is_file()


def check_capability(settings: Settings, world: World) -> None:
    """Raises UsageError for a world that does not support the method or the judge."""
    rollout = settings.rollout
    needed = rollout.capability
    if needed is not None:
        world_as(world, needed, "rollout.method", rollout.method)
    if rollout.answer_judge is not None:
        world_as(world, Examining, "rollout.answer_judge", rollout.answer_judge.kind)


def check_policy(settings: Settings, kind: str) -> None:
    """Raises UsageError for an unknown kind of policy, or settings that it refuses.

    Raises MissingError if vLLM is needed and not installed.
    """
    POLICIES.place(kind)
    if kind == "openai":
        from agentcli.policies.endpoint import base_url

        base_url(settings.policy.endpoint)
        if settings.prompt.keep_thinking:
            raise UsageError(
                "prompt.keep_thinking: true, but a server writes its prompts itself; "
                "leave it out, or set it to false"
            )
    if kind == "vllm":
        from agentcli.policies.vllm_engine import check_vllm

        require_installed("vllm", "vllm", "policy.kind vllm")
        from agentcli.policies.load import accelerator

        if settings.policy.device != "cpu" and accelerator() == "mps":
            raise UsageError(
                "policy.kind: vllm does not use Apple's GPU (mps); use --policy "
                "transformers"
            )
        check_vllm(settings)


def refuse_shard(settings: Settings, stage: str) -> None:
    """Raises UsageError if a shard is set: this stage plays tasks repeatedly."""
    if settings.environment.shard is not None:
        raise UsageError(
            f"environment.shard {settings.environment.shard}: {stage} has no shards, "
            "rollout and evaluations have; leave it out"
        )


def files_read(settings: Settings, model: str | None) -> list[Path]:
    """The models' directories, the panel's file, and those of the user's code."""
    code = own_files(settings.rollout.method, settings.environment.name)
    sources = [*model_sources(model), *code]
    for further in settings.rollout.further_models.values():
        sources += model_sources(further.model)
    if settings.environment.panel is not None:
        sources.append(Path(settings.environment.panel))
    return sources


def inputs_of(settings: Settings, model: str | None) -> dict[str, str | None]:
    """The models in use, by readable names; further models by their setting's path."""
    inputs = {"model": model}
    for name, further in settings.rollout.further_models.items():
        inputs[f"rollout.{name}"] = further.model
    return inputs


class Timed(Protocol):
    """A model that measures its own time."""

    seconds: float
    """Seconds spent computing so far."""


class Stopwatch:
    """Measures where a sampling stage's time goes, in seconds since construction.

    Create and read it in the event loop's thread. `sampling` is wall time, `policy`
    time inside the models, `environment` time inside the engines; these may overlap.
    `orchestration` is the rest: wall time in neither, or this thread's own CPU time if
    that is more. A policy without a model computes in this thread.
    """

    def __init__(self, pool: EnginePool, *models: Timed) -> None:
        self._pool = pool
        self._models = models
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        answering = sum(model.seconds for model in self._models)
        return time.perf_counter(), time.thread_time(), answering, self._pool.seconds

    def seconds(self) -> dict[str, float]:
        """The time so far: sampling, policy, environment, orchestration."""
        spent = zip(self._now(), self._start, strict=True)
        wall, thread, policy, environment = (now - then for now, then in spent)
        return {
            "sampling": wall,
            "policy": policy,
            "environment": environment,
            # Times overlap when several trees grow, so the difference alone may be
            # negative.
            "orchestration": max(thread, wall - policy - environment),
        }
