"""The actor's loss of Rare-tool against a closed form in numpy, its gradient beyond the clip, and what a fitting critic leaves."""

import numpy as np
import pytest
import torch
from agentcli.training.offline_ppo import action_losses

GENERATOR = np.random.default_rng(0)
LOGPROBS, OLD = (GENERATOR.normal(-2, 0.3, size=50) for _ in range(2))
ADVANTAGES = GENERATOR.normal(size=50)


def losses(logprobs, old, advantages, clip=0.2, beta=0.1):
    return action_losses(*(torch.as_tensor(values) for values in (logprobs, old, advantages)), clip, beta)


def test_the_loss_is_the_papers():
    ratio = np.exp(LOGPROBS - OLD)
    surrogate = np.minimum(ratio * ADVANTAGES, np.clip(ratio, 0.8, 1.2) * ADVANTAGES)
    squared = (LOGPROBS - OLD) ** 2
    given = losses(LOGPROBS, OLD, ADVANTAGES)
    assert given.surrogate_B.numpy() == pytest.approx(surrogate)
    assert given.squared_B.numpy() == pytest.approx(squared)
    assert given.loss_B.numpy() == pytest.approx(0.1 * squared - surrogate)
    assert given.ratio_B.numpy() == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [
        (1.25, 1.0, 0.0),
        (1.15, 1.0, -1.15),
        (0.75, 1.0, -0.75),
        (0.75, -1.0, 0.0),
        (0.85, -1.0, 0.85),
        (1.25, -1.0, 1.25),
    ],
)
def test_the_gradient_ends_where_the_ratio_leaves_the_clip(ratio, advantage, slope):
    """d(-surrogate)/d(log pi) = -ratio A inside, 0 where the surrogate gains no more."""
    logprob = torch.tensor([np.log(ratio)], requires_grad=True)
    given = action_losses(logprob, torch.zeros(1), torch.tensor([advantage]), 0.2, 0.0)
    given.loss_B.sum().backward()
    assert logprob.grad.item() == pytest.approx(slope, abs=1e-6)
    assert given.clipped_B.item() == (slope == 0)


def test_without_an_advantage_there_is_nothing_to_follow():
    logprobs = torch.tensor(LOGPROBS, requires_grad=True)
    action_losses(logprobs, torch.tensor(OLD), torch.zeros(50), 0.2, 0.0).loss_B.sum().backward()
    assert logprobs.grad.abs().max() == 0


def test_a_response_that_was_thought_impossible_has_no_gradient_beyond_the_clip():
    """The ratio is of a whole response, so 0.3 nats a token are enough to overflow."""
    logprobs = torch.tensor([-1.0], requires_grad=True)
    found = action_losses(logprobs, torch.tensor([-200.0]), torch.tensor([1.0]), 0.2, 0.0)
    found.loss_B.sum().backward()
    assert found.loss_B.item() == pytest.approx(-1.2)
    assert logprobs.grad.item() == 0
