"""Which run directory a command means, and which model."""

import os
from pathlib import Path
from typing import Any

from agentcli.errors import DataError, UsageError
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings

RUNS = Path("runs")
SETTING_STAGES = ("train", "rollout", "sft", "demos", "run")
"""Stages whose recorded settings later commands inherit, in this order of preference.
"""

NOT_INHERITED = {
    "environment": ("split", "tasks", "where", "panel", "shard"),
    "policy": ("kind", "model", "adapter"),
    "rollout": ("iteration", "budget"),
    "train": ("credit",),
    "evaluation": ("split", "tasks", "label", "budget"),
}
"""What belongs to one command and not to the run: never inherited."""


def find_run(path: Path | None) -> Path:
    """The run directory given, or the newest (runs/latest). Raises DataError when it
    does not exist and UsageError when none was given and there is no newest one.
    """
    if path is not None:
        if path.is_file():
            raise DataError(
                f"{path}: is a file; name the run directory that it lies in: "
                f"{path.parent}"
            )
        if not path.is_dir():
            raise DataError(
                f"{path}: no such run directory; `agentcli rollout -o {path}` makes one"
            )
        return path
    latest = RUNS / "latest"
    if not latest.is_dir():
        raise UsageError(
            "no RUN given and no runs/latest here; name a run directory, or make one "
            "with: agentcli rollout"
        )
    return RUNS / latest.resolve().name


def new_run(out: Path | None, stage: str) -> Path:
    """Where a stage writes: `out`, or the first free runs/<stage>-NNN. Raises
    UsageError as `usable` does.
    """
    if out is not None:
        return usable(out)
    number = 1
    while (RUNS / f"{stage}-{number:03d}").exists():
        number += 1
    return usable(RUNS / f"{stage}-{number:03d}")


def usable(out: Path) -> Path:
    """`out`, when it is a directory or one can be made there. Raises UsageError naming
    what is in its way.
    """
    for place in (out, *out.parents):
        if place.is_dir():
            break
        if os.path.lexists(place):
            what = "leads nowhere" if place.is_symlink() else "is a file"
            raise UsageError(
                f"{place} {what}, so that nothing can be written to {out}; write "
                "elsewhere with -o DIR"
            )
    return out


def find_model(
    settings: Settings, run: Path | None, *, updated: bool = True
) -> str | None:
    """The model of a command: settings (--model or the preset's), else RUN/checkpoint
    (not when `updated` is False: the model that RUN was sampled from is meant), else
    the one that RUN's manifest names (an adapter names its own base).

    None for policies without a model; for an endpoint the served name, if one was
    given. Raises UsageError saying how to make one, DataError for a manifest that names
    none.
    """
    if settings.policy.kind != "transformers":
        return settings.policy.model if settings.policy.kind == "openai" else None
    if settings.policy.model is not None:
        return settings.policy.model
    if run is not None:
        directory = RunDirectory(run)
        if updated and directory.checkpoint.is_dir():
            return str(directory.checkpoint)
        stages = directory.load_manifest().stages
        for stage in [stages[name] for name in ("rollout", *stages) if name in stages]:
            policy = stage.settings.get("policy", {})
            model = (
                policy.get("adapter") or policy.get("model")
                if isinstance(policy, dict)
                else False
            )
            if isinstance(model, str):
                return model
            if model is not None:
                raise DataError(
                    f"{directory.manifest_path}: policy: names no model; name one "
                    "with --model DIR|ID"
                )
    where = f" in {run}" if run else ""
    raise UsageError(
        f"no model{where}; name one with --model DIR|ID, or make one with: agentcli "
        "demos && agentcli sft --model tiny"
    )


def inherited(run: Path) -> dict[str, Any] | None:
    """The settings recorded in a run's manifest, without what belongs to one command
    only; None where there are none.
    """
    stages = RunDirectory(run).load_manifest().stages
    for name in SETTING_STAGES:
        if name in stages:
            settings = dict(stages[name].settings)
            for section, names in NOT_INHERITED.items():
                if isinstance(settings.get(section), dict):
                    settings[section] = {
                        key: value
                        for key, value in settings[section].items()
                        if key not in names
                    }
            return settings
    return None
