"""The plan of a stage: its inputs, outputs and conditions.

Every stage has two halves. `plan(...)` reads, checks, counts and refuses; it writes
nothing, starts no process and loads no model. `perform(plan, session)` does the work.
`--dry-run` prints the plan, and `--resume` compares it with the one that was begun.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import MissingError, UsageError
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, hash_inputs
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.training_settings import LoraSettings

SPEED_ONLY = {
    "environment": ("processes", "worker", "deadline_seconds"),
    "policy": ("batch_rows", "linger_ms", "endpoint", "vllm"),
    "rollout": ("concurrency", "most_errored"),
    "train": ("save_every_updates",),
    "sft": ("save_every_updates",),
}
"""Settings that affect the speed of a result, or whether it is refused, but not the
result.

A resumed stage may change them.
"""


@dataclass(frozen=True, kw_only=True)
class StagePlan(ABC):
    """A stage that was checked and has not begun."""

    stage: str
    """Its name in the manifest: rollout, credit/grpo, evaluation/L0, ..."""
    run: RunDirectory
    """The run directory that it writes to."""
    settings: Settings
    """The settings to record in the manifest."""
    sections: tuple[str, ...]
    """The sections that determine the output, besides the seed."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Further values that must be the same when the stage is resumed."""
    inputs: Mapping[str, Any]
    """What it reads, by readable names."""
    sources: Sequence[Path] = ()
    """The files and model directories among its inputs; existing ones are hashed."""
    outputs: Sequence[Path]
    """The files and folders that it writes."""
    resumable: bool = True
    """Whether --resume can continue it after an interruption."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """The amount of work, for --dry-run.

        May read the inputs. Raises DataError for damaged ones.
        """

    def differs(self, begun: Mapping[str, Any]) -> str | None:
        """A further setting that a resume must not change; None if there is none.

        `begun` are all settings of the stage when it was begun.
        """
        return None

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the inputs by path."""
        return hash_inputs([path for path in self.sources if is_there(path)])

    @cached_property
    def determining(self) -> dict[str, Any]:
        """Settings and conditions that a resumed stage must share, as plain values."""
        return {**determining(self.settings, self.sections), **self.conditions}


def determining(settings: Settings, sections: Sequence[str]) -> dict[str, Any]:
    """The seed and the sections as plain values, without SPEED_ONLY settings."""
    chosen = {section: plain(getattr(settings, section)) for section in sections}
    values = {"seed": settings.seed, **without(chosen, SPEED_ONLY)}
    # The models of a judge and the like are policies, too.
    if "policy" in values:
        values["policy"] |= _of_endpoint(settings.policy)
    if "rollout" in values:
        for name, model in settings.rollout.further_models.items():
            section = without({"policy": plain(model)}, SPEED_ONLY)
            values["rollout"][name] = section["policy"] | _of_endpoint(model)
    return values


def _of_endpoint(policy: PolicySettings) -> dict[str, str]:
    """What a server's numbers mean; all else of it is a matter of speed."""
    return {"endpoint.logprobs": policy.endpoint.logprobs}


def template_condition(settings: Settings) -> dict[str, Any]:
    """The values for the chat template as a condition of a training, if there are any."""
    values = settings.policy.chat_template_kwargs
    return {"policy.chat_template_kwargs": values} if values else {}


def without(
    sections: Mapping[str, Any], left_out: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Plain sections of settings, each without its settings in `left_out`."""
    kept = {}
    for section, values in sections.items():
        names = left_out.get(section, ())
        if isinstance(values, dict):
            values = {name: values[name] for name in values if name not in names}
        kept[section] = values
    return kept


def first_difference(
    old: Any,
    new: Any,
    path: str = "",
) -> str | None:
    """The first value that differs between nested settings.

    A value that only one side has comes last.
    """
    if old == new:
        return None
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return f"{path} was {old!r}, now {new!r}"
    shared = sorted(old.keys() & new.keys())
    lonely = sorted(old.keys() ^ new.keys())
    for key in (*shared, *lonely):
        place = f"{path}.{key}" if path else key
        difference = first_difference(old.get(key), new.get(key), place)
        if difference:
            return difference
    return None


def plain(value: Any) -> Any:
    """A value as read back from a file: only mappings, lists and scalars."""
    return msgspec.json.decode(msgspec.json.encode(value))


def with_changes(settings: Settings, **sections: Mapping[str, Any]) -> Settings:
    """Settings with some values of some sections replaced."""
    changed = {
        name: msgspec.structs.replace(getattr(settings, name), **values)
        for name, values in sections.items()
    }
    return msgspec.structs.replace(settings, **changed)


def with_model(settings: Settings, model: str | None) -> Settings:
    """Settings that include the model in use, for the manifest."""
    # The name of a served model is already a setting.
    if settings.policy.kind == "openai":
        return settings
    return with_changes(settings, policy={"model": model})


def with_adapter(
    settings: Settings, section: str, model: str, *, strict: bool = False
) -> Settings:
    """Settings with the rank and alpha of the adapter that `section` continues, if any.

    `section` is sft or train. Raises UsageError where they ask for another shape; with
    `strict`, also where they leave it at the default.
    """
    from agentcli.policies.load import adapter_shape

    lora = getattr(settings, section).lora
    shape = adapter_shape(model)
    if shape is None:
        return settings
    for name, value in shape.items():
        asked = getattr(lora, name)
        is_default = asked == getattr(LoraSettings(), name)
        # What was left at the default was not asked for, so the adapter decides.
        if asked != value and (strict or not is_default):
            raise UsageError(
                f"{section}.lora.{name}: {asked}, but {model} is an adapter of {name} "
                f"{value}; set {section}.lora.{name}={value}, or start from a full "
                "checkpoint"
            )
    return with_changes(
        settings, **{section: {"lora": msgspec.structs.replace(lora, **shape)}}
    )


def model_sources(model: str | None) -> list[Path]:
    """The model's directory; empty for a hub id or a policy without a model."""
    if model is None or not Path(model).is_dir():
        return []
    return [Path(model)]


def check_model(
    model: str | None,
    setting: str = "policy.model",
    option: str = "--model",
    maker: str | None = None,
) -> None:
    """Refuses a model that cannot be loaded, judging by its files' headers.

    Messages use `setting` for the model, `option` for how to name another one, and
    `maker` for the command that makes one, where one is named. Raises MissingError if a
    path does not exist, UsageError for a file, DataError for a directory with
    incomplete weights.
    """
    if model is None:
        return
    if Path(model).is_file():
        raise UsageError(f"{setting}: {model} is a file; name its directory")
    # A hub id has at most one slash; runs and links are not on the hub.
    begins_as_path = model.startswith((".", "/", "~", "runs/"))
    is_path = begins_as_path or model.count("/") > 1 or os.path.islink(model)
    if is_path and not Path(model).is_dir():
        way = f", or make one with: {maker}" if maker else ""
        raise MissingError(
            f"{setting}: no directory {model}; name another with {option}{way}"
        )
    from agentcli.policies.load import check_weights

    check_weights(model)


def check_critic(critic: str | None, setting: str, option: str) -> None:
    """Refuses a critic that cannot be loaded; raises what `check_model` raises."""
    check_model(critic, setting, option, "agentcli train --set train.objective=ppo")
