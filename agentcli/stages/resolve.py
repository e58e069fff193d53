"""Determines the run directory and the model of a command."""

import os
from itertools import count
from pathlib import Path
from typing import Any

from agentcli.environments.registry import make_world
from agentcli.errors import DataError, UsageError, word_of
from agentcli.policies.registry import LOADING
from agentcli.records.regular import is_there
from agentcli.records.runs import TRAINED_BY, RunDirectory, loop_folders
from agentcli.records.settings import EnvironmentSettings, Settings
from agentcli.records.types import IMPORTED
from agentcli.requirements import lacking
from agentcli.stages.layers import list_presets
from agentcli.stages.plan import without

MAKE_A_MODEL = "agentcli demos --preset quickstart-ezpoints && agentcli sft"
"""The commands that make a small policy in minutes, in a world that needs no extra."""
RUNS = Path("runs")
SETTING_STAGES = ("train", "rollout", "sft", "demos", "import", "run")
"""Stages whose recorded settings later commands inherit, in order of preference.

Those of an evaluation are inherited where there is no other stage.
"""

NOT_INHERITED = {
    "environment": ("split", "tasks", "where", "panel", "shard"),
    "policy": ("kind", "model", "adapter"),
    "rollout": ("iteration", "budget"),
    "train": ("credit",),
    "evaluation": ("split", "tasks", "label", "budget"),
    "cluster": ("on", "workers", "gpus"),
}
"""Settings that belong to one command rather than to the run, and are not inherited."""
OF_WORLD_AND_POLICY = ("environment", "prompt", "policy", "threads")
"""What a new run takes from runs/latest, without its exploration and training."""


def find_run(path: Path | None, maker: str = "rollout") -> Path:
    """The run directory given, or runs/ and its name, or the newest (runs/latest).

    `maker` is the command that makes such a run. Raises DataError if it does not exist,
    and UsageError if none was given and there is no newest one.
    """
    if path == Path("latest") and not path.is_dir():
        path = None
    if path is not None:
        if path.is_file():
            raise DataError(
                f"{path}: is a file; name the run directory that it lies in: "
                f"{path.parent}"
            )
        for place in (path, RUNS / path):
            if place.is_dir():
                return place
        raise DataError(
            f"{path}: no such run directory; `agentcli {maker} -o {word_of(path)}` "
            "makes one"
        )
    latest = RUNS / "latest"
    if not latest.is_dir():
        chain = f"{MAKE_A_MODEL} && agentcli rollout"
        if maker == "demos":
            chain = "agentcli demos --preset quickstart-ezpoints"
        raise UsageError(
            "no RUN given and no runs/latest here; name a run directory, or make one "
            f"with: {chain}"
        )
    # runs/latest will soon be another run, so messages use this run's own name.
    return RUNS / latest.resolve().name


def new_run(out: Path | None, stage: str) -> Path:
    """The folder that a stage writes to: `out`, or the first unused runs/<stage>-NNN.

    Raises UsageError as `usable` does.
    """
    if out is None:
        folders = (RUNS / f"{stage}-{number:03d}" for number in count(1))
        out = next(folder for folder in folders if not is_there(folder))
    return usable(out)


def usable(out: Path) -> Path:
    """Returns `out` if it is a directory or can be created as one.

    Raises UsageError naming what is in the way, and for a name that a terminal would
    not show as it is.
    """
    refuse_hidden(out)
    for place in (out, *out.parents):
        if place.is_dir():
            break
        if os.path.lexists(place):
            fault = "leads nowhere" if place.is_symlink() else "is a file"
            raise UsageError(
                f"{place} {fault}, so that nothing can be written to {out}; write "
                "elsewhere with -o DIR"
            )
    return out


def refuse_hidden(out: Path) -> None:
    """Raises UsageError for the name of an output that a terminal would not show."""
    if not str(out).isprintable():
        raise UsageError(
            f"-o {str(out)!a}: holds a character that a terminal does not show; choose "
            "another name"
        )


