"""sft on a real tiny model: what is imitated, on which tokens the loss falls, and that it is learned."""

import copy
import json
import shutil
from functools import partial

import msgspec
import pytest
import torch
from agentcli.policies.chat import prompt_ids
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.load import load_tokenizer
from agentcli.prompts.protocol import Message
from agentcli.records.files import read_records
from agentcli.records.training_settings import LoraSettings, SftSettings, TinySettings
from agentcli.records.types import PARSED, Validity
from agentcli.training.demonstrations import Sample, SampleCounts, read_steps, sample_of
from agentcli.training.imitation import (
    IGNORED,
    ImitationTrainer,
    ImitationTraining,
    SamplePart,
    collate,
    plan_imitation,
)
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.job import Job
from agentcli.training.loop.trainer import trainer_arguments
from agentcli.training.metrics import SftMetrics
from refusal import refused
from safetensors.torch import load_file
from tiny_rollout import words, write
from transformers import AutoModelForCausalLM, AutoTokenizer

TINY = TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=48)


@pytest.fixture
def sft(rollout, tmp_path):
    """sft(name, trees=..., ..., **settings) -> (statistics, metrics lines)"""

    def call(name, trees=rollout.trees, seed=0, entities=(), progress=None, **given):
        settings = SftSettings(**{"model": "tiny", "tiny": TINY, "updates": 4, "learning_rate": 3e-3, **given})
        metrics = tmp_path / f"{name}.jsonl"
        job = Job(settings.model, tmp_path / name, settings, seed, metrics, progress=progress)
        statistics = ImitationTraining(job, list(entities), words).train([trees])
        return statistics, list(read_records(metrics, SftMetrics))

    return call


@pytest.fixture
def samples(rollout):
    tokens = ChatTokens(rollout.tokenizer, None, 100)
    steps = [step for *_, step in read_steps(rollout.trees, SampleCounts())]
    return [sample_of(tokens, Message((step.prompt,)), step.response) for step in steps]


@pytest.mark.parametrize("file", ["generation_config.json", "tokenizer_config.json"])
def test_a_model_is_saved_whatever_its_files_lack(rollout, sft, tmp_path, file):
    """A generation config that samples without saying so, and a tokenizer that names no pad and no end."""
    model = tmp_path / "odd"
    shutil.copytree(rollout.model, model)
    config = json.loads((model / file).read_text())
    for name in ("pad_token", "eos_token", "pad_token_id"):
        config.pop(name, None)
    if file == "generation_config.json":
        config |= {"temperature": 0.6, "top_p": 0.9}
    (model / file).write_text(json.dumps(config))
    sft("saved", model=str(model), updates=1)
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved.get("temperature") == config.get("temperature")
    assert load_tokenizer(str(tmp_path / "saved")).pad_token_id is not None


def test_loss_falls_on_the_response_and_its_end_of_turn_only(rollout, samples):
    batch = collate(samples[:5], pad=rollout.tokenizer.pad_token_id)
    steps = [step for tree in rollout.tree_list for step in tree.steps]
    for row, step in enumerate(steps[:5]):
        prompt = prompt_ids(rollout.tokenizer, step.prompt)
        labelled = batch["labels"][row] != IGNORED
        assert batch["labels"][row][labelled].tolist() == step.token_ids
        assert step.token_ids[-1] == rollout.tokenizer.eos_token_id
        assert labelled.nonzero().flatten().tolist() == list(range(len(prompt), len(prompt) + len(step.token_ids)))
        length = int(batch["attention_mask"][row].sum())
        assert batch["input_ids"][row, :length].tolist() == prompt + step.token_ids
        assert (batch["input_ids"][row, length:] == rollout.tokenizer.pad_token_id).all()


def test_the_loss_on_the_cpu_is_trls(rollout, samples):
    from trl import SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained(rollout.model, dtype=torch.float32)
    arguments = trainer_arguments(
        SFTConfig, 0, Processes(0, 1), max_length=None, dataset_kwargs={"skip_prepare_dataset": True}
    )
    trainer = ImitationTrainer(model, arguments, rollout.tokenizer, [SamplePart(samples[:7], 50)])
    ours = trainer.compute_loss(model, trainer.collate(trainer.parts(0)[0]))
    theirs = SFTTrainer.compute_loss(trainer, model, collate(samples[:7], pad=0), num_items_in_batch=torch.tensor(50))
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_only_steps_worth_imitating(rollout, tmp_path, sft):
    trees = copy.deepcopy(rollout.tree_list)
    trees[0].steps[0].mask = "noise"
    trees[0].steps[1].validity = Validity.INADMISSIBLE
    trees[0].steps[2].validity = Validity.MALFORMED
    trees[0].steps[3].response = " "
    trees[0].steps[4].notes = {PARSED: 1.0}
    counts = SampleCounts()
    path = write(tmp_path / "some.jsonl", trees)
    kept = [place for place, *_ in read_steps(path, counts)]
    assert kept[0] == f"{path}:2: steps[0]"
    total = sum(len(tree.steps) for tree in trees)
    assert (counts.masked, counts.invalid, counts.empty, counts.samples) == (1, 3, 1, total - 5)
    statistics, _ = sft("some", trees=path)
    assert (statistics["samples"], statistics["trees"], statistics["updates"]) == (total - 5, 6, 4)


