"""Options that were typed but cannot take effect with the settings they meet: refused instead of ignored."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.cli.options import Option
    from agentcli.records.settings import Settings

TREE_ONLY = {"rollout.roots", "rollout.branching", "rollout.branch"}
MODEL_ONLY = {
    "policy.model",
    "policy.adapter",
    "policy.device",
    "policy.dtype",
    "policy.temperature",
    "evaluation.temperature",
}


def refuse_without_effect(options: "Iterable[Option]", flags: Mapping[str, Any], settings: "Settings") -> None:
    """Raises UsageError naming the first option among `flags` (setting path -> value) that changes nothing, and why."""
    names = {option.path: option.declarations[0] for option in options if option.path and option.declarations}
    typed = [path for path in names if path in flags]
    kind = settings.demos.policy if "demos.policy" in names else settings.policy.kind
    for path in typed:
        reason = _reason(path, settings, kind)
        if reason:
            raise UsageError(f"{names[path]} has no effect {reason}")


def _reason(path: str, settings: "Settings", policy: str) -> str | None:
    if path in TREE_ONLY and settings.rollout.method == "chain":
        return "with rollout.method chain, which never branches; add --method spark or leave it out"
    if path in MODEL_ONLY and policy != "transformers":
        return f"with --policy {policy}, which asks no model; leave one of the two out"
    if path in ("environment.split", "evaluation.split") and settings.environment.panel is not None:
        return f"with the panel file {settings.environment.panel}; leave one of the two out"
    if path == "prompt.history" and settings.prompt.style == "compact":
        return "with prompt.style compact, where the world chooses what to show; leave it out"
    return None
