"""Refuses typed options that cannot take effect with the other settings."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentcli.cli.option import Option
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.records.settings import Settings

LOADED_HERE = {"policy.adapter", "policy.device", "policy.dtype"}
"""The settings used to load a model in this process."""
MODEL_ONLY = {
    *LOADED_HERE,
    "policy.model",
    "policy.temperature",
    "evaluation.temperature",
}
"""The settings that a policy without a model ignores."""


def refuse_without_effect(
    options: Iterable[Option], typed: Mapping[str, Any], settings: "Settings"
) -> None:
    """Raises UsageError naming the first typed option that changes nothing, and why.

    `typed` maps setting paths to values.
    """
    # A positional argument is the object of the command: it always takes effect.
    flags = {
        option.path: option.shown
        for option in options
        if option.path and not option.positional
    }
    policy = settings.policy.kind
    if "demos.policy" in flags:
        policy = settings.demos.policy
    for path, flag in flags.items():
        if path not in typed:
            continue
        reason = _reason(path, settings, policy)
        if reason:
            raise UsageError(f"{flag} has no effect {reason}")


def _reason(path: str, settings: "Settings", policy: str) -> str | None:
    section, _, name = path.partition(".")
    if section == "policy" or path == "evaluation.temperature":
        return _reason_of_policy(path, policy)
    if path == "rollout.distinct" and settings.rollout.distinct:
        return _reason_of_distinct(settings, policy)
    if path == "rollout.minimum_leaves" and settings.rollout.deadline_seconds is None:
        return "without a deadline; add --deadline SECONDS or leave it out"
    if path == "prompt.history":
        return _reason_of_history(settings)
    if section == "train" and name in _unread(settings):
        return (
            f"with train.objective {settings.train.objective}, which does not read "
            "it; leave it out"
        )
    if path == "cluster.workers" and settings.cluster.is_local:
        return "in this process; add --on ray or leave it out"
    panel = settings.environment.panel
    if path in ("environment.split", "evaluation.split") and panel is not None:
        return f"with the panel file {panel}; leave one of the two out"
    return None


def _reason_of_policy(path: str, policy: str) -> str | None:
    from agentcli.policies.registry import MODEL_FREE

    if path in MODEL_ONLY and policy in MODEL_FREE:
        return f"with --policy {policy}, which asks no model; leave one of the two out"
    if path in LOADED_HERE and policy == "openai":
        return (
            "with --policy openai, where the server loads the model; leave one of "
            "the two out"
        )
    if path == "policy.device" and policy == "vllm":
        return (
            "with --policy vllm, which takes the GPUs that are visible; set "
            "CUDA_VISIBLE_DEVICES instead"
        )
    if path == "policy.endpoint.base_url" and policy != "openai":
        return f"with --policy {policy}; add --policy openai or leave it out"
    return None


def _reason_of_distinct(settings: "Settings", policy: str) -> str | None:
    """Why resampling is impossible or would give another response; None if it works."""
    from agentcli.policies.registry import MODEL_FREE

    if settings.rollout.leaves == 1:
        return (
            "with rollout.leaves 1, where nothing has a sibling; raise --leaves or "
            "leave it out"
        )
    if settings.policy.temperature == 0 and policy not in MODEL_FREE:
        return (
            "with policy.temperature 0, where every draw is the same; raise "
            "--temperature or leave it out"
        )
    return None


def _reason_of_history(settings: "Settings") -> str | None:
    """Why the length of the history does not change the messages; None if it does."""
    from agentcli.environments.registry import make_world
    from agentcli.prompts.registry import dialect_class

    style = settings.prompt.style or make_world(settings.environment).card.dialect
    fixed = dialect_class(style, settings.rollout.numbered).fixed
    if not fixed:
        return None
    method = settings.rollout.method
    return (
        f"with prompt.style {style} and rollout.method {method}: {fixed}; leave it out"
    )


def _unread(settings: "Settings") -> tuple[str, ...]:
    """The settings of `train` that its objective ignores."""
    from agentcli.training.objectives import make_objective

    return make_objective(settings.train.objective).unread
