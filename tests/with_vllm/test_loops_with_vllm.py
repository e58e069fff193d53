"""Loops that sample with vLLM: sampler and trainer agree in every iteration, and one seed gives the same trees in any replica."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from agentcli import read_trees
from agentcli.policies.load import load_model
from transformers import Qwen2ForCausalLM
from vllm_commands import NEEDS_VLLM, ON_CPU, REPLICATED, START, Command

pytestmark = NEEDS_VLLM

LARGEST_GAP = 1e-4
LARGEST_MEAN_GAP = 0.01
"""Where the sampler computes in bfloat16; 0.0012 was measured."""


def loop(out: str, *words: str) -> list[Path]:
    """The iterations of a loop that ended well and left no process."""
    command = Command("run", "--preset", "./toy.yaml", *words, "-o", out, "-q")
    assert command.end() == 0, command.stderr.read_text(encoding="utf-8")
    return sorted(Path(out).glob("iteration_*"))


def check_gaps(iterations: list[Path], key: str = "gap_max", limit: float = LARGEST_GAP) -> None:
    """In every update of every iteration, whose weights differ."""
    assert len(iterations) == 3
    for iteration in iterations:
        updates = [json.loads(line) for line in (iteration / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        assert updates
        assert max(update[key] for update in updates) < limit
        assert any(update["grad_norm"] > 0 for update in updates), "nothing was learned, so no reload could fail"


@pytest.mark.usefixtures("folder")
def test_tied_weights_and_one_seed_twice() -> None:
    first = loop("tied", *START[2:])
    check_gaps(first)
    again = loop("again", *START[2:], *REPLICATED, "--set", "policy.vllm.options={max_num_seqs: 3, seed: 7}")
    check_gaps(again)
    # vLLM promises no equal bytes on a GPU.
    if ON_CPU:
        for one, other in zip(first, again, strict=True):
            assert (one / "trees.jsonl").read_bytes() == (other / "trees.jsonl").read_bytes()


@pytest.mark.usefixtures("folder")
def test_weights_with_a_head_of_their_own_in_bfloat16() -> None:
    torch.manual_seed(0)
    tied = load_model("sft/checkpoint")
    tied.config.tie_word_embeddings = False
    untied = Qwen2ForCausalLM(tied.config)
    untied.load_state_dict(tied.state_dict())
    shutil.copytree("sft/checkpoint", "untied")
    untied.save_pretrained("untied")
    rounded = ("--set", "policy.dtype=bfloat16", "--set", "train.float32_head=true")
    check_gaps(loop("own-head", *START[2:3], "untied", *START[4:], *rounded), "gap_mean", LARGEST_MEAN_GAP)


@pytest.mark.usefixtures("folder")
def test_adapters() -> None:
    check_gaps(loop("lora", *START[2:], "--lora", "4"))


@pytest.mark.usefixtures("folder")
def test_conversations() -> None:
    """A prompt holds what was sampled before; vLLM has it in its prefix cache, the trainer in one packed sequence."""
    chat = ("--set", "prompt.style=chat-compact", "-q")
    for words in (("demos", *START[:2], "-o", "told"), ("sft", "told", *START[:2], "--model", "tiny", "-o", "taught")):
        command = Command(*words, *chat)
        assert command.end() == 0, command.stderr.read_text(encoding="utf-8")
    iterations = loop("conversations", *START[:2], "--model", "taught/checkpoint", *START[4:], *chat[:2])
    check_gaps(iterations)
    steps = [step for tree in read_trees(iterations[-1]) for step in tree.steps]
    assert any(step.continues for step in steps)