def test_learns_to_answer_and_to_stop(rollout, sft, tmp_path):
    tree = copy.deepcopy(rollout.tree_list[0])
    path = write(tmp_path / "one.jsonl", [tree])
    seen = []
    statistics, lines = sft(
        "learned",
        trees=path,
        updates=120,
        samples_per_update=5,
        samples_per_microbatch=5,
        learning_rate=1e-2,
        entities=["wordy thing"],
        progress=lambda done, total, figures: seen.append((done, total)),
    )
    assert lines[-1].loss < 0.1 < 1 < lines[0].loss
    assert lines[-1].token_accuracy == 1 == statistics["final_token_accuracy"]
    assert lines[-1].tokens == statistics["tokens"] == 120 * sum(len(step.token_ids) for step in tree.steps)
    assert seen == [(0, 120), *((line.update, 120) for line in lines)]
    assert len(lines) == 120
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "learned")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "learned")
    assert len(tokenizer("wordy thing", add_special_tokens=False).input_ids) == 1
    for step in tree.steps:
        prompt = prompt_ids(tokenizer, step.prompt)
        output = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0, len(prompt) :].tolist()
        assert output == [*tokenizer(step.response, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    assert json.loads((tmp_path / "learned" / "config.json").read_text())["use_cache"]


def test_the_same_seed_gives_the_same_bits(sft, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        sft(name, seed=seed)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "three")]
    assert files[0] == files[1] != files[2]


def test_bfloat16_computes_coarser_and_keeps_weights_in_float32(sft, tmp_path):
    _, lines = sft("one")
    _, half_lines = sft("half", bf16=True)
    weights = load_file(tmp_path / "half" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert half_lines[0].loss == pytest.approx(lines[0].loss, rel=0.01)
    assert half_lines[0].loss != lines[0].loss


def test_accumulation_changes_nothing(sft, tmp_path):
    sft("whole", samples_per_update=8, samples_per_microbatch=8)
    sft("pieces", samples_per_update=8, samples_per_microbatch=2)
    whole, pieces = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "pieces"))
    for name, value in whole.items():
        torch.testing.assert_close(value, pieces[name], atol=1e-4, rtol=0)


def test_the_accuracy_is_of_tokens_however_samples_are_divided(sft):
    """Of the first update, whose weights are the same."""
    accuracies = []
    for size in (8, 2, 1):
        _, lines = sft(f"in {size}", samples_per_update=8, samples_per_microbatch=size, updates=2)
        accuracies.append(lines[0].token_accuracy)
    assert accuracies[0] > 0
    assert accuracies == pytest.approx([accuracies[0]] * 3, rel=1e-6)


def test_a_training_of_one_update_learns(sft, tmp_path):
    before, after = (
        sft(name, updates=1, warmup_ratio=0.03, learning_rate=rate)[0]
        and load_file(tmp_path / name / "model.safetensors")
        for name, rate in (("still", 1e-12), ("moved", 3e-3))
    )
    assert any((before[name] - after[name]).abs().max() > 1e-3 for name in before)


@pytest.mark.parametrize("lora", [0, 4])
def test_samples_that_share_sequences_are_learned_as_they_are_alone(rollout, sft, tmp_path, lora):
    """Over two passes, so that an update has a sample twice."""
    given = {"model": str(rollout.model), "updates": 10, "samples_per_update": 8, "samples_per_microbatch": 4}
    left = {}
    for packing in ("on", "off"):
        lines = sft(packing, packing=packing, lora=LoraSettings(rank=lora, alpha=8), **given)
        left[packing] = *lines, load_file(next((tmp_path / packing).glob("*.safetensors")))
    assert left["on"][0]["packed"] is True
    assert left["off"][0]["packed"] is False
    for one, other in zip(left["on"][1], left["off"][1], strict=True):
        for name in ("loss", "grad_norm", "tokens"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-4), name
    for name, value in left["on"][2].items():
        torch.testing.assert_close(value, left["off"][2][name], atol=1e-4, rtol=0)


