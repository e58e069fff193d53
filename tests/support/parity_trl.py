"""TRL's GRPOTrainer on given rows: the oracle that the policy-gradient trainer is compared with.

Only generation is replaced. Batching over updates, microbatches and ranks, the forward pass, the loss, accumulation, clipping
of the gradient, the optimiser and the logged figures are TRL's and transformers' own. What each aggregation is there:

token     loss_type "dapo": sum over the update's tokens / number of tokens, all microbatches and ranks together.
sequence  loss_type "grpo": mean over a microbatch's rows of the mean over their tokens, averaged over microbatches and ranks
          (of one size each, so that this is the mean over the update's rows).
step      TRL has none. A row's weight per token goes in as `tool_mask`, which `_compute_loss` multiplies into its token mask,
          and the sum of weight * length as `num_items_in_batch`; "dapo" then divides one weighted sum by the other.
constant  loss_type "dr_grpo" (train.tokens_per_response): sum over a microbatch's tokens / (its rows * max_completion_length).

The other switches are epsilon_high, delta and importance_sampling_level, and `vllm_importance_sampling_correction` in the mode
token_truncate: without an engine, its ratio is computed here, from the sampler's log-probabilities and the starting policy's.

Shares, old and reference log-probabilities are computed here, without the code under test.
"""

import os
import tempfile

import torch
from agentcli.policies.chat import prompt_ids
from agentcli.records.files import read_records
from agentcli.records.types import Credit, Tree
from datasets import Dataset
from peft import PeftModel
from tiny_rollout import logprobs_alone
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

LOSS_TYPES = {"token": "dapo", "sequence": "grpo", "step": "dapo"}


class GivenRowsTrainer(GRPOTrainer):
    """`updates` has one entry per update, the indices of its `rows`; TRL repeats an entry once per row and deals the copies to
    the ranks."""

    def __init__(self, model, args, tokenizer, rows, updates, weighted):
        dataset = Dataset.from_dict({"prompt": [""] * len(updates), "rows": updates})
        super().__init__(
            model=model, reward_funcs=never_asked, args=args, train_dataset=dataset, processing_class=tokenizer
        )
        self.remove_callback(PrinterCallback)
        self.rows, self.weighted, self.seen = rows, weighted, 0

    def _generate_and_score_completions(self, inputs):
        """This rank's rows of one update, padded as TRL pads: prompts on the left, completions on the right."""
        members = inputs[0]["rows"]
        assert all(given["rows"] == members for given in inputs)
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        own = [self.rows[index] for index in members[rank::world]]
        assert len(own) == len(inputs) == len(members) / world
        self.seen += len(own)
        tokens = sum(self.total(self.rows[index]) for index in members)
        assert tokens > 1  # TRL does not divide by less
        batch = {
            "prompt_ids": pad([row["prompt"] for row in own], 0, "left"),
            "prompt_mask": pad([[1] * len(row["prompt"]) for row in own], 0, "left"),
            "completion_ids": pad([row["tokens"] for row in own], 0),
            "completion_mask": pad([[1] * len(row["tokens"]) for row in own], 0),
            "old_per_token_logps": pad([row["old"] for row in own], 0.0),
            "ref_per_token_logps": pad([row["reference"] for row in own], 0.0),
            "advantages": torch.tensor([row["advantage"] for row in own]),
            "num_items_in_batch": torch.tensor(float(tokens)),
        }
        if self.use_vllm:
            ratio = torch.exp(batch["old_per_token_logps"] - pad([row["sampled"] for row in own], 0.0))
            batch["importance_sampling_ratio"] = ratio.clamp(max=self.cap)
            batch["sampling_per_token_logps"] = pad([row["sampled"] for row in own], 0.0)
        if self.weighted:
            batch["tool_mask"] = pad([[self.per_token(row)] * len(row["tokens"]) for row in own], 0.0)
        return batch

    def per_token(self, row):
        return row["share"] / len(row["tokens"])

    def total(self, row):
        return row["share"] if self.weighted else len(row["tokens"])


def never_asked(**given):
    """TRL wants a reward source, but the advantages are given."""
    raise AssertionError(sorted(given))


def pad(values, filler, side="right"):
    dtype = torch.float32 if isinstance(filler, float) else torch.long
    return pad_sequence(
        [torch.tensor(value, dtype=dtype) for value in values],
        batch_first=True,
        padding_value=filler,
        padding_side=side,
    )


def given_rows(trees, credit, tokenizer, reference, temperature, start=None):
    """One dictionary per step of each tree, in file order; every step is credited once.

    With the policy at `start`, old log-probabilities are its own.
    """
    rows = []
    for tree, given in zip(read_records(trees, Tree), read_records(credit, Credit), strict=True):
        shares = [0.0] * len(tree.steps)
        for leaf in tree.steps:
            walk = [leaf.id]
            while leaf.outcome is not None and (parent := tree.steps[walk[-1]].parent) is not None:
                walk.append(parent)
            for step in walk if leaf.outcome is not None else ():
                shares[step] += 1 / len(walk)
        for step, entry, share in zip(tree.steps, given.steps, shares, strict=True):
            prompt = prompt_ids(tokenizer, step.prompt)
            rows.append(
                {
                    "prompt": prompt,
                    "tokens": step.token_ids,
                    "sampled": step.logprobs,
                    "old": logprobs_alone(start, prompt, step.token_ids, temperature) if start else step.logprobs,
                    "reference": logprobs_alone(reference, prompt, step.token_ids, temperature),
                    "advantage": entry.advantage,
                    "share": share,
                }
            )
    return rows


def train_trl(trees, credit, model, adapter, reference, settings, updates, microbatch, temperature):
    """Train `model`, or `adapter` on it, on `updates` (row indices of each) as TRL does; it divides all logits by `temperature`.

    `microbatch` is the number of rows per rank and pass. Gives the lines that Trainer logs, one per update.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy, frozen = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (model, reference)
    )
    if adapter is not None:
        policy = PeftModel.from_pretrained(policy, adapter, is_trainable=True)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as scratch:
        arguments = GRPOConfig(
            output_dir=scratch,
            loss_type="dr_grpo" if settings.tokens_per_response else LOSS_TYPES[settings.aggregate],
            max_completion_length=settings.tokens_per_response or 256,
            beta=settings.beta,
            epsilon=settings.clip,
            epsilon_high=settings.clip_high,
            delta=settings.dual_clip,
            importance_sampling_level=settings.ratio,
            temperature=temperature,
            use_bias_correction_kl=False,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="constant",
            adam_beta1=settings.adam_betas[0],
            adam_beta2=settings.adam_betas[1],
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            num_train_epochs=1,
            num_generations=len(updates[0]),
            per_device_train_batch_size=microbatch,
            gradient_accumulation_steps=len(updates[0]) // (microbatch * ranks),
            shuffle_dataset=False,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            ddp_find_unused_parameters=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        weighs = settings.importance_cap is not None
        rows = given_rows(trees, credit, tokenizer, frozen, temperature, policy if weighs else None)
        trainer = GivenRowsTrainer(policy, arguments, tokenizer, rows, updates, settings.aggregate == "step")
        trainer.use_vllm, trainer.cap = weighs, settings.importance_cap
        trainer.train()
    assert trainer.accelerator.num_processes == ranks
    assert trainer.seen * ranks == sum(map(len, updates))
    return [line for line in trainer.state.log_history if "grad_norm" in line]
