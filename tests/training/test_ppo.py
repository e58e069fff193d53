"""The objective ppo: its policy's side is the policy gradient's, its critic learns the returns, and a stop changes nothing."""

import math

import msgspec
import numpy as np
import pytest
from agentcli.credit.ppo import PpoSettings, assign
from agentcli.prompts.protocol import Message
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import Outcome
from agentcli.training.actor_critic import RETURN, VALUE
from agentcli.training.metrics import PpoMetrics
from agentcli.training.ppo import whitened
from agentcli.training.steps import Row
from refusal import refused
from safetensors.torch import load_file
from stopping import Stopped, left, stop_after
from tiny_rollout import write
from valued import BETTER, STATES, WORSE, Taken, chance, credit_of, trained, trees_of, value

STATE = STATES[0]
TAKEN = [Taken(STATE, BETTER, 1.0), Taken(STATE, WORSE, 0.0), Taken(STATE, WORSE, 0.0), Taken(STATE, BETTER, 1.0)] * 2
SETTINGS = {
    "objective": "ppo",
    "aggregate": "step",
    "learning_rate": 1e-3,
    "beta": 0.0,
    "rows_per_update": 8,
    "rows_per_microbatch": 8,
    "recompute_logprobs": True,
    "options": {"critic_learning_rate": 3e-2},
}


@pytest.fixture
def problem(rollout, tmp_path):
    """problem(name, ...) -> statistics and metrics lines of a training on TAKEN, credited by the values of `critic`."""

    def call(name, model=rollout.model, critic=None, credit=None, **given):
        old = value(critic, STATE) if critic else 0.0
        trees = trees_of(TAKEN, rollout.tokenizer, old)
        for tree, taken in zip(trees, TAKEN, strict=True):
            tree.steps[0].outcome = Outcome.SUCCESS if taken.reward else Outcome.FAILURE
        credits = credit or [assign(tree, PpoSettings()) for tree in trees]
        files = write(tmp_path / f"{name}-trees.jsonl", trees), write(tmp_path / f"{name}-credit.jsonl", credits)
        options = {**SETTINGS["options"], **given.pop("options", {})}
        settings = {**SETTINGS, **given, "options": options}
        statistics = trained(tmp_path / name, *files, model, critic, **settings)
        return statistics, list(read_records(tmp_path / name / "metrics.jsonl", PpoMetrics))

    return call


@pytest.mark.slow
def test_on_one_state_the_critic_finds_the_mean_and_the_policy_the_better_action(problem, tmp_path, rollout):
    """Credit ppo from the critic's own values, round after round, as `run` does it."""
    model, critic, carried = rollout.model, None, None
    chances, values = [chance(model, STATE, BETTER)], [0.0]
    for number in range(6):
        problem(str(number), model, critic, optimizer_in=carried, epochs=4)
        folder = tmp_path / str(number)
        model, critic, carried = folder / "checkpoint", folder / "critic", folder / "optimizer.safetensors"
        chances.append(chance(model, STATE, BETTER))
        values.append(value(critic, STATE))
    assert chances == sorted(chances)
    assert chances[-1] > 1.5 * chances[0]
    assert values[-1] == pytest.approx(0.5, abs=0.05)


def test_advantages_that_are_all_zero_move_the_critic_alone(problem, tmp_path, rollout):
    statistics, lines = problem("zero", credit=credit_of([one._replace(reward=0.5) for one in TAKEN], 0.5))
    before = load_file(rollout.model / "model.safetensors")
    after = load_file(tmp_path / "zero" / "checkpoint" / "model.safetensors")
    assert all((before[name] - after[name]).abs().max() == 0 for name in after)
    assert statistics["rows_skipped"] == 0
    assert lines[0].value_loss == pytest.approx(0.25)
    assert lines[0].critic_grad_norm > 0 == lines[0].grad_norm
    assert value(tmp_path / "zero" / "critic", STATE) > 0


def test_policy_and_critic_are_clipped_apart(problem, tmp_path):
    """A value loss a thousand times as large leaves the policy's update as it is."""
    small = credit_of([one._replace(reward=one.reward) for one in TAKEN])
    large = credit_of(TAKEN)
    for one in large:
        one.steps[0].parts["return"] *= 1e3
    for name, credit in (("small", small), ("large", large)):
        problem(name, credit=credit, max_grad_norm=0.01)
    weights = [load_file(tmp_path / name / "checkpoint" / "model.safetensors") for name in ("small", "large")]
    assert all((weights[0][name] - weights[1][name]).abs().max() == 0 for name in weights[0])


def test_whitened_advantages():
    advantages = np.random.default_rng(0).normal(3, 7, size=30)
    rows = [Row(str(number), Message(("",)), [1], [0.0], float(one), 1.0, 1.0) for number, one in enumerate(advantages)]
    white = [row.advantage for row in whitened(rows)]
    assert white == pytest.approx((advantages - advantages.mean()) / advantages.std())
    equal = [row.advantage for row in whitened([rows[0]] * 3)]
    assert equal == pytest.approx([0.0] * 3)


def test_a_value_is_held_near_the_rollouts(problem, tmp_path):
    """Old values are 0: a critic that is clipped at 0.1 stops there, a free one goes on to 0.5."""
    problem("held", epochs=20, learning_rate=1e-9, options={"value_clip": 0.1, "critic_learning_rate": 3e-3})
    problem("free", epochs=20, learning_rate=1e-9, options={"critic_learning_rate": 3e-3})
    assert 0.1 <= value(tmp_path / "held" / "critic", STATE) < value(tmp_path / "free" / "critic", STATE)


SHAPES = [
    pytest.param(LoraSettings(), id="full", marks=pytest.mark.slow),
    pytest.param(LoraSettings(rank=4, alpha=8, dropout=0.3), id="lora"),
]


@pytest.mark.slow
@pytest.mark.parametrize("lora", SHAPES)
def test_a_stopped_training_ends_with_the_same_bits(problem, tmp_path, lora):
    given = {"rows_per_update": 3, "rows_per_microbatch": 2, "epochs": 2, "save_every_updates": 2, "lora": lora}
    statistics, _ = problem("whole", **given)
    with pytest.raises(Stopped):
        problem("parts", progress=stop_after(5), **given)
    assert problem("parts", **given)[0] == statistics
    assert left(tmp_path / "parts") == left(tmp_path / "whole")


def test_credit_without_returns_is_refused(problem):
    bare = credit_of(TAKEN)
    for one in bare:
        one.steps[0] = msgspec.structs.replace(one.steps[0], parts={VALUE: 0.0})
    refused(lambda: problem("bare", credit=bare), 3, ("bare-credit.jsonl", "return"), "--method ppo")
    for one in bare:
        one.steps[0] = msgspec.structs.replace(one.steps[0], parts={RETURN: 1.0})
    clipped = {"value_clip": 0.1}
    refused(lambda: problem("new", credit=bare, options=clipped), 3, ("new-credit.jsonl", "value"), "--method ppo")


def test_the_figures_are_finite_and_seconds_come_last(problem):
    _, lines = problem("figures")
    figures = msgspec.structs.asdict(lines[0])
    assert all(math.isfinite(figure) for figure in figures.values())
    assert list(figures)[-1] == "seconds"
