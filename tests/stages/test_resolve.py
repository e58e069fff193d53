"""Which run and which model a command means."""

from pathlib import Path

import msgspec
import pytest
from agentcli.records.files import write_json
from agentcli.records.runs import RunDirectory, link_latest
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.types import Manifest, StageRecord
from agentcli.stages.plan import check_model
from agentcli.stages.resolve import find_model, find_run, inherited, new_run
from refusal import refused

pytestmark = pytest.mark.usefixtures("empty_folder")


def record(**policy: str) -> StageRecord:
    settings = msgspec.to_builtins(Settings(seed=7, policy=PolicySettings(**policy)))
    return StageRecord(
        command=[], settings=settings, versions={}, git_commit=None, seed=7, started="", finished="", statistics={}
    )


def make_run(name: str, **stages: StageRecord) -> Path:
    run = Path("runs") / name
    run.mkdir(parents=True)
    write_json(run / "manifest.json", Manifest(stages=stages))
    return run


def test_a_run_is_the_one_named_or_the_newest() -> None:
    refused(lambda: find_run(None), names="runs/latest")
    link_latest(make_run("a"))
    link_latest(make_run("b"))
    assert find_run(None) == Path("runs/b")
    assert find_run(Path("latest")) == Path("runs/b"), "the link soon leads elsewhere"
    assert find_run(Path("a")) == find_run(Path("runs/a")) == Path("runs/a")
    refused(lambda: find_run(Path("runs/c")), 3, names="runs/c")
    refused(lambda: find_run(Path("runs/a b")), 3, names="runs/a b", remedy="-o 'runs/a b'")


def test_new_runs_are_numbered() -> None:
    assert new_run(None, "eval") == Path("runs/eval-001")
    make_run("eval-001")
    assert new_run(None, "eval") == Path("runs/eval-002")
    assert new_run(Path("x"), "eval") == Path("x")


def test_weights_that_a_loop_has_deleted_are_not_replaced_by_those_it_began_with() -> None:
    run = make_run("loop/iteration_000", train=record(model="start"), rollout=record(model="start"))
    refused(
        lambda: find_model(Settings(), run), 3, names="runs/loop/iteration_000: its", remedy=["run.keep", "--model"]
    )
    assert find_model(Settings(), run, updated=False) == "start"
    RunDirectory(run).critic.mkdir()
    assert find_model(Settings(), run) == "start", "a critic alone was trained"


def test_the_model_is_the_one_named_then_the_checkpoint_then_the_one_sampled_from() -> None:
    run = make_run("x", train=record(model="later"), rollout=record(model="start"))
    assert find_model(Settings(policy=PolicySettings(model="named")), run) == "named"
    assert find_model(Settings(), run) == "start"
    RunDirectory(run).checkpoint.mkdir()
    assert find_model(Settings(), run) == "runs/x/checkpoint"
    assert find_model(Settings(), run, updated=False) == "start"
    assert find_model(Settings(policy=PolicySettings(kind="expert")), run) is None
    refused(lambda: find_model(Settings(), None), remedy="--model")


@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_run_whose_training_has_not_ended_has_no_model(stage: str) -> None:
    """--overwrite removes the old one first; the one it began with is not the run's."""
    run = make_run("x", rollout=record(model="start"))
    write_json(RunDirectory(run).begun(stage), {})
    refused(lambda: find_model(Settings(), run), 3, names=f"runs/x: {stage}", remedy=["--resume", "--model"])
    assert find_model(Settings(), run, updated=False) == "start"
    RunDirectory(run).record_stage(stage, record(model="start"))
    assert find_model(Settings(), run) == "start"


def test_a_directory_that_is_not_there_names_no_preset() -> None:
    """It would be of another world than the one that was typed."""
    assert "--preset" not in refused(lambda: check_model("./none"), 4, names="./none", remedy="--model")


def test_a_rollout_with_an_adapter_was_sampled_from_the_adapter() -> None:
    run = make_run("x", rollout=record(model="base", adapter="adapter"))
    assert find_model(Settings(), run) == "adapter"


def test_what_belongs_to_one_command_is_not_inherited() -> None:
    found = inherited(make_run("x", rollout=record(model="start")))
    assert found is not None
    assert found["seed"] == 7
    assert "model" not in found["policy"]
    assert "tasks" not in found["environment"]
    assert inherited(make_run("empty")) is None


def test_a_run_of_evaluations_alone_has_their_settings() -> None:
    evaluation = record()
    evaluation.settings["environment"] |= {"name": "tunnel", "max_steps": 12}
    run = make_run("x", **{"evaluation/test": evaluation})
    settings = inherited(run)
    assert settings is not None
    assert (settings["environment"]["name"], settings["environment"]["max_steps"]) == ("tunnel", 12)
    assert (
        inherited(make_run("y", train=record(), **{"evaluation/test": evaluation}))["environment"]["name"] != "tunnel"
    )
