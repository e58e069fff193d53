"""Options that were typed but cannot take effect with the settings they meet: refused
instead of ignored.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.cli.options import Option
    from agentcli.records.settings import Settings

LOADED_HERE = {"policy.adapter", "policy.device", "policy.dtype"}
MODEL_ONLY = {
    *LOADED_HERE,
    "policy.model",
    "policy.temperature",
    "evaluation.temperature",
}


def refuse_without_effect(
    options: "Iterable[Option]", flags: Mapping[str, Any], settings: "Settings"
) -> None:
    """Raises UsageError naming the first option among `flags` (setting path -> value)
    that changes nothing, and why.
    """
    names = {
        option.path: option.names[0]
        for option in options
        if option.path and option.names
    }
    typed = [path for path in names if path in flags]
    kind = settings.demos.policy if "demos.policy" in names else settings.policy.kind
    for path in typed:
        reason = _reason(path, settings, kind)
        if reason:
            raise UsageError(f"{names[path]} has no effect {reason}")


def _reason(path: str, settings: "Settings", policy: str) -> str | None:
    from agentcli.policies.registry import MODEL_FREE

    if path == "rollout.distinct" and settings.rollout.distinct:
        return _why_not_distinct(settings, policy)
    if path == "rollout.minimum_leaves" and settings.rollout.deadline_seconds is None:
        return "without a deadline; add --deadline SECONDS or leave it out"
    if path == "prompt.history":
        return _why_not_history(settings)
    if path in MODEL_ONLY and policy in MODEL_FREE:
        return f"with --policy {policy}, which asks no model; leave one of the two out"
    if path in LOADED_HERE and policy == "openai":
        return (
            "with --policy openai, where the server loads the model; leave one of "
            "the two out"
        )
    if path == "policy.endpoint.base_url" and policy != "openai":
        return f"with --policy {policy}; add --policy openai or leave it out"
    if path.startswith("train.") and path.removeprefix("train.") in _unread(settings):
        return (
            f"with train.objective {settings.train.objective}, which does not read "
            "it; leave it out"
        )
    if (
        path in ("environment.split", "evaluation.split")
        and settings.environment.panel is not None
    ):
        return (
            f"with the panel file {settings.environment.panel}; leave one of the two "
            "out"
        )
    return None


def _unread(settings: "Settings") -> tuple[str, ...]:
    """The settings of `train` that its objective does not read."""
    from agentcli.training.objectives import make_objective

    return make_objective(settings.train.objective).unread


def _why_not_history(settings: "Settings") -> str | None:
    """Why the messages are the same for any length of the history."""
    from agentcli.environments.registry import make_world
    from agentcli.prompts.registry import dialect_class

    style = settings.prompt.style or make_world(settings.environment).card.dialect
    method = settings.rollout.method
    fixed = dialect_class(style, settings.rollout.numbered).fixed
    return (
        f"with prompt.style {style} and rollout.method {method}: {fixed}; leave it out"
        if fixed
        else None
    )


def _why_not_distinct(settings: "Settings", policy: str) -> str | None:
    """Why no response could be drawn again, or would be another one."""
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
