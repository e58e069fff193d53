"""rollout refuses what would end its first tree before it looks for a model; a dry run counts what the method costs at most."""

import json
from pathlib import Path

import pytest
from command_line import agentcli, succeeded

ROLLOUT = ("rollout", "--env", "toy_world:ToyWorld", "--tasks", "3", "--max-steps", "5", "--leaves", "4")

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for good", "dry"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "spark", "--roots", "9"), "rollout.roots is 9, more than rollout.leaves (4); lower --roots"),
        (("--method", "treerpo", "--roots", "5"), "rollout.roots is 5, more than rollout.leaves (4); lower --roots"),
        (("--method", "spark", "--branch", "fixed:2"), "rollout.branch is 'fixed:2'; use explore, or fixed:P"),
        (("--method", "karl"), "no exploration method 'karl'; did you mean carl?"),
        (("--budget", "tokens"), "rollout.budget: 'tokens'; write tokens=N"),
    ],
)
def test_it_is_refused_before_the_model_is_looked_for(words: tuple[str, ...], said: str, dry: tuple[str, ...]) -> None:
    answer = agentcli(*ROLLOUT, *words, *dry, "--model", "./nowhere", "-q")
    assert (answer.code, answer.stdout) == (2, "")
    assert said in answer.stderr
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for good", "dry"])
def test_a_loop_is_refused_before_too(dry: tuple[str, ...]) -> None:
    sets = ("--set", "rollout.method=spark", "--set", "rollout.roots=9")
    answer = agentcli("run", "--preset", "quickstart", *sets, *dry, "--model", "./nowhere", "-q")
    assert (answer.code, answer.stdout) == (2, "")
    for part in ("rollout.roots is 9, ", "rollout.leaves (8)", "lower --roots"):
        assert part in answer.stderr
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (("--method", "chain"), 3 * 4 * 5),
        (("--method", "carl", "--roots", "4"), 3 * 4 * 5),
        (("--method", "dpepo", "--copies", "3"), 3 * 4 * 5 * 3),
    ],
    ids=["chain", "carl", "dpepo"],
)
def test_a_dry_run_counts_the_steps_of_every_copy(words: tuple[str, ...], steps: int) -> None:
    answer = succeeded(*ROLLOUT, *words, "--policy", "random", "--dry-run", "--json")
    assert json.loads(answer.stdout)["counts"] == {"tasks": 3, "leaves_at_most": 12, "steps_at_most": steps}


def test_a_resumed_rollout_is_of_the_run_that_it_goes_on_with() -> None:
    """Whatever has been written since, and is runs/latest now."""
    free = ("--policy", "random", "-q")
    assert agentcli(*ROLLOUT, "-o", "runs/a", *free).code == 0
    assert agentcli("rollout", "--leaves", "2", "--tasks", "4", "-o", "runs/b", *free).code == 0
    assert agentcli(*ROLLOUT, "--max-steps", "7", "--seed", "3", "-o", "runs/c", *free).code == 0
    trees = Path("runs/b/trees.jsonl")
    whole = trees.read_bytes()
    trees.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    for words in (("--leaves", "2", "--tasks", "4", *free), ("-q",)):
        answer = succeeded("rollout", *words, "-o", "runs/b", "--resume")
        assert trees.read_bytes() == whole
    answer = agentcli("rollout", "--max-steps", "7", "-o", "runs/b", "--resume")
    assert answer.code == 2
    assert "max_steps was 5, now 7" in answer.stderr
    assert agentcli("rollout", "--resume", "-o", "runs/d", "--tasks", "4", *free).code == 0
    assert len(Path("runs/d/trees.jsonl").read_bytes().splitlines()) == 4
