"""Probabilities of the sampled distribution softmax(logits / T): closed forms with two tokens, the sampler against the trainer at
T = 0.4, rows of several temperatures in one batch, and what is refused."""

import asyncio
import copy
import math

import numpy as np
import pytest
import torch
from agentcli.environments.protocol import Context
from agentcli.errors import DataError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.protocol import Request
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.files import derive_seed, read_records
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.forward import token_logprobs
from agentcli.training.loop.job import Job
from agentcli.training.metrics import TrainMetrics
from agentcli.training.policy_gradient.losses import token_entropies, token_losses
from agentcli.training.policy_gradient.training import PolicyTraining
from agentcli.training.steps import read_rows
from safetensors.torch import load_file
from tiny_rollout import SHAPES, at_temperatures, credit_of, logprobs_alone, moved_model, write
from transformers import AutoModelForCausalLM

COOL = 0.4
MIXED = [COOL, 1.0, 2.5]


# --- two tokens with logits (z, 0): p = 1 / (1 + exp(-z / T)) is the probability of the first ---


def chance(z, temperature):
    return 1 / (1 + math.exp(-z / temperature))


@pytest.mark.parametrize("temperature", [COOL, 1.0, 2.5])
@pytest.mark.parametrize("advantage", [1.5, -0.7])
def test_loss_gradient_entropy_and_k3_of_two_tokens(temperature, advantage):
    """On policy the gradient of -ratio A with respect to z is -A (1 - p) / T; k3 adds beta (1 - r)(1 - p) / T, r = ref / pi."""
    z, reference_z, beta = 0.6, -0.3, 0.5
    p, q = chance(z, temperature), chance(reference_z, temperature)
    logits = torch.tensor([[z, 0.0]], requires_grad=True)
    divisors = torch.tensor([temperature])
    logprobs = token_logprobs(logits, torch.tensor([0]), divisors)
    assert logprobs.item() == pytest.approx(math.log(p), abs=1e-6)
    reference = token_logprobs(torch.tensor([[reference_z, 0.0]]), torch.tensor([0]), divisors)
    batch = {"old_N": logprobs.detach(), "advantages_N": torch.tensor([advantage]), "reference_N": reference}
    losses = token_losses(logprobs, batch, TrainSettings(beta=beta))
    losses.loss_N.sum().backward()
    r = q / p
    assert losses.kl_N.item() == pytest.approx(r - 1 - math.log(r), abs=1e-6)
    assert losses.loss_N.item() == pytest.approx(-advantage + beta * (r - 1 - math.log(r)), abs=1e-6)
    slope = (1 - p) / temperature
    assert logits.grad[0, 0].item() == pytest.approx((-advantage + beta * (1 - r)) * slope, abs=1e-6)
    assert logits.grad.sum().item() == pytest.approx(0, abs=1e-6)
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert token_entropies(logits, divisors).item() == pytest.approx(entropy, abs=1e-6)


def test_a_trainer_at_one_would_take_another_gradient():
    """In two states sampled at 0.4 the gradients at 1 do not even have the proportion of the true ones, and a step that the sampler
    is sure of is clipped before anything was learned."""
    states, advantages = torch.tensor([[2.0, 0.0], [-0.5, 0.0]]), torch.tensor([1.0, 1.0])
    first = torch.tensor([0, 0])
    cool = torch.tensor([COOL, COOL])
    old = token_logprobs(states, first, cool)

    def gradient(divisors, stored):
        logits = states.clone().requires_grad_()
        batch = {"old_N": stored, "advantages_N": advantages}
        losses = token_losses(token_logprobs(logits, first, divisors), batch, TrainSettings(beta=0))
        losses.loss_N.sum().backward()
        return logits.grad[:, 0], losses

    true, losses = gradient(cool, old)
    assert losses.ratio_N.tolist() == [1.0, 1.0]
    expected = [-(1 - chance(z, COOL)) / COOL for z in (2.0, -0.5)]
    assert true.tolist() == pytest.approx(expected, abs=1e-6)
    untempered, _ = gradient(None, token_logprobs(states, first))
    assert untempered.tolist() == pytest.approx([-(1 - chance(z, 1.0)) for z in (2.0, -0.5)], abs=1e-6)
    assert torch.nn.functional.cosine_similarity(true, untempered, dim=0) < 0.99
    crossed, losses = gradient(None, old)
    assert losses.ratio_N.tolist() == pytest.approx([chance(z, 1.0) / chance(z, COOL) for z in (2.0, -0.5)], rel=1e-5)
    assert losses.clipped_N.tolist() == [False, True]
    assert crossed[1] == 0


def test_each_token_has_its_own_temperature_and_ones_change_no_bit():
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    targets, divisors = torch.arange(6), torch.tensor([COOL, 1.0, 2.5] * 2)
    together = token_logprobs(logits, targets, divisors)
    entropies = token_entropies(logits, divisors)
    for row in range(6):
        alone = torch.log_softmax(logits[row] / divisors[row], -1)
        assert together[row] == pytest.approx(alone[row].item(), abs=1e-6)
        assert entropies[row] == pytest.approx(-(alone.exp() * alone).sum().item(), abs=1e-6)
    assert torch.equal(token_logprobs(logits, targets, torch.ones(6)), token_logprobs(logits, targets))
    assert torch.equal(token_entropies(logits, torch.ones(6)), token_entropies(logits))


