"""train, on a real tiny model: against a second implementation, and everything that must change nothing."""

import json
import math

import msgspec
import numpy as np
import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.training.loop.job import Job
from agentcli.training.loop.snapshots import load_optimizer, save_optimizer
from agentcli.training.metrics import TrainMetrics
from agentcli.training.policy_gradient.training import PolicyTraining
from refusal import refused
from safetensors.torch import load_file, save_file
from tiny_rollout import assert_same, credit_of, logprobs_alone, write
from transformers import AutoModelForCausalLM, AutoTokenizer

FAST = {"aggregate": "step", "learning_rate": 1e-3, "beta": 0.0, "rows_per_update": 16, "adam_betas": (0.9, 0.98)}


@pytest.fixture
def train(rollout, tmp_path):
    """train(name, credit=..., model=..., ..., **settings) -> (statistics, weights, metrics lines)"""

    def call(name, trees=rollout.trees, credit=rollout.credit, model=rollout.model, seed=0, **given):
        files = {
            key: given.pop(key) for key in ("reference", "optimizer_in", "optimizer_out", "progress") if key in given
        }
        settings = TrainSettings(**{**FAST, **given})
        metrics = tmp_path / f"{name}.jsonl"
        job = Job(str(model), tmp_path / name, settings, seed, metrics, **files)
        statistics = PolicyTraining(job).train(trees, credit)
        lines = list(read_records(metrics, TrainMetrics))
        weights = tmp_path / name / "model.safetensors"
        return statistics, load_file(weights) if weights.exists() else None, lines

    return call


def gradients(state):
    """The clipped gradient of a first update, from AdamW's first moment."""
    moments = load_file(state)
    return {name.split("/")[1]: value / 0.1 for name, value in moments.items() if name.startswith("exp_avg/")}


def mean_of_means(rollout, value, aggregate):
    """The aggregation written as nested means; value(tree index, step) gives a list of token values."""
    trajectories, tokens, rows = [], [], []
    for index, tree in enumerate(rollout.tree_list):
        for step in tree.steps:
            tokens.extend(value(index, step))
            rows.append(sum(value(index, step)) / len(step.token_ids))
            if step.outcome is not None:
                chain = [step]
                while chain[-1].parent is not None:
                    chain.append(tree.steps[chain[-1].parent])
                means = [sum(value(index, one)) / len(one.token_ids) for one in chain]
                trajectories.append(sum(means) / len(means))
    chosen = {"step": trajectories, "token": tokens, "sequence": rows}[aggregate]
    return sum(chosen) / len(chosen)


@pytest.mark.parametrize("aggregate", ["step", "token", "sequence"])
def test_one_update_equals_a_second_implementation(rollout, train, aggregate):
    """Loss, gradient norm and updated weights of a whole-batch update, recomputed row by row with nested means."""
    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    old_noise = 0.3
    trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
    for tree in trees:
        for step in tree.steps:
            step.logprobs = [value - old_noise * (step.id % 2) for value in step.logprobs]

    def value(index, step):
        advantage = rollout.credit_list[index].steps[step.id].advantage
        prompt = prompt_ids(rollout.tokenizer, step.prompt)
        logits = model(torch.tensor([prompt + step.token_ids])).logits[0]
        out = []
        for position, token in enumerate(step.token_ids):
            logprob = torch.log_softmax(logits[len(prompt) - 1 + position], -1)[token]
            ratio = torch.exp(logprob - trees[index].steps[step.id].logprobs[position])
            limited = torch.clamp(ratio, 0.8, 1.2)
            out.append(-torch.minimum(ratio * advantage, limited * advantage))
        return out

    loss = mean_of_means(rollout, value, aggregate)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0).step()

    changed = write(rollout.folder / f"noisy-{aggregate}.jsonl", trees)
    statistics, weights, lines = train(
        "one",
        trees=changed,
        aggregate=aggregate,
        rows_per_update=100,
        rows_per_microbatch=7,
        max_grad_norm=0.1,
        optimizer_out=rollout.folder / f"state-{aggregate}",
    )
    assert statistics["updates"] == 1
    assert lines[0].loss == pytest.approx(loss.item(), abs=1e-6)
    assert lines[0].grad_norm == pytest.approx(norm.item(), rel=1e-4)
    assert_same(
        gradients(rollout.folder / f"state-{aggregate}"),
        {name: value.grad for name, value in model.named_parameters()},
        atol=1e-6,
    )
    expected = {name: value for name, value in model.state_dict().items() if name in weights}
    assert_same(weights, expected, atol=2e-5)


