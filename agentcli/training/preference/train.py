"""`train` with objective dpo: preference pairs through TRL's DPOTrainer (ETO).

Loss (Song et al. 2024): mean over pairs of -log sigmoid(beta * ((log pi - log
ref)(success) - (log pi - log ref)(failure))). The log-probability of a trajectory is
the sum over its response tokens, at temperature 1 whatever the sampling temperature:
DPO uses no ratio to the sampling policy, and ETO's loss has no temperature. No credit
is needed: outcomes decide. Pairs come from `pairs.py`, batches and their order from
`batches.py`, the loop from `trainer.py`. The checkpoint and the optimiser state are
written last.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from trl.trainer.dpo_config import DPOConfig

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.arguments import trainer_arguments
from agentcli.training.loop.checkpoints import load_frozen, load_trainable
from agentcli.training.loop.job import Job, adamw, keeping_cache, run, save, start
from agentcli.training.loop.metrics import means_of
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.loop.tokens import StepTokeniser
from agentcli.training.objectives import not_read, options_of
from agentcli.training.preference.batches import (
    PairPlan,
    TokenPair,
    plan_pairs,
    tokenise_pairs,
)
from agentcli.training.preference.objective import DpoMetrics, DpoOptions
from agentcli.training.preference.pairs import PairCounts, read_pairs
from agentcli.training.preference.trainer import PreferenceTrainer


def train_dpo(job: Job[TrainSettings], trees: Path) -> dict[str, Any]:
    """Trains on the preference pairs of `trees`.

    An update has settings.rows_per_update pairs, which are run one at a time. If the
    job's `reference` is None, it is the model that training starts from, its adapter
    included. A pair with a trajectory longer than train.options.max_length is left out
    and counted.

    Returns the statistics for the manifest. Raises DataError for a file that is not a
    trees file or gives no pair, MissingError for a tracker that is not installed,
    AgentCliError if the loss is no longer finite.
    """
    settings = job.settings
    options: Any = options_of(settings)
    processes = start(job)
    tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
    model = load_trainable(job.model, settings.lora)
    pairs, counts = _pairs(job, options, trees, tokenizer, model)
    plan = plan_pairs(pairs, settings, job.seed, processes)
    facts = _facts(plan, settings, model)
    arguments = _arguments(job, plan, options.beta)
    with keeping_cache(model):
        trainer = PreferenceTrainer(
            model, _reference(job.reference), arguments, tokenizer, plan
        )
        trained = adamw(job, trainer, model)
        facts["updates before"] = trained.updates_before
        lines = run(
            job, trainer, trained, DpoMetrics, facts, len(plan.updates), processes
        )
    save(job, tokenizer, trained, processes)
    return {**counts, "updates_before": trained.updates_before, **_statistics(lines)}


def _pairs(
    job: Job[TrainSettings],
    options: DpoOptions,
    trees: Path,
    tokenizer: Any,
    model: Any,
) -> tuple[list[TokenPair], dict[str, int]]:
    """The pairs that are short enough, and counts of all trees and pairs.

    Raises DataError if there are none.
    """
    counts = PairCounts()
    chosen = read_pairs(trees, options.pairs_per_task, job.seed, counts)
    pairs = tokenise_pairs(chosen, StepTokeniser(tokenizer, model, job.model))
    if not pairs:
        raise DataError(
            f"{trees}: no preference pair: no task has both a success and a failure "
            f"({counts.trees} trees, {counts.successes} successes, {counts.failures} "
            "failures); roll out more tasks, more leaves (rollout.leaves) or warmer "
            "(policy.temperature)"
        )
    short = [pair for pair in pairs if pair.length <= options.max_length]
    if not short:
        shortest = min(pair.length for pair in pairs)
        raise DataError(
            f"{trees}: all {len(pairs)} pairs have a trajectory of more than "
            f"train.options.max_length ({options.max_length}) tokens, the shortest "
            f"{shortest}; set train.options.max_length higher or prompt.history lower"
        )
    counts.pairs = len(short)
    too_long = len(pairs) - len(short)
    return short, {**msgspec.structs.asdict(counts), "pairs_too_long": too_long}


def _reference(directory: str | None) -> Any | None:
    """The reference model, with an adapter merged into its base; None stays None."""
    if directory is None:
        return None
    model = load_frozen(directory)
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def _arguments(
    job: Job[TrainSettings],
    plan: PairPlan,
    beta: float,
) -> DPOConfig:
    return trainer_arguments(
        DPOConfig,
        job.seed,
        plan.processes,
        bf16=job.settings.bf16,
        checkpointing=job.settings.gradient_checkpointing,
        beta=beta,
        max_length=None,
        precompute_ref_log_probs=True,
        disable_dropout=False,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.microbatches_per_update,
        max_grad_norm=job.settings.max_grad_norm,
    )


def _facts(plan: PairPlan, settings: TrainSettings, model: torch.nn.Module) -> Facts:
    """Numbers and hashes of the plan; a snapshot is resumed only if they match."""
    return {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, not_read(settings)),
        "pairs": digest(plan.pairs, plan.updates),
        "starting model": model_fact(model),
    }


def _statistics(lines: list[DpoMetrics]) -> dict[str, Any]:
    """The statistics for the manifest that come from the metrics lines."""
    averaged = (
        "loss",
        "accuracy",
        "margin",
        "chosen_reward",
        "rejected_reward",
        "grad_norm",
    )
    return {
        "updates": len(lines),
        "tokens": sum(line.tokens for line in lines),
        "means": means_of(lines, averaged),
        "final_margin": lines[-1].margin,
        "final_accuracy": lines[-1].accuracy,
    }
