"""DPO on pairs of trajectories, on a real tiny model: against the closed form, and everything that must change nothing."""

import json
import math

import msgspec
import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import load_model
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.records.types import Tree
from agentcli.training import preference as dpo_batches
from agentcli.training.loop.forward import StepTokeniser
from agentcli.training.loop.job import Job
from agentcli.training.metrics import DpoMetrics
from agentcli.training.preference import PreferenceTraining, batch_of, tokenise_pairs
from agentcli.training.steps import read_pairs
from pair_trees import FORKED, GROUP, HOPELESS, PATHS, pair_tree
from refusal import refused
from safetensors.torch import load_file
from tiny_rollout import assert_same, logprobs_alone, moved_model, write
from transformers import AutoModelForCausalLM, OPTConfig, OPTForCausalLM

BETA = 0.5
FAST = {"learning_rate": 2e-3, "rows_per_update": 3, "adam_betas": (0.9, 0.98), "max_grad_norm": 100.0}


@pytest.fixture(scope="module")
def sampled(rollout):
    """trees.jsonl with 2 + 4 + 2 pairs in it, and the trees."""
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    shapes = [FORKED, GROUP, HOPELESS, FORKED]
    trees = [pair_tree(number, shape, model, rollout.tokenizer) for number, shape in enumerate(shapes)]
    return write(rollout.folder / "pairs.jsonl", trees), trees


@pytest.fixture(scope="module")
def elsewhere(rollout):
    """A reference that is not the policy."""
    moved_model(rollout, rollout.folder / "elsewhere", 0)
    return rollout.folder / "elsewhere"


@pytest.fixture
def train(rollout, sampled, tmp_path):
    """train(name, trees=..., model=..., ..., **settings) -> (statistics, weights, metrics lines)"""

    def call(
        name, trees=sampled[0], model=rollout.model, seed=0, beta=BETA, max_length=32768, pairs_per_task=8, **given
    ):
        files = {key: given.pop(key) for key in FILES if key in given}
        options = {"beta": beta, "max_length": max_length, "pairs_per_task": pairs_per_task}
        settings = TrainSettings(objective="dpo", options=options, **{**FAST, **given})
        metrics = tmp_path / f"{name}.jsonl"
        job = Job(str(model), tmp_path / name, settings, seed, metrics, **files)
        statistics = PreferenceTraining(job).train(trees)
        weights = tmp_path / name / "model.safetensors"
        return statistics, load_file(weights) if weights.exists() else None, list(read_records(metrics, DpoMetrics))

    return call


FILES = ("reference", "optimizer_in", "optimizer_out", "progress", "snapshot")


def timeless(lines):
    return [msgspec.structs.replace(line, seconds=0.0) for line in lines]


def closed_form(trees, tokenizer, policy, reference):
    """DPO's loss, chosen and rejected reward of all pairs, whole trajectories, each step scored alone on its own prompt."""

    def gain(tree, steps):
        total = 0.0
        for step in (tree.steps[index] for index in steps):
            prompt = prompt_ids(tokenizer, step.prompt)
            own, base = (sum(logprobs_alone(model, prompt, step.token_ids)) for model in (policy, reference))
            total += own - base
        return BETA * total

    rows = []
    for tree, name in zip(trees, ("FORKED", "GROUP", None, "FORKED"), strict=True):
        gains = {leaf: gain(tree, steps) for leaf, steps in PATHS.get(name, {}).items()}
        won = [leaf for leaf in gains if tree.steps[leaf].outcome == "success"]
        rows += [(gains[good], gains[bad]) for good in won for bad in gains if bad not in won]
    return [(math.log1p(math.exp(bad - good)), good, bad) for good, bad in rows]


def test_loss_and_rewards_are_the_closed_form(rollout, sampled, elsewhere, train):
    """Prompts, which hold the observations, do not count; steps do not see each other; shared prefixes cancel."""
    path, trees = sampled
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (rollout.model, elsewhere)
    )
    rows = closed_form(trees, rollout.tokenizer, policy, reference)
    statistics, _, lines = train("one", reference=str(elsewhere), rows_per_update=100)
    assert statistics["pairs"] == len(rows) == lines[0].pairs == 8
    assert lines[0].loss == pytest.approx(sum(row[0] for row in rows) / 8, abs=1e-5)
    assert lines[0].margin == pytest.approx(sum(row[1] - row[2] for row in rows) / 8, abs=1e-5)
    assert lines[0].accuracy == sum(row[1] > row[2] for row in rows) / 8
    assert 0 < lines[0].accuracy < 1
    assert abs(lines[0].margin) > 0.05
    assert lines[0].tokens == sum(
        len(step.token_ids) for pair in read_pairs(path, 8, 0) for step in (*pair.chosen, *pair.rejected)
    )


