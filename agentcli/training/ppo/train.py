"""`train` with objective ppo: policy gradient with a critic (Schulman et al. 2017).

The policy's side is that of `policy_gradient/`: rows, plan, loss and metrics. The
critic learns the part `return` of the credit (A + V of the rollout's critic) by mean
squared error, on the same rows in the same updates. Therefore rows that cannot change
the policy are run too, for the critic.
"""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.options import RETURN
from agentcli.training.critic.pair import load_pair, rate_of, save_pair
from agentcli.training.loop.job import Job, adamw, keeping_cache, run, start
from agentcli.training.loop.metrics import means_of
from agentcli.training.loop.snapshots import digest
from agentcli.training.loop.tokens import StepTokeniser
from agentcli.training.objectives import options_of
from agentcli.training.policy_gradient.batches import plan_updates
from agentcli.training.policy_gradient.logprobs import prepare_logprobs, tokenise_rows
from agentcli.training.policy_gradient.rows import Row
from agentcli.training.policy_gradient.train import (
    credited_rows,
    plan_facts,
    plan_statistics,
    row_arguments,
)
from agentcli.training.ppo.objective import PpoMetrics
from agentcli.training.ppo.trainer import PpoTrainer

OF_CRITIC = ("value_loss", "explained_variance", "critic_grad_norm")
"""The critic's metrics whose means are in the manifest."""
SMALLEST_SPREAD = 1e-4
"""Advantages with a smaller standard deviation are rounding noise and are not scaled.
"""


def train_ppo(job: Job[TrainSettings], trees: Path, credit: Path) -> dict[str, Any]:
    """Trains policy and critic on the credited rows of `trees`.

    Raises what `train_policy` raises, and DataError for credit without a `return`.
    Returns the statistics for the manifest.
    """
    settings = job.settings
    options: Any = options_of(settings)
    processes = start(job)
    rows, counts = credited_rows(trees, credit, settings)
    _check_returns(rows, credit)
    if options.whiten:
        rows = whitened(rows)
    tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
    pair = load_pair(job, options)
    tokens = tokenise_rows(rows, StepTokeniser(tokenizer, pair.actor, job.model))
    plan = plan_updates(rows, tokens, settings, job.seed, processes, every_row=True)
    facts = plan_facts(plan, settings, pair)
    facts["returns"] = digest([row.parts for row in rows])
    pad = tokenizer.pad_token_id or 0
    arguments = row_arguments(job, plan, max_grad_norm=0.0)
    pair.to(arguments.device)
    gap = prepare_logprobs(
        pair.actor, plan, settings, job.reference, pad, arguments.device
    )
    with keeping_cache(pair.actor), keeping_cache(pair.critic):
        trainer = PpoTrainer(pair, arguments, plan, pad, settings, options)
        trained = adamw(job, trainer, pair, rate_of(settings, options))
        facts["updates before"] = trained.updates_before
        lines = run(
            job, trainer, trained, PpoMetrics, facts, len(plan.updates), processes
        )
    save_pair(job, tokenizer, trained, processes)
    return {
        "aggregate": settings.aggregate,
        **plan_statistics(plan, counts, lines),
        "critic": means_of(lines, OF_CRITIC),
        "updates_before": trained.updates_before,
        "logprob_gap": gap,
    }


def whitened(rows: list[Row]) -> list[Row]:
    """The rows with advantages of mean 0 and standard deviation 1 (ddof 0)."""
    advantages = [row.advantage for row in rows]
    mean = fmean(advantages)
    spread = pstdev(advantages)
    if spread < SMALLEST_SPREAD:
        spread = 1.0
    return [replace(row, advantage=(row.advantage - mean) / spread) for row in rows]


def _check_returns(rows: list[Row], credit: Path) -> None:
    """Raises DataError for a row without a return to learn."""
    for row in rows:
        if RETURN not in row.parts:
            raise DataError(
                f"{credit}: {row.place}: its credit has no part {RETURN!r} that a critic "
                "could learn; assign credit with --method ppo"
            )