# --- the trainer on a rollout ---


@pytest.fixture
def policy(rollout):
    return AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)


@pytest.fixture
def train(rollout, tmp_path):
    """train(name, trees, **settings) -> (statistics, metrics lines, gradient of the first update)"""

    def call(name, trees, reference=None, **given):
        common = {"learning_rate": 1e-3, "beta": 0.0, "rows_per_update": 100, "rows_per_microbatch": 7}
        settings = TrainSettings(**{**common, "aggregate": "token", "max_grad_norm": 1e9, **given})
        metrics, state = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.safetensors"
        job = Job(
            str(rollout.model),
            tmp_path / name,
            settings,
            0,
            metrics,
            reference=reference,
            optimizer_out=state,
        )
        credit = write(tmp_path / f"{name}-credit.jsonl", [credit_of(tree, advantages(tree)) for tree in trees])
        statistics = PolicyTraining(job).train(write(tmp_path / f"{name}-trees.jsonl", trees), credit)
        moments = load_file(state)
        gradient = {key.split("/")[1]: value / 0.1 for key, value in moments.items() if key.startswith("exp_avg/")}
        return statistics, list(read_records(metrics, TrainMetrics)), gradient

    return call


def advantages(tree):
    return [math.sin(3 * step.id + len(step.prompt)) for step in tree.steps]


def sampled(rollout, policy, temperatures):
    """Trees whose responses a real sampler drew, at these temperatures in turn."""
    trees = copy.deepcopy(rollout.tree_list)
    sampler = TransformersPolicy(policy, rollout.tokenizer, PolicySettings())

    async def work():
        for tree in trees:
            moment = Moment(copies=(Context(task=tree.task, instruction="", observations=("",)),))
            for step in tree.steps:
                temperature = temperatures[step.id % len(temperatures)]
                request = Request(
                    message=Message((step.prompt,)),
                    moment=moment,
                    states=(),
                    form=Tagged(),
                    seed=derive_seed(tree.task.id, step.id),
                    episode_seed=0,
                    temperature=temperature,
                    max_tokens=12,
                )
                reply = await sampler.respond(request)
                step.token_ids, step.logprobs = list(reply.token_ids), list(reply.logprobs)
                step.temperature, step.logprob_temperature = reply.temperature, reply.logprob_temperature
        await sampler.close()

    asyncio.run(work())
    return trees


@pytest.mark.parametrize("temperatures", [[COOL], MIXED])
def test_sampler_and_trainer_agree_at_the_temperature_of_sampling(rollout, policy, train, temperatures):
    statistics, lines, _ = train("cool", sampled(rollout, policy, temperatures), rows_per_update=16)
    assert statistics["logprob_gap"]["max"] < 1e-5
    assert lines[0].gap_max < 1e-5
    assert lines[0].ratio_mean == pytest.approx(1, abs=1e-5)
    assert lines[1].gap_mean > 1e-4
    assert statistics["temperatures"] == sorted(temperatures)


@pytest.mark.parametrize("temperatures", [[COOL], MIXED])
def test_one_update_equals_a_second_implementation(rollout, policy, train, temperatures, tmp_path):
    """Loss, KL, entropy and the whole gradient of an update off policy, recomputed token by token; the gradient at 1 is another."""
    trees = at_temperatures(rollout.tree_list, temperatures, policy, rollout.tokenizer)
    for tree in trees:
        for step in tree.steps:
            step.logprobs = [value - 0.15 * (step.id % 2) for value in step.logprobs]
    moved = moved_model(rollout, tmp_path / "moved", 1)

    def objective(divide):
        losses, kls, entropies = [], [], []
        for tree in trees:
            for step, advantage in zip(tree.steps, advantages(tree), strict=True):
                divisor = step.temperature if divide else 1.0
                prompt = prompt_ids(rollout.tokenizer, step.prompt)
                span = slice(len(prompt) - 1, -1)
                ids = torch.tensor([prompt + step.token_ids])
                logprobs_V = torch.log_softmax(policy(ids).logits[0, span] / divisor, -1)
                taken = logprobs_V.gather(1, torch.tensor(step.token_ids)[:, None])[:, 0]
                reference = torch.tensor(logprobs_alone(moved, prompt, step.token_ids, divisor))
                ratio = torch.exp(taken - torch.tensor(step.logprobs))
                kl = torch.exp(reference - taken) - (reference - taken) - 1
                surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                losses.append(0.5 * kl - surrogate)
                kls.append(kl)
                entropies.append(-(logprobs_V.exp() * logprobs_V).sum(-1))
        return [torch.cat(values).mean() for values in (losses, kls, entropies)]

    loss, kl, entropy = objective(divide=True)
    loss.backward()
    gradient = {name: value.grad.clone() for name, value in policy.named_parameters()}
    policy.zero_grad()
    objective(divide=False)[0].backward()
    statistics, lines, ours = train("one", trees, beta=0.5, reference=str(tmp_path / "moved"))
    assert statistics["updates"] == 1
    assert lines[0].loss == pytest.approx(loss.item(), abs=2e-6)
    assert lines[0].kl == pytest.approx(kl.item(), rel=1e-4)
    assert kl.item() > 1e-3
    assert lines[0].entropy == pytest.approx(entropy.item(), rel=1e-5)
    for name, value in gradient.items():
        torch.testing.assert_close(ours[name], value, atol=2e-6, rtol=1e-4)
    flat = torch.cat([value.flatten() for value in gradient.values()])
    untempered = torch.cat([value.grad.flatten() for value in policy.parameters()])
    assert torch.nn.functional.cosine_similarity(flat, untempered, dim=0) < 0.99