def test_the_gradient_is_the_closed_forms(rollout, sampled, train, tmp_path):
    """From the policy as its own reference: beta / 2 times the difference of the trajectories' log-probability gradients."""
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    pairs = list(read_pairs(sampled[0], 8, 0))
    for pair in pairs:
        for sign, steps in ((-1, pair.chosen), (1, pair.rejected)):
            for step in steps:
                prompt = prompt_ids(rollout.tokenizer, step.prompt)
                logits = model(torch.tensor([prompt + step.token_ids])).logits[0, len(prompt) - 1 : -1]
                picked = torch.log_softmax(logits, -1).gather(1, torch.tensor(step.token_ids)[:, None])
                (sign * BETA / 2 * picked.sum() / len(pairs)).backward()
    _, _, lines = train("one", rows_per_update=100, optimizer_out=tmp_path / "state")
    assert lines[0].loss == pytest.approx(math.log(2), abs=1e-7)
    assert (lines[0].margin, lines[0].accuracy) == (0.0, 0.0)
    moments = load_file(tmp_path / "state")
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(moments[f"exp_avg/{name}"] / 0.1, parameter.grad, atol=2e-5, rtol=1e-4)


def tokenise(rollout):
    model = load_model(str(rollout.model), device="cpu", dtype="float32")
    return StepTokeniser(rollout.tokenizer, model, "model")


def test_a_batch_scores_exactly_what_was_sampled(rollout, sampled):
    pairs = list(read_pairs(sampled[0], 8, 0))
    for pair, tokens in zip(pairs, tokenise_pairs(pairs, tokenise(rollout)), strict=True):
        batch = batch_of(tokens, 0)
        for row, steps in enumerate((pair.chosen, pair.rejected)):
            scored = batch["input_ids"][row][batch["completion_mask"][row].bool()].tolist()
            assert scored == [token for step in steps for token in step.token_ids]
            starts = (batch["position_ids"][row] == 0) & batch["attention_mask"][row].bool()
            assert starts.sum() == len(steps)
            whole = [token for prompt, response in tokens[row] for token in prompt + response]
            assert batch["input_ids"][row][batch["attention_mask"][row].bool()].tolist() == whole


def test_scoring_observations_would_be_seen(train, elsewhere, monkeypatch):
    """The closed form above can fail: a mask that lets prompts in gives another loss."""
    _, _, right = train("right", reference=str(elsewhere), rows_per_update=100)

    def scoring_prompts(pair, pad):
        batch = batch_of(pair, pad)
        return {**batch, "completion_mask": batch["attention_mask"] * (batch["position_ids"] > 0)}

    monkeypatch.setattr(dpo_batches, "batch_of", scoring_prompts)
    monkeypatch.setattr("agentcli.training.preference.batch_of", scoring_prompts)
    _, _, wrong = train("wrong", reference=str(elsewhere), rows_per_update=100)
    assert abs(wrong[0].loss - right[0].loss) > 1e-3


def test_training_raises_the_margin(rollout, sampled, train, tmp_path):
    statistics, _, lines = train("raised", epochs=6)
    assert [line.update for line in lines] == list(range(1, 19))
    assert [line.epoch for line in lines] == [epoch for epoch in range(6) for _ in range(3)]
    assert [line.pairs for line in lines] == [3, 3, 2] * 6
    assert lines[-1].margin > 1 > lines[0].margin
    assert statistics["final_margin"] == lines[-1].margin
    assert lines[-1].accuracy == 1
    trained, start = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (tmp_path / "raised", rollout.model)
    )
    rows = closed_form(sampled[1], rollout.tokenizer, trained, start)
    assert sum(good > bad for _, good, bad in rows) >= 7


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bits(train):
    _, one, first = train("one", epochs=2)
    _, other, second = train("two", epochs=2)
    assert_same(one, other)
    assert timeless(first) == timeless(second)
    assert not all(torch.equal(one[name], value) for name, value in train("three", epochs=2, seed=1)[1].items())


def test_a_training_that_was_stopped_ends_with_the_same_bits(train, tmp_path):
    _, whole, lines = train("whole", epochs=2, save_every_updates=2)

    class Killed(Exception):
        pass

    def kill(done, total, figures):
        if done == 5:
            raise Killed

    with pytest.raises(Killed):
        train("resumed", epochs=2, save_every_updates=2, snapshot=tmp_path / "snapshot", progress=kill)
    assert not (tmp_path / "resumed").exists()
    told = []
    _, resumed, again = train(
        "resumed",
        epochs=2,
        save_every_updates=2,
        snapshot=tmp_path / "snapshot",
        progress=lambda done, total, figures: told.append((done, total)),
    )
    assert told == [(4, 6), (5, 6), (6, 6)]  # it begins after the four of the snapshot
    assert_same(whole, resumed)
    assert timeless(lines) == timeless(again)
    refused(
        lambda: train("resumed", epochs=2, save_every_updates=2, beta=0.3, snapshot=tmp_path / "snapshot"),
        3,
        remedy="--overwrite",
    )


