"""Times one update with packed rows against plain ones and against TRL's GRPOTrainer.

The three take turns on the same rows, forward and backward, so that whatever else the
machine does slows all of them. Printed are the tokens, medians of CPU seconds, and the
medians of the ratios within a round. Without RUN, groups of siblings are drawn, with
responses of a tenth of their prompt.

    python scripts/bench_packing.py runs/x --model runs/sft/checkpoint
    python scripts/bench_packing.py --siblings 8 --prompt 500
"""

import argparse
import random
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from msgspec.structs import replace
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.training_settings import TinySettings, TrainSettings
from agentcli.records.types import Tree
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.forward import StepTokeniser
from agentcli.training.loop.trainer import trainer_arguments
from agentcli.training.policy_gradient.batches import (
    Tokens,
    UpdatePlan,
    packed_as_set,
    plan_updates,
)
from agentcli.training.policy_gradient.training import PolicyTrainer
from agentcli.training.steps import Row

WORDS = [f"word{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]
WIDE = TinySettings(hidden=256, layers=5, heads=4, kv_heads=2, intermediate=768)
"""About 4 million parameters."""


class Ours:
    """One update of the policy gradient, as a plan says."""

    def __init__(self, model: Any, plan: UpdatePlan) -> None:
        arguments = trainer_arguments(TrainingArguments, 0, plan.processes)
        self._trainer = PolicyTrainer(model, arguments, plan, 0, TrainSettings(beta=0))
        self._parts = self._trainer.parts(0)
        self._model = model

    def run(self) -> None:
        """Forward and backward over all microbatches."""
        for part in self._parts:
            batch = self._trainer.collate(part)
            self._trainer.compute_loss(self._model, batch).backward()
        self._model.zero_grad()

    def tokens(self) -> tuple[int, int]:
        """The tokens of the rows, and those that are run."""
        batches = [self._trainer.collate(part) for part in self._parts]
        read = sum(int(batch["read_1"]) for batch in batches)
        return read, sum(int(batch["run_1"]) for batch in batches)


class Theirs:
    """The same microbatches through TRL's GRPOTrainer."""

    def __init__(self, model: Any, plan: UpdatePlan, tokenizer: Any) -> None:
        arguments = GRPOConfig(
            output_dir=tempfile.gettempdir(),
            beta=0.0,
            bf16=False,
            gradient_checkpointing=False,
            num_generations=2,
            per_device_train_batch_size=2,
            report_to="none",
            use_cpu=True,
        )
        self._trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda **_: [],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": ["", ""]}),
            processing_class=tokenizer,
        )
        self._trainer.current_gradient_accumulation_steps = 1
        self._plan = plan
        self._model = model

    def run(self) -> None:
        """Forward and backward over all microbatches."""
        for update in self._plan.updates:
            for rows in update.microbatches:
                loss = self._trainer.compute_loss(self._model, self._batch(rows))
                loss.backward()
        self._model.zero_grad()

    def _batch(self, rows: list[int]) -> dict[str, Tensor]:
        """The rows as TRL pads them: prompts on the left, completions on the right."""
        tokens = self._plan.tokens
        prompts = [torch.tensor(tokens.prompts[row]) for row in rows]
        completions = [torch.tensor(tokens.responses[row]) for row in rows]
        advantages = [self._plan.rows[row].advantage for row in rows]
        completion_mask = _padded([torch.ones_like(one) for one in completions])
        return {
            "prompt_ids": _padded(prompts, "left"),
            "prompt_mask": _padded([torch.ones_like(one) for one in prompts], "left"),
            "completion_ids": _padded(completions),
            "completion_mask": completion_mask,
            "old_per_token_logps": torch.full(completion_mask.shape, -1.0),
            "advantages": torch.tensor(advantages),
            "num_items_in_batch": completion_mask.sum(),
        }


def _padded(rows: list[Tensor], side: str = "right") -> Tensor:
    return pad_sequence(rows, batch_first=True, padding_side=side)


def main() -> None:
    """Measures and prints."""
    options = _options()
    torch.set_num_threads(options.threads)
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    model = make_model(WIDE, tokenizer, 0)
    if options.model:
        model = load_model(options.model, device="cpu", dtype="float32")
        tokenizer = load_tokenizer(options.model)
    model.train()
    rows, tokens = _drawn(options)
    if options.run:
        rows, tokens = _read(options, StepTokeniser(tokenizer, model, options.model))
    settings = TrainSettings(
        aggregate="token",
        rows_per_update=len(rows),
        rows_per_microbatch=options.rows_per_microbatch,
        packing="on",
    )
    plan = plan_updates(rows, tokens, settings, 0, Processes(0, 1))
    packed = packed_as_set(plan, settings, model)
    chosen = packed_as_set(plan, replace(settings, packing="auto"), model)
    ways = {
        "packed": Ours(model, packed),
        "plain": Ours(model, plan),
        "trl": Theirs(model, plan, tokenizer),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, way in ways.items():
            started = time.process_time()
            way.run()
            seconds[name].append(time.process_time() - started)
    read, run = ways["packed"].tokens()
    print(
        f"{len(rows)} rows, {read:,} tokens, packed {run:,} ({read / run:.2f} times "
        f"fewer); auto {'packs' if chosen.packing else 'does not pack'}"
    )
    for name, took in seconds.items():
        pairs = zip(took, seconds["packed"], strict=True)
        ratio = median(one / packed for one, packed in pairs)
        print(f"{name:6} {median(took):8.2f} CPU s   {ratio:5.2f} x packed")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", help="a run with trees.jsonl")
    parser.add_argument("--model", help="a model directory; none: a random one")
    parser.add_argument("--trees", type=int, default=4, help="trees of RUN")
    parser.add_argument("--siblings", type=int, default=8, help="rows of each prompt")
    parser.add_argument("--prompt", type=int, default=500, help="tokens of a prompt")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--rows-per-microbatch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def _drawn(options: argparse.Namespace) -> tuple[list[Row], Tokens]:
    """Groups of siblings of random tokens."""
    draw = random.Random(0)
    prompts = []
    responses = []
    for _ in range(options.prompts):
        prompt = draw.choices(range(10, 90), k=options.prompt)
        for _ in range(options.siblings):
            prompts.append(prompt)
            responses.append(draw.choices(range(10, 90), k=options.prompt // 10))
    return _rows(prompts, responses)


def _read(
    options: argparse.Namespace, tokenise: StepTokeniser
) -> tuple[list[Row], Tokens]:
    """The steps of the first trees of a run."""
    prompts = []
    responses = []
    trees = read_records(RunDirectory(Path(options.run)).existing_trees(), Tree)
    for tree in islice(trees, options.trees):
        for step in tree.steps:
            prompt, response = tokenise(step.prompt, step.token_ids, str(step.id))
            prompts.append(prompt)
            responses.append(response)
    return _rows(prompts, responses)


def _rows(
    prompts: list[list[int]], responses: list[list[int]]
) -> tuple[list[Row], Tokens]:
    """Rows of these tokens, all alike in weight."""
    rows = []
    offsets = [0]
    for number, response in enumerate(responses):
        place = f"row {number}"
        advantage = 1.0 if number % 2 else -1.0
        logprobs = [-1.0] * len(response)
        rows.append(Row(place, "", response, logprobs, advantage, 1.0, 1.0))
        offsets.append(offsets[-1] + len(response))
    old = torch.full((offsets[-1],), -1.0)
    return rows, Tokens(prompts, responses, offsets, old)


if __name__ == "__main__":
    main()