def test_the_own_model_as_reference_is_no_divergence_at_any_temperature(rollout, policy, train):
    trees = at_temperatures(rollout.tree_list, MIXED, policy, rollout.tokenizer)
    _, lines, _ = train("own", trees, beta=0.5)
    assert lines[0].kl == pytest.approx(0, abs=1e-9)


def test_raw_log_probabilities_are_converted_by_computing_them_anew(rollout, policy, train):
    """The update is that of right log-probabilities; the gap is measured at the temperature of the stored ones, faults included."""
    right = at_temperatures(rollout.tree_list, MIXED, policy, rollout.tokenizer)
    raw = at_temperatures(rollout.tree_list, [1.0], policy, rollout.tokenizer)
    for tree, other in zip(raw, right, strict=True):
        for step, sampled_so in zip(tree.steps, other.steps, strict=True):
            step.temperature = sampled_so.temperature
    _, expected, gradient = train("right", right)
    statistics, lines, ours = train("raw", raw, recompute_logprobs=True)
    assert statistics["logprob_gap"]["max"] < 1e-5
    assert lines[0].gap_max < 1e-5
    assert lines[0].ratio_mean == pytest.approx(1, abs=1e-6)
    assert lines[0].loss == pytest.approx(expected[0].loss, abs=1e-6)
    for name, value in gradient.items():
        torch.testing.assert_close(ours[name], value, atol=1e-6, rtol=1e-4)
    for tree in raw:
        for step in tree.steps:
            step.logprobs = [value - 0.5 for value in step.logprobs]
    statistics, lines, _ = train("fault", raw, recompute_logprobs=True)
    assert statistics["logprob_gap"]["mean"] == pytest.approx(0.5, abs=1e-5)
    assert (lines[0].gap_mean, lines[0].gap_max) == pytest.approx((0.5, 0.5), abs=1e-5)
    assert lines[0].loss == pytest.approx(expected[0].loss, abs=1e-6)


# --- what is refused ---


@pytest.mark.parametrize(
    ("temperature", "stored", "recompute", "words"),
    [
        (0.4, 1.0, False, ["0.4", "those at 1", "train.recompute_logprobs=true", "processed"]),
        (0.0, 1.0, False, ["greedy", "--temperature"]),
        (0.0, 1.0, True, ["greedy", "--temperature"]),
    ],
)
def test_refuses_what_is_no_behaviour_policy(rollout, tmp_path, temperature, stored, recompute, words):
    trees = at_temperatures(rollout.tree_list[:2], [1.0], rollout_model(rollout), rollout.tokenizer)
    trees[1].steps[2].temperature, trees[1].steps[2].logprob_temperature = temperature, stored
    files = write(tmp_path / "t.jsonl", trees), tmp_path / "c.jsonl"
    write(files[1], [credit_of(tree, [1.0] * len(tree.steps)) for tree in trees])
    with pytest.raises(DataError) as caught:
        read_rows(*files, recompute=recompute)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in ["t.jsonl:2: steps[2].", *words])
    write(files[1], [credit_of(tree, [None if step.id == 2 else 1.0 for step in tree.steps]) for tree in trees])
    rows, _ = read_rows(*files)
    assert {row.temperature for row in rows} == {1.0}, "a step that is not trained may be sampled as it likes"


def rollout_model(rollout):
    return AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)


def test_rows_hold_their_temperatures(rollout, policy, tmp_path):
    trees = at_temperatures(rollout.tree_list, MIXED, policy, rollout.tokenizer)
    credit = write(tmp_path / "c.jsonl", [credit_of(tree, [1.0] * len(tree.steps)) for tree in trees])
    rows, _ = read_rows(write(tmp_path / "t.jsonl", trees), credit)
    assert [row.temperature for row in rows] == [MIXED[step.id % 3] for tree in trees for step in tree.steps]
    assert len(rows) == sum(len(SHAPES[number % 3]) for number in range(6))
    assert np.allclose([row.logprob_temperature for row in rows], [row.temperature for row in rows])
