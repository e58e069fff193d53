"""Rollouts with a critic, and the loop that trains one: the trees otherwise the same, everything resumable."""

import shutil
from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Credit, Tree
from command_line import agentcli, succeeded, trees_of
from refusal import refused
from toy_policy import ROLLOUT, chained_on

pytestmark = pytest.mark.slow

TRAIN = "{learning_rate: 1.0e-3, rows_per_update: 16, beta: 0.0, save_every_updates: 1}"
PPO = ("--set", "credit.method=ppo", "--set", "train.objective=ppo")
LOOP = ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "--iterations", "2", *PPO, "-o", "loop", "-q")
CHAIN = [LOOP, (*ROLLOUT, "--critic", "loop/iteration_001/critic", "-o", "valued")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return chained_on(base, tmp_path_factory.mktemp("critic") / "made", TRAIN, CHAIN)


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what was made, which is the working directory."""
    shutil.copytree(made, tmp_path / "made", symlinks=True)
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def test_a_critic_adds_values_and_changes_nothing_else(folder: Path) -> None:
    valued, plain = trees_of(folder / "valued"), trees_of(folder / "plain")
    values = [step.value for tree in valued for step in tree.steps]
    assert None not in values
    assert len(set(values)) > 5
    for tree in valued:
        prompts: dict[str, float | None] = {}
        for step in tree.steps:
            assert prompts.setdefault(step.prompt, step.value) == step.value
            step.value = None
    assert valued == plain


def test_values_do_not_depend_on_who_shares_a_batch(folder: Path) -> None:
    words = ("--concurrency", "1", "--set", "policy.batch_rows=8", "--critic", "loop/iteration_001/critic")
    assert agentcli(*ROLLOUT, *words, "-o", "alone").code == 0
    assert (folder / "alone/trees.jsonl").read_bytes() == (folder / "valued/trees.jsonl").read_bytes()


def test_a_cut_rollout_with_a_critic_resumes_to_the_same_bytes(folder: Path) -> None:
    trees = folder / "valued/trees.jsonl"
    whole = trees.read_bytes()
    trees.write_bytes(whole[:4000])
    words = (*ROLLOUT, "--critic", "loop/iteration_001/critic", "-o", "valued", "--resume")
    assert agentcli(*words).code == 0
    assert trees.read_bytes() == whole
    refused(agentcli(*ROLLOUT, "-o", "valued", "--resume"), 2, "rollout.critic")


def test_the_manifest_names_the_critic_by_its_hash(folder: Path) -> None:
    record = RunDirectory(folder / "valued").finished("rollout")
    assert record is not None
    assert "loop/iteration_001/critic/model.safetensors" in record.inputs


def test_a_model_in_the_place_of_a_critic_says_zero_and_is_noted(folder: Path) -> None:
    done = succeeded(*(word for word in ROLLOUT if word != "-q"), "--critic", "sft/checkpoint", "-o", "new")
    assert "rollout.critic sft/checkpoint" in done.stderr
    assert {step.value for tree in trees_of(folder / "new") for step in tree.steps} == {0.0}


def test_the_loop_carries_its_critic(folder: Path) -> None:
    """Iteration 0 is appraised by a new head, iteration 1 by the critic that iteration 0 trained."""
    first, second = (folder / "loop" / f"iteration_00{number}" for number in (0, 1))
    assert {step.value for tree in trees_of(first) for step in tree.steps} == {0.0}
    assert len({step.value for tree in trees_of(second) for step in tree.steps}) > 3
    returns = [entry for one in read_records(second / "credit/ppo.jsonl", Credit) for entry in one.steps]
    values = {
        (tree.task.id, step.id): step.value
        for tree in trees_of(second)
        for step in tree.steps
        if step.value is not None
    }
    assert len(returns) == len(values)
    record = RunDirectory(second).finished("train")
    assert record is not None
    assert record.statistics["optimizer_carried"] is True
    assert any(path.endswith("iteration_000/critic/model.safetensors") for path in record.inputs)


def test_a_loop_that_lost_its_last_training_ends_with_the_same_bits(folder: Path) -> None:
    second = folder / "loop/iteration_001"
    files = ("checkpoint/model.safetensors", "critic/model.safetensors", "optimizer.safetensors")
    whole = [(second / name).read_bytes() for name in files]
    shutil.rmtree(second / "critic")
    shutil.rmtree(second / "checkpoint")
    assert agentcli(*LOOP, "--resume").code == 0
    assert [(second / name).read_bytes() for name in files] == whole


def test_the_stages_by_hand_leave_what_the_loop_leaves(folder: Path) -> None:
    """rollout --iteration 0 with the model as its critic, assign-credit, train."""
    run = ("-c", "toy.yaml")
    words = (*ROLLOUT, "--iteration", "0", "--critic", "sft/checkpoint", "-o", "hand")
    assert agentcli(*words).code == 0
    assert agentcli("assign-credit", "hand", "--method", "ppo", "-q").code == 0
    assert agentcli("train", "hand", *run, "--model", "sft/checkpoint", "--set", "train.objective=ppo", "-q").code == 0
    for name in ("trees.jsonl", "credit/ppo.jsonl", "checkpoint/model.safetensors", "critic/model.safetensors"):
        assert (folder / "hand" / name).read_bytes() == (folder / "loop/iteration_000" / name).read_bytes(), name


def test_evaluations_ask_no_critic(folder: Path) -> None:
    """The settings that they take over from a rollout name one."""
    assert agentcli("eval", "loop/iteration_001", "-q").code == 0
    (trees,) = (folder / "loop/iteration_001/evaluation/trees").glob("*.jsonl")
    assert {step.value for tree in read_records(trees, Tree) for step in tree.steps} == {None}


def test_refusals(folder: Path) -> None:
    refused(agentcli(*ROLLOUT, "--critic", "./nowhere", "-o", "x"), 4, ("rollout.critic", "./nowhere"), "--critic")
    refused(agentcli(*ROLLOUT, "--critic", "nowhere", "-o", "x"), 4, "rollout.critic", "--critic")
    loop = ("run", "--preset", "./toy.yaml", "--model", "sft/checkpoint", "--set", "credit.method=ppo", "-o", "y")
    refused(agentcli(*loop), 2, ("credit.method ppo", "policy-gradient"), ("train.objective=ppo", "rollout.critic"))
    train = ("train", "valued", "--model", "sft/checkpoint", "--set", "train.objective=ppo")
    options = ("--set", "train.options.critic=valued/critic")
    shutil.copytree("loop/iteration_000/critic", "valued/critic")
    assert agentcli("assign-credit", "valued", "--method", "ppo", "-q").code == 0
    refused(agentcli(*train, *options, "-q"), 2, "valued/critic", "-o DIR")
