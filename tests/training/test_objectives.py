"""Objectives by name, and one of another package that trains through the stage."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from agentcli.records.section import Section
from agentcli.records.settings import Settings
from agentcli.records.training_settings import TrainSettings
from agentcli.stages.session import Invocation
from agentcli.stages.train import checked_objective, plan
from agentcli.training import objectives
from agentcli.training.metrics import TrainMetrics
from agentcli.training.objectives import Objective, PolicyGradient, make_objective, objective_names, options_of
from refusal import refused
from staged import train


class CriticSettings(Section, kw_only=True):
    """What only the objective of this test has."""

    critic_rate: float = 0.5


class Halved(Objective):
    """The policy gradient at a share of its learning rate."""

    name = "halved"
    options = CriticSettings
    metrics = TrainMetrics
    seen: ClassVar[list[Section]] = []

    def train(self, job: Any, trees: Path, credit: Path | None) -> dict[str, Any]:
        self.seen.append(options_of(job.settings))
        return {**PolicyGradient().train(job, trees, credit), "objective": self.name}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("another_package")
    module.Halved = Halved  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "another_package", module)
    monkeypatch.setitem(objectives.OBJECTIVES, "halved", "another_package:Halved")


def test_names() -> None:
    assert objective_names() == ["dpo", "offline-ppo", "policy-gradient", "ppo", "process-reward"]
    assert all(make_objective(name).name == name for name in objective_names())


def test_an_unknown_objective_names_the_nearest() -> None:
    refused(lambda: make_objective("dop"), names=("train.objective", "dop"), remedy="dpo")


def test_what_dpo_does_not_read_are_settings() -> None:
    assert set(make_objective("dpo").unread) <= set(TrainSettings.__struct_fields__)


@pytest.mark.usefixtures("installed")
def test_options_are_the_objectives() -> None:
    assert options_of(TrainSettings(objective="halved")) == CriticSettings()
    assert options_of(TrainSettings(objective="halved", options={"critic_rate": 0.1})) == CriticSettings(
        critic_rate=0.1
    )
    refused(
        lambda: options_of(TrainSettings(objective="halved", options={"critic_rat": 0.1})),
        names=("critic_rate", "train.options.critic_rat"),
    )
    refused(
        lambda: options_of(TrainSettings(objective="halved", options={"critic_rate": "fast"})),
        names="train.options.critic_rate",
    )
    refused(lambda: options_of(TrainSettings(options={"critic_rate": 0.1})), names="train.options.critic_rate")


@pytest.mark.usefixtures("installed")
def test_another_packages_objective_trains_through_the_stage(rollout: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "credit").mkdir(parents=True)
    (run / "trees.jsonl").write_bytes(rollout.trees.read_bytes())
    (run / "credit" / "test.jsonl").write_bytes(rollout.credit.read_bytes())
    update = TrainSettings(objective="halved", options={"critic_rate": 0.25}, aggregate="step", beta=0.0)
    record = train(Settings(train=update), run, None, Invocation([]), model=str(rollout.model))
    assert record.statistics["objective"] == "halved"
    assert Halved.seen == [CriticSettings(critic_rate=0.25)]
    assert (run / "checkpoint" / "model.safetensors").is_file()
    wrong = TrainSettings(objective="halved", options={"speed": 1})
    refused(
        lambda: plan(Settings(train=wrong), run, tmp_path / "other", model=str(rollout.model)),
        names="train.options.speed",
    )


@pytest.mark.parametrize("name", ["dpo", "offline-ppo", "ppo", "process-reward"])
def test_an_objective_that_cannot_pack_refuses_to(name: str) -> None:
    packing = Settings(train=TrainSettings(objective=name, packing="on"))
    refused(lambda: checked_objective(packing), names=("train.packing", name), remedy="train.packing=auto")
    checked_objective(Settings(train=TrainSettings(objective=name)))