def test_accumulation_changes_nothing(train, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    train("single", rows_per_update=100, rows_per_microbatch=100, optimizer_out=one)
    train("seven", rows_per_update=100, rows_per_microbatch=5, optimizer_out=other)
    assert_same(gradients(one), gradients(other), atol=1e-6)
    _, whole, whole_lines = train("whole", rows_per_microbatch=16)
    _, pieces, piece_lines = train("pieces", rows_per_microbatch=3)
    assert_same(whole, pieces, atol=2e-5)
    for first, second in zip(whole_lines, piece_lines, strict=True):
        for name in (
            "loss",
            "grad_norm",
            "entropy",
            "clip_fraction",
            "ratio_mean",
            "ratio_max",
            "gap_mean",
            "gap_max",
            "gap_k3",
            "tokens",
            "rows",
        ):
            assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-4, abs=1e-6)


def test_the_same_inputs_give_the_same_bits(train):
    _, one, first = train("one", epochs=2)
    _, other, second = train("two", epochs=2)
    assert_same(one, other)
    strip = {"seconds": 0.0}
    assert [msgspec.structs.replace(line, **strip) for line in first] == [
        msgspec.structs.replace(line, **strip) for line in second
    ]
    assert not all(torch.equal(one[name], value) for name, value in train("three", epochs=2, seed=1)[1].items())


def test_skipped_zero_rows_change_nothing(rollout, train):
    credits = [
        credit_of(tree, [entry.advantage if entry.step % 2 else 0.0 for entry in credit.steps])
        for tree, credit in zip(rollout.tree_list, rollout.credit_list, strict=True)
    ]
    credit = write(rollout.folder / "zeros.jsonl", credits)
    statistics, skipped, lines = train("skipped", credit=credit)
    run, forced, forced_lines = train("forced", credit=credit, beta=1e-30)
    assert_same(skipped, forced, atol=2e-5)
    zeros = sum(entry.advantage == 0 for given in credits for entry in given.steps)
    assert statistics["rows_skipped"] == sum(line.rows_skipped for line in lines) == zeros > 0
    assert [line.skipped_share for line in lines] == [
        line.rows_skipped / (line.rows_skipped + line.rows) for line in lines
    ]
    assert run["rows_skipped"] == 0
    assert [line.loss for line in lines] == pytest.approx([line.loss for line in forced_lines], abs=1e-7)
    assert [line.advantage_mean for line in lines] == [line.advantage_mean for line in forced_lines]


def test_rows_of_skipped_updates_are_skipped_and_counted_once(rollout, train):
    credits = [credit_of(tree, [float(step.id == 0) for step in tree.steps]) for tree in rollout.tree_list]
    statistics, _, lines = train("few", credit=write(rollout.folder / "few", credits), epochs=2, rows_per_update=1)
    trees, rows = len(rollout.tree_list), statistics["rows"]
    assert statistics["updates_skipped"] == 2 * statistics["rows_skipped"] == 2 * (rows - trees) > 0
    assert sum(line.rows for line in lines) == 2 * trees


def test_nothing_but_zeros_leaves_the_model_alone(rollout, train):
    credit = write(
        rollout.folder / "nothing.jsonl", [credit_of(tree, [0.0] * len(tree.steps)) for tree in rollout.tree_list]
    )
    statistics, weights, lines = train("nothing", credit=credit)
    assert_same(weights, load_file(rollout.model / "model.safetensors"))
    assert (statistics["updates"], statistics["updates_skipped"], lines) == (0, 2, [])
    assert statistics["logprob_gap"]["max"] < 1e-4


def test_updates_move_towards_positive_advantages(rollout, train, tmp_path):
    """Likelier after training where the advantage is positive, less likely where it is negative."""
    _, _, lines = train("moved", epochs=6, learning_rate=3e-3, aggregate="sequence")
    assert [line.update for line in lines] == list(range(1, 13))
    assert 0 < lines[-1].clip_fraction < 1
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "moved", dtype=torch.float32)
    moved = []
    for tree, given in zip(rollout.tree_list, rollout.credit_list, strict=True):
        for step, entry in zip(tree.steps, given.steps, strict=True):
            after = logprobs_alone(model, prompt_ids(rollout.tokenizer, step.prompt), step.token_ids)
            moved.append((np.mean(after) - np.mean(step.logprobs)) * np.sign(entry.advantage))
    assert np.mean(np.array(moved) > 0) > 0.8