def find_model(
    settings: Settings,
    run: Path | None,
    *,
    updated: bool = True,
) -> str | None:
    """The model of a command.

    It is the one in the settings (--model or the preset's), else RUN/checkpoint, else
    the one in RUN's manifest. Without `updated`, it is the model that RUN was sampled
    from, never RUN/checkpoint. None for policies without a model; for an endpoint the
    served name, if one was given.

    Raises UsageError saying how to make one, DataError for a manifest without a valid
    model and for a RUN whose trained weights are not there, and what `make_world`
    raises.
    """
    model = settings.policy.model
    if settings.policy.kind == "openai":
        return model
    if settings.policy.kind not in LOADING:
        return None
    if model is None and run is not None:
        directory = RunDirectory(run)
        if updated:
            _refuse_without_weights(directory)
        if updated and is_there(directory.checkpoint):
            return str(directory.checkpoint)
        model = _recorded_model(directory)
    if model is not None:
        return model
    where = f" in {run}" if run else ""
    way = way_to_a_model(settings.environment)
    raise UsageError(f"no model{where}; name one with --model DIR|ID, or {way}")


def _refuse_without_weights(run: RunDirectory) -> None:
    """Raises DataError where a training's model is meant and not there.

    The next best would be the model that it began with.
    """
    remedy = "or name a model with --model"
    # A training of a critic alone writes no checkpoint.
    there = is_there(run.checkpoint) or is_there(run.critic)
    of_a_loop = run.path in loop_folders(run.path.parent)
    for stage in TRAINED_BY:
        if stage in run.unfinished:
            raise DataError(
                f"{run.path}: {stage} has not ended, and the model that it makes is "
                f"meant; type its command with --resume, {remedy}"
            )
        if of_a_loop and not there and run.finished(stage):
            raise DataError(
                f"{run.path}: its weights were deleted, as the loop was told by "
                f"run.keep; name a later iteration, {remedy}"
            )


def way_to_a_model(environment: EnvironmentSettings) -> str:
    """How to make a policy for the world, or for another if it is not installed."""
    world = environment.name
    if world == IMPORTED:
        return "take the one that the trees were sampled from"
    extra = make_world(environment).card.extra
    remedy = lacking(extra) if extra else None
    if remedy is not None:
        return (
            f"make one: {world} is not installed (`{remedy}`), a world that needs no "
            f"extra is played with: {MAKE_A_MODEL}"
        )
    presets = [path.stem for path in list_presets()]
    preset = "quickstart-ezpoints"
    if world == EnvironmentSettings().name:
        preset = "quickstart"
    elif f"quickstart-{world}" in presets:
        preset = f"quickstart-{world}"
    return f"make one with: agentcli demos --preset {preset} && agentcli sft"


def _recorded_model(run: RunDirectory) -> str | None:
    """The model in a manifest, or its adapter, which names its own base.

    Raises DataError for an entry that is not a model.
    """
    stages = run.load_manifest().stages
    # What the trees were sampled from is preferred to the model of any other stage.
    for name in ("rollout", *stages):
        if name not in stages:
            continue
        policy = stages[name].settings.get("policy", {})
        model: Any = False
        if isinstance(policy, dict):
            model = policy.get("adapter") or policy.get("model")
        if isinstance(model, str):
            return model
        if model is not None:
            raise DataError(
                f"{run.manifest_path}: policy: names no model; name one with --model "
                "DIR|ID"
            )
    return None


def inherited(run: Path) -> dict[str, Any] | None:
    """The settings that later commands inherit from a run's manifest.

    Settings that belong to one command only are left out. None if there are no
    settings.
    """
    stages = RunDirectory(run).load_manifest().stages
    evaluations = (name for name in stages if name.startswith("evaluation/"))
    for stage in (*SETTING_STAGES, *evaluations):
        if stage in stages:
            return without(stages[stage].settings, NOT_INHERITED)
    return None


def inherited_by_new_run(run: Path) -> dict[str, Any] | None:
    """The part of `inherited` that a new run takes: the world and the policy.

    Otherwise a method option that was typed once would apply to all later runs.
    """
    settings = inherited(run)
    if settings is None:
        return None
    return {name: settings[name] for name in OF_WORLD_AND_POLICY if name in settings}
