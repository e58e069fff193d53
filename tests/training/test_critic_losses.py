"""The critic's loss and figures against closed forms in numpy."""

import numpy as np
import pytest
import torch
from agentcli.training.actor_critic import explained_variance, value_losses, value_sums

GENERATOR = np.random.default_rng(0)
VALUES, RETURNS, OLD = (GENERATOR.normal(size=40) for _ in range(3))


def tensors(*arrays):
    return [torch.tensor(array) for array in arrays]


def test_the_loss_is_the_squared_error():
    assert value_losses(*tensors(VALUES, RETURNS, OLD)).numpy() == pytest.approx((VALUES - RETURNS) ** 2)


def test_the_clipped_loss_is_the_larger_of_two():
    held = OLD + np.clip(VALUES - OLD, -0.3, 0.3)
    expected = np.maximum((VALUES - RETURNS) ** 2, (held - RETURNS) ** 2)
    assert value_losses(*tensors(VALUES, RETURNS, OLD), 0.3).numpy() == pytest.approx(expected)


def test_a_value_that_moved_far_enough_has_no_gradient():
    values = torch.tensor([0.4, 0.1], requires_grad=True)
    value_losses(values, torch.ones(2), torch.zeros(2), 0.2).sum().backward()
    assert values.grad.tolist() == pytest.approx([0.0, 2 * (0.1 - 1)])


def test_explained_variance_over_several_microbatches():
    sums = {}
    for part in (slice(0, 13), slice(13, 40)):
        values, returns = tensors(VALUES[part], RETURNS[part])
        for name, figure in value_sums(values, returns, torch.ones_like(values)).items():
            sums[name] = sums.get(name, 0.0) + float(figure)
    assert explained_variance(sums) == pytest.approx(1 - np.var(RETURNS - VALUES) / np.var(RETURNS))
    values, returns = tensors(VALUES, np.full(40, 0.3))
    equal = {name: float(figure) for name, figure in value_sums(values, returns, torch.ones(40)).items()}
    assert explained_variance(equal) == 0