def test_a_kill_leaves_nothing_among_temporary_files(train, temporary):
    """What would be left at each moment."""
    left = []
    train("watched", progress=lambda done, total, figures: left.append(list(temporary.iterdir())))
    assert len(left) > 1
    assert not any(left)


@pytest.mark.slow
def test_lora_starts_at_no_margin_and_goes_on_with_its_adapter(train, tmp_path):
    lora = LoraSettings(rank=4, alpha=8)
    _, weights, lines = train("adapter", lora=lora, learning_rate=1e-2, epochs=2)
    assert weights is None
    assert lines[0].margin == 0.0
    assert lines[-1].margin > 0.1
    names = sorted(path.name for path in (tmp_path / "adapter").iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors"]
    first = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    _, _, more = train("further", model=tmp_path / "adapter", lora=lora, learning_rate=1e-2)
    assert more[0].margin == 0.0  # the reference is the model that training starts from
    second = load_file(tmp_path / "further" / "adapter_model.safetensors")
    assert first.keys() == second.keys()
    assert not all(torch.equal(first[name], second[name]) for name in first)
    _, _, against = train("against", model=tmp_path / "adapter", lora=lora, reference=str(tmp_path / "adapter"))
    assert against[0].margin == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
def test_the_optimiser_is_carried_and_warms_up_once(train, tmp_path):
    state = tmp_path / "state.safetensors"
    _, _, lines = train("one", warmup_updates=4, optimizer_out=state)
    statistics, _, more = train("two", warmup_updates=4, optimizer_in=state)
    assert [line.learning_rate for line in lines + more] == pytest.approx([5e-4, 1e-3, 1.5e-3, 2e-3, 2e-3, 2e-3])
    assert statistics["updates_before"] == 3


@pytest.mark.parametrize("which", ["policy", "reference"])
def test_a_model_that_connects_the_steps_of_a_row_is_refused(rollout, train, tmp_path, which):
    shape = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "init_std": 0.3}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 512}
    opt = tmp_path / "opt"
    OPTForCausalLM(OPTConfig(vocab_size=len(rollout.tokenizer), **shape, **layers)).save_pretrained(opt)
    rollout.tokenizer.save_pretrained(opt)
    described = json.loads((opt / "tokenizer_config.json").read_text())
    # It names code that a model of another kind would look for.
    described.pop("auto_map", None)
    (opt / "tokenizer_config.json").write_text(json.dumps(described))
    given = {"model": opt, "reference": str(rollout.model)} if which == "policy" else {"reference": str(opt)}
    refused(lambda: train("connected", **given), 1, names="train.objective dpo", remedy="another model")
    assert not (tmp_path / "connected").exists()


def test_longer_trajectories_are_left_out_and_counted(rollout, sampled, train):
    pairs = tokenise_pairs(read_pairs(sampled[0], 8, 0), tokenise(rollout))
    lengths = sorted(pair.length for pair in pairs)
    statistics, _, lines = train("short", max_length=lengths[2], rows_per_update=100)
    fitting = sum(length <= lengths[2] for length in lengths)
    assert statistics["pairs"] == lines[0].pairs == fitting < 8
    assert statistics["pairs_too_long"] == 8 - fitting
    refused(lambda: train("none", max_length=3), 3, names=("train.options.max_length", f"{lengths[0]}"))


def test_refuses_trees_without_a_pair(rollout, sampled, train, tmp_path):
    hopeless = write(tmp_path / "hopeless.jsonl", [sampled[1][2]])
    refused(lambda: train("none", trees=hopeless), 3, names="hopeless.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hopeless.jsonl"]


def test_refuses_tokens_of_another_vocabulary(sampled, train, tmp_path):
    tree = msgspec.convert(msgspec.to_builtins(sampled[1][1]), Tree)
    tree.steps[3].token_ids[0] = 10**6
    refused(
        lambda: train("foreign", trees=write(tmp_path / "foreign.jsonl", [tree])),
        3,
        names=("foreign.jsonl:1", "steps[3].token_ids", "1000000"),
    )


def test_a_loss_that_is_not_finite_saves_nothing(train, tmp_path):
    refused(lambda: train("broken", learning_rate=1e9, epochs=3), 1, remedy="train.learning_rate")
    assert not (tmp_path / "broken").exists()
