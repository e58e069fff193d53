"""`train` with objective policy-gradient: a clipped surrogate on a rollout's rows.

The trainer knows no credit method: rows and their advantages come from files
(`rows.py`); order and weights of the rows are planned beforehand (`batches.py`); the
loss is a pure function (`losses.py`); transformers.Trainer runs the loop
(`trainer.py`). The checkpoint and the optimiser state are written last.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.policies.sight import beside_weights, load_sight, picture_names
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.arguments import trainer_arguments
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.job import Job, adamw, keeping_cache, run, save, start
from agentcli.training.loop.metrics import means_of
from agentcli.training.loop.sharding import place
from agentcli.training.loop.snapshots import Facts, digest, model_fact, settings_fact
from agentcli.training.loop.tokens import StepTokeniser
from agentcli.training.objectives import not_read
from agentcli.training.policy_gradient.batches import UpdatePlan, plan_updates
from agentcli.training.policy_gradient.logprobs import prepare_logprobs, tokenise_rows
from agentcli.training.policy_gradient.objective import PolicyFigures, TrainMetrics
from agentcli.training.policy_gradient.packing import check_packed, packed_as_set
from agentcli.training.policy_gradient.rows import Row, RowCounts, read_rows
from agentcli.training.policy_gradient.trainer import PolicyTrainer


def train_policy(job: Job[TrainSettings], trees: Path, credit: Path) -> dict[str, Any]:
    """Trains on the credited rows of `trees`.

    The job's `reference` is loaded only if settings.beta is not 0. None means the model
    that training starts from; with LoRA, the base model without its adapter.

    Returns the statistics for the manifest. Raises DataError for files that do not
    belong together or contain nothing to train on, UsageError for settings that cannot
    take effect, MissingError for a missing tracker, AgentCliError if the loss is not
    finite.
    """
    settings = job.settings
    processes = start(job)
    rows, counts = credited_rows(trees, credit, settings)
    tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
    sight = load_sight(job.model, job.chat_template_kwargs)
    model = load_trainable(job.model, settings.lora)
    tokens = tokenise_rows(rows, StepTokeniser(tokenizer, model, job.model, sight))
    plan = plan_updates(rows, tokens, settings, job.seed, processes)
    plan = packed_as_set(plan, settings, model)
    facts = plan_facts(plan, settings, model)
    pad = tokenizer.pad_token_id or 0
    arguments = row_arguments(job, plan, settings.max_grad_norm)
    place(model, settings, processes, arguments.device)
    check_packed(plan, model, pad, arguments.device)
    gap = prepare_logprobs(model, plan, settings, job.reference, pad, arguments.device)
    with keeping_cache(model):
        trainer = PolicyTrainer(model, arguments, plan, pad, settings)
        trained = adamw(job, trainer, model)
        facts["updates before"] = trained.updates_before
        lines = run(
            job, trainer, trained, TrainMetrics, facts, len(plan.updates), processes
        )
    save(job, beside_weights(tokenizer, sight), trained, processes)
    return {
        "aggregate": settings.aggregate,
        **plan_statistics(plan, counts, lines),
        "updates_before": trained.updates_before,
        "logprob_gap": gap,
    }


def credited_rows(
    trees: Path,
    credit: Path,
    settings: TrainSettings,
) -> tuple[list[Row], RowCounts]:
    """The rows to train on, and the counts. Raises DataError if there are none."""
    # Importance weights compare the trainer with the sampler at the same temperature.
    replaced = settings.recomputes and settings.importance_cap is None
    rows, counts = read_rows(trees, credit, settings.update, replaced)
    if not rows:
        raise DataError(
            f"{credit}: no step has both an advantage and sampled tokens "
            f"({counts.unassigned} unassigned, {counts.not_critical} without a "
            f"sibling, {counts.without_spread} in trees without spread)"
        )
    return rows, counts


def row_arguments(
    job: Job[TrainSettings], plan: UpdatePlan, max_grad_norm: float
) -> TrainingArguments:
    """The settings of the job for transformers; a norm of 0 means no clipping."""
    return trainer_arguments(
        TrainingArguments,
        job.seed,
        plan.processes,
        bf16=job.settings.bf16,
        checkpointing=job.settings.gradient_checkpointing,
        sees=plan.tokens.sight is not None,
        per_device_train_batch_size=job.settings.rows_per_microbatch,
        gradient_accumulation_steps=plan.microbatches_per_update,
        max_grad_norm=max_grad_norm,
    )


def plan_facts(
    plan: UpdatePlan, settings: TrainSettings, model: torch.nn.Module
) -> Facts:
    """Numbers and hashes of the plan; a snapshot is resumed only if they match."""
    tokens = plan.tokens
    numbers = [
        (row.advantage, row.weight, row.share, row.temperature, row.logprob_temperature)
        for row in plan.rows
    ]
    order = [(update.rows, update.microbatches) for update in plan.updates]
    facts: Facts = {
        "updates": len(plan.updates),
        "settings": settings_fact(settings, not_read(settings)),
        "rows": digest(
            tokens.prompts, tokens.responses, tokens.old.tolist(), numbers, order
        ),
        "starting model": model_fact(model),
    }
    if tokens.messages:
        facts["pictures"] = digest(picture_names(tokens.messages))
    return facts


def plan_statistics(
    plan: UpdatePlan,
    counts: RowCounts,
    lines: Sequence[PolicyFigures],
) -> dict[str, Any]:
    """The statistics for the manifest, without those of the optimiser."""
    averaged = (
        "loss",
        "surrogate",
        "kl",
        "entropy",
        "clip_fraction",
        "ratio_mean",
        "grad_norm",
    )
    run_rows = {row for update in plan.updates for row in update.weights}
    return {
        "trees": counts.trees,
        "trajectories": counts.trajectories,
        "rows": counts.rows,
        "rows_unassigned": counts.unassigned,
        "rows_inherited": counts.inherited,
        "rows_not_critical": counts.not_critical,
        "rows_without_spread": counts.without_spread,
        "rows_without_tokens": counts.without_tokens,
        "rows_skipped": counts.rows - len(run_rows),
        "updates": len(plan.updates),
        "updates_skipped": plan.skipped,
        "tokens": sum(line.tokens for line in lines),
        "tokens_read": sum(line.tokens_read for line in lines),
        "tokens_saved": sum(line.tokens_saved for line in lines),
        **plan.choice.statistics(),
        "temperatures": sorted({row.temperature for row in plan.rows}),
        "means": means_of(lines, averaged),
        "ratio_max": max((line.ratio_max for line in lines), default=1.0),
    }