def test_sampler_and_trainer_agree_and_a_corrupted_sampler_is_seen(rollout, train):
    statistics, _, lines = train("exact")
    assert statistics["logprob_gap"]["max"] < 1e-4
    assert lines[0].ratio_mean == pytest.approx(1, abs=1e-4)
    assert 0 <= lines[0].gap_mean <= lines[0].gap_max < 1e-4 < lines[1].gap_mean
    trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
    for tree in trees:
        for step in tree.steps:
            step.logprobs = [value - 0.5 for value in step.logprobs]
    shifted = write(rollout.folder / "shifted.jsonl", trees)
    statistics, _, lines = train("shifted", trees=shifted)
    for name in ("mean", "p99", "max"):
        assert statistics["logprob_gap"][name] == pytest.approx(0.5, abs=1e-4)
    assert lines[0].ratio_mean == pytest.approx(math.exp(0.5), abs=1e-3)
    assert (lines[0].gap_mean, lines[0].gap_max) == pytest.approx((0.5, 0.5), abs=1e-4)
    assert lines[0].gap_k3 == pytest.approx(math.expm1(0.5) - 0.5, abs=1e-3)
    statistics, weights, lines = train("recomputed", trees=shifted, recompute_logprobs=True)
    assert statistics["logprob_gap"]["mean"] == pytest.approx(0.5, abs=1e-4)
    assert lines[0].ratio_mean == pytest.approx(1, abs=1e-5)
    assert lines[0].gap_mean == pytest.approx(0.5, abs=1e-4)
    assert_same(weights, train("exact again")[1], atol=5e-5)


def test_kl_is_against_the_reference(rollout, train, tmp_path):
    _, _, lines = train("own", beta=0.1, rows_per_update=100)
    assert lines[0].kl == pytest.approx(0, abs=1e-9)
    train("moved", learning_rate=5e-3)
    _, weights, lines = train("against", beta=0.1, rows_per_update=100, reference=str(tmp_path / "moved"))
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (rollout.model, tmp_path / "moved")
    )

    def value(index, step):
        prompt = prompt_ids(rollout.tokenizer, step.prompt)
        pairs = zip(*(logprobs_alone(model, prompt, step.token_ids) for model in (policy, reference)), strict=True)
        return [math.exp(ref - own) - (ref - own) - 1 for own, ref in pairs]

    expected = mean_of_means(rollout, value, "step")
    assert expected > 1e-4
    assert lines[0].kl == pytest.approx(expected, rel=1e-3)
    assert lines[0].loss == pytest.approx(-lines[0].surrogate + 0.1 * expected, rel=1e-4)
    assert not all(torch.equal(weights[name], value) for name, value in train("free", rows_per_update=100)[1].items())


def test_optimiser_state_is_restored_bit_for_bit(rollout, tmp_path):
    model, other = (AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        model(torch.tensor([[5, 6, 7]])).logits.square().sum().backward()
        optimizer.step()
    save_optimizer(optimizer, model, tmp_path / "state.safetensors")
    restored = torch.optim.AdamW(other.parameters(), lr=1e-3)
    assert load_optimizer(restored, other, tmp_path / "state.safetensors") == 3
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert_same(optimizer.state[one], restored.state[two])


def test_two_calls_that_carry_the_optimiser_equal_one(train, tmp_path):
    state = tmp_path / "state.safetensors"
    whole = {"rows_per_update": 100}
    _, together, lines = train("together", epochs=2, **whole)
    statistics, _, _ = train("first", optimizer_out=state, **whole)
    assert statistics["updates_before"] == 0
    statistics, apart, more = train("second", model=tmp_path / "first", optimizer_in=state, **whole)
    assert statistics["updates_before"] == 1
    assert more[0].grad_norm == pytest.approx(lines[1].grad_norm, rel=1e-4)
    assert_same(together, apart, atol=2e-5)
    _, forgotten, _ = train("forgotten", model=tmp_path / "first", **whole)
    assert max((together[name] - forgotten[name]).abs().max().item() for name in together) > 2e-4


def test_refuses_an_optimiser_state_of_another_model(train, tmp_path):
    state = tmp_path / "state.safetensors"
    train("one", optimizer_out=state)
    tensors = load_file(state)
    name = next(name for name in tensors if name.startswith("exp_avg/"))
    save_file({**tensors, name: tensors[name][:-1].clone()}, tmp_path / "shape.safetensors")
    refused(lambda: train("two", optimizer_in=tmp_path / "shape.safetensors"), 3, names="shape.safetensors")
    save_file({key: value for key, value in tensors.items() if key != name}, tmp_path / "missing.safetensors")
    refused(lambda: train("two", optimizer_in=tmp_path / "missing.safetensors"), 3, names="missing.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    refused(lambda: train("two", optimizer_in=tmp_path / "torn.safetensors"), 3, names="torn.safetensors")


def test_the_checkpoint_is_a_plain_directory(rollout, train, tmp_path):
    train("done")
    (tmp_path / "done" / "stale").write_text("left from before")
    _, weights, _ = train("done")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "done.jsonl"]
    assert not (tmp_path / "done" / "stale").exists()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "done")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "done")
    assert torch.equal(model.get_input_embeddings().weight, weights["model.embed_tokens.weight"])
    assert prompt_ids(tokenizer, "worda wordb") == prompt_ids(rollout.tokenizer, "worda wordb")
    configs = [json.loads((folder / "config.json").read_text()) for folder in (rollout.model, tmp_path / "done")]
    assert configs[0] == configs[1]