def test_auto_packs_samples_that_begin_alike_or_differ_in_length(samples, rollout):
    model = AutoModelForCausalLM.from_pretrained(rollout.model)
    alike = [Sample([7] * 60, sample.response) for sample in samples]
    unlike = [Sample([7] * (3 + 40 * (number % 4 == 0)), [number]) for number in range(16)]
    apart = [Sample([number + 5] * 20, [9]) for number in range(16)]
    for given, packed in ((alike, True), (unlike, True), (apart, False)):
        plan = plan_imitation(given, 3, SftSettings(), 0, Processes(0, 1)).packed_as_set("auto", model)
        assert (plan.choice.packing is not None) is packed
        assert sorted(plan.order) == sorted(plan_imitation(given, 3, SftSettings(), 0, Processes(0, 1)).order)


def test_a_kill_leaves_nothing_among_temporary_files(sft, temporary):
    """What would be left at each moment."""
    left = []
    sft("watched", progress=lambda done, total, figures: left.append(list(temporary.iterdir())))
    assert left == [[]] * 5


def test_epochs_become_updates(sft, rollout):
    total = sum(len(tree.steps) for tree in rollout.tree_list)
    statistics, lines = sft("passes", updates=None, epochs=2.0, samples_per_update=6, samples_per_microbatch=6)
    assert statistics["updates"] == round(2 * total / 6) == lines[-1].update


def test_goes_on_from_a_directory_in_full_and_with_lora(rollout, sft, tmp_path):
    before = load_file(rollout.model / "model.safetensors")
    sft("full", model=str(rollout.model))
    after = load_file(tmp_path / "full" / "model.safetensors")
    assert all(before[name].shape == after[name].shape for name in before)
    assert not torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    _, lines = sft("adapter", model=str(rollout.model), lora=LoraSettings(rank=4), updates=30, learning_rate=2e-2)
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all("lora_" in name for name in adapter)
    assert lines[-1].loss < lines[0].loss - 0.2
    assert not (tmp_path / "adapter" / "model.safetensors").exists()


def test_refuses_a_sample_that_is_too_long(rollout, sft):
    refused(lambda: sft("long", max_length=8), 3, names=("trees.jsonl:1", "sft.max_length"))


def test_refuses_what_cannot_take_effect(rollout, sft, tmp_path):
    odd = partial(sft, "odd", samples_per_update=10, samples_per_microbatch=4)
    refused(odd, names="sft.samples_per_microbatch", remedy="--set sft.samples_per_update=4")
    refused(lambda: sft("sine", schedule="sine"), names=("sft.schedule", "sine"))
    with pytest.raises(msgspec.ValidationError, match=r"samples_per_microbatch"):
        msgspec.convert({"samples_per_microbatch": 0}, SftSettings)
    refused(lambda: sft("tiny-lora", lora=LoraSettings(rank=2)), names="sft.lora.rank")
    trees = copy.deepcopy(rollout.tree_list)
    for tree in trees:
        for step in tree.steps:
            step.mask = "noise"
    refused(lambda: sft("masked", trees=write(tmp_path / "masked.jsonl", trees)), 3, names="masked.jsonl")


def test_refuses_a_template_that_cannot_be_learned_from(rollout):
    tokenizer = AutoTokenizer.from_pretrained(rollout.model)
    tokenizer.chat_template = tokenizer.chat_template.replace("<|end|>", "")
    tokens = ChatTokens(tokenizer, None, 100)
    refused(lambda: tokens.answer_ids("worda"), names=tokenizer.name_or_path, remedy="chat_template")


def test_words_that_the_tokenizer_does_not_know_are_counted_and_named(rollout, sft, tmp_path, caplog):
    trees = copy.deepcopy(rollout.tree_list)
    for step in trees[0].steps:
        step.prompt += " zebra zebra \x1b[31m okapi"
    steps = len(trees[0].steps)
    path = write(tmp_path / "strange.jsonl", trees)
    statistics, _ = sft("strange", trees=path, model=str(rollout.model))
    assert statistics["unknown_tokens"] == sum(statistics["unknown_words"].values())
    assert statistics["unknown_words"]["zebra"] == 2 * steps
    assert statistics["unknown_words"]["okapi"] == steps
    (record,) = [record for record in caplog.records if record.name.startswith("agentcli")]
    line = record.getMessage()
    assert line.isprintable()
    for part in (str(rollout.model), "'zebra'", str(2 * steps), "--model tiny"):
        assert part in line


@pytest.mark.parametrize("model", ["tiny", None])
def test_a_tokenizer_that_knows_all_words_is_not_warned_of(rollout, sft, caplog, model):
    statistics, _ = sft("known", model=model or str(rollout.model))
    assert (statistics["unknown_tokens"], statistics["unknown_words"]) == (0, {})
    assert not [record for record in caplog.records if record.name.startswith("agentcli")]
