"""examples/trl_advantages.py in TRL's own GRPOTrainer: TRL's advantages for grpo, and a tiny run that learns with rewardflow."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TRL_EPSILON, OUR_EPSILON = 1e-4, 1e-6


@pytest.fixture(scope="module")
def corridor() -> Iterator[Any]:
    """The module trl_corridor, with the adapter beside it."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    sys.path.insert(0, str(EXAMPLES))
    import trl_corridor

    yield trl_corridor
    sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize(("scaled", "normalise"), [("none", "mean"), ("group", "std")])
def test_the_advantages_of_grpo_are_trl_s_own(corridor: Any, tmp_path: Path, scaled: str, normalise: str) -> None:
    """To 1e-6. TRL adds 1e-4 to a standard deviation and agentcli 1e-6, as verl does: that factor is taken out."""
    trainer = corridor.make(tmp_path, 1, credit="grpo", switches={"normalise": normalise}, scale_rewards=scaled)
    trainer.model.train()
    batch = trainer._generate_and_score_completions([{"prompt": "room0"} for _ in range(16)])
    theirs = torch.tensor(list(trainer._logs["advantages"]), dtype=torch.float64)
    rewards = trainer.rewards.double().view(-1, trainer.num_generations)
    spread = rewards.std(dim=1).repeat_interleave(trainer.num_generations)
    assert 0 < rewards.sum() < rewards.numel()
    if scaled == "group":
        theirs = theirs * (spread + TRL_EPSILON) / (spread + OUR_EPSILON)
    sampled = batch["completion_mask"] * batch["tool_mask"]
    assert batch["advantages"].shape == sampled.shape
    torch.testing.assert_close(batch["advantages"].double(), theirs[:, None] * sampled, atol=1e-6, rtol=0)


def test_a_run_learns_with_rewardflow(corridor: Any, tmp_path: Path) -> None:
    trainer = corridor.make(tmp_path, 18, credit="rewardflow")
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    assert len(rewards) == 18
    assert sum(rewards[:4]) / 4 < 0.5
    assert sum(rewards[-4:]) / 4 > 0.85


def test_the_steps_of_a_rollout_have_advantages_of_their_own(corridor: Any, tmp_path: Path) -> None:
    trainer = corridor.make(tmp_path, 1, credit="rewardflow")
    trainer.model.train()
    batch = trainer._generate_and_score_completions([{"prompt": "room0"} for _ in range(16)])
    sampled = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert not batch["advantages"][~sampled].any()
    differing = [row[mask].unique().numel() > 1 for row, mask in zip(batch["advantages"], sampled, strict=True)]
    assert any(differing)