def test_learning_rate_warms_up_once_in_an_optimisers_life(train, tmp_path):
    state = tmp_path / "state.safetensors"
    _, _, lines = train("one", warmup_updates=3, optimizer_out=state)
    _, _, more = train("two", warmup_updates=3, optimizer_in=state)
    rates = [line.learning_rate for line in lines + more]
    assert rates == pytest.approx([1e-3 / 3, 2e-3 / 3, 1e-3, 1e-3])


def test_progress_is_told(train):
    seen = []
    train("told", progress=lambda done, total, figures: seen.append((done, total, sorted(figures))))
    figures = ["clip_fraction", "entropy", "loss"]
    assert seen == [(0, 2, []), (1, 2, figures), (2, 2, figures)]


def test_a_kill_leaves_nothing_among_temporary_files(train, temporary):
    """What would be left at each moment."""
    left = []
    train("watched", progress=lambda done, total, figures: left.append(list(temporary.iterdir())))
    assert left == [[]] * 3


def test_lora_trains_an_adapter_and_goes_on_with_it(rollout, train, tmp_path):
    lora = LoraSettings(rank=4, alpha=8)
    _, weights, lines = train("adapter", lora=lora, beta=0.1, learning_rate=1e-2, optimizer_out=tmp_path / "state")
    assert weights is None
    assert lines[0].kl == pytest.approx(0, abs=1e-9)
    assert lines[1].kl > 1e-6
    first = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert any(value.abs().max() > 0 for name, value in first.items() if "lora_B" in name)
    _, _, more = train("further", model=tmp_path / "adapter", lora=lora, beta=0.1, optimizer_in=tmp_path / "state")
    assert more[0].kl == 0  # the reference is the model that training starts from, its adapter included
    assert more[1].kl > 1e-6
    second = load_file(tmp_path / "further" / "adapter_model.safetensors")
    assert first.keys() == second.keys()
    assert not all(torch.equal(first[name], second[name]) for name in first)


def test_refuses_tokens_of_another_vocabulary(rollout, train):
    trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
    trees[1].steps[2].token_ids[0] = 10**6
    refused(
        lambda: train("foreign", trees=write(rollout.folder / "foreign.jsonl", trees)),
        3,
        names=("foreign.jsonl:2: steps[2].token_ids", "1000000"),
    )


def test_a_loss_that_is_not_finite_saves_nothing(rollout, train, tmp_path):
    trees = [msgspec.convert(msgspec.to_builtins(tree), type(tree)) for tree in rollout.tree_list]
    for tree in trees:
        for step in tree.steps:
            step.logprobs = [-1e4 for _ in step.logprobs]
    refused(
        lambda: train("broken", trees=write(rollout.folder / "broken.jsonl", trees)), 1, remedy="train.learning_rate"
    )
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize("setting", [{"rows_per_update": 0}, {"epochs": 0}, {"beta": -0.1}])
def test_refuses_settings_that_cannot_take_effect(setting):
    with pytest.raises(msgspec.ValidationError, match=rf"at `\$\.{next(iter(setting))}`"):
        msgspec.convert(setting, TrainSettings)


def test_refuses_a_launcher_that_started_one_process_of_several(train, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    refused(lambda: train("launched"), names="torchrun")


def test_refuses_a_model_without_tokenizer_or_template(rollout, train, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(rollout.model)
    model.save_pretrained(tmp_path / "bare")
    refused(lambda: train("out", model=tmp_path / "bare"), 3, names="tokenizer_config.json")
    rollout.tokenizer.save_pretrained(tmp_path / "bare")
    (tmp_path / "bare" / "chat_template.jinja").unlink()
    refused(lambda: train("out", model=tmp_path / "bare"), names="bare")


def test_bfloat16_computes_coarser_and_keeps_weights_in_float32(train):
    _, weights, lines = train("one")
    _, half_weights, half_lines = train("half", bf16=True)
    assert {value.dtype for value in half_weights.values()} == {torch.float32}
    assert half_lines[0].gap_mean > 100 * lines[0].gap_mean
    assert half_lines[0].grad_norm == pytest.approx(lines[0].grad_norm, rel=0.05)
    assert half_lines[0].grad_norm != lines[0].grad_norm
    _, again, _ = train("again")
    assert_same(again, weights)
