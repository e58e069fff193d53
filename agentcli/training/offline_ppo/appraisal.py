"""log pi_old, V_old and A = R - V_old of every row, at the start of an epoch.

From the second epoch on they are stored next to the snapshot: a training that is killed
in the middle of an epoch no longer has the models from the start of that epoch.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from agentcli.records.regular import refuse_irregular
from agentcli.training.critic.batches import values_of
from agentcli.training.critic.options import RETURN
from agentcli.training.critic.pair import ActorCritic
from agentcli.training.loop.snapshots import Facts, naming_damage
from agentcli.training.loop.tensor_files import write_tensors
from agentcli.training.policy_gradient.batches import UpdatePlan
from agentcli.training.policy_gradient.logprobs import RowScorer


@dataclass
class Appraisal:
    """The old log-probabilities and values that the losses use in epoch `epoch`.

    `folder` is the folder of the snapshot; with None nothing is stored. Only files with
    the same `facts` are read.
    """

    pair: ActorCritic
    plan: UpdatePlan
    scorer: RowScorer
    folder: Path | None
    facts: Facts
    epoch: int = 0
    values: Tensor = field(default_factory=lambda: torch.zeros(0))
    """V_old of every row."""

    def begin(self, epoch: int) -> None:
        """Takes the current models as the old ones, or reads stored results.

        Raises WriteError, and DataError for a damaged file.
        """
        self.epoch = epoch
        path = self.folder / f"old-{epoch}.safetensors" if self.folder else None
        if path is not None and self._read(path):
            return
        self.compute()
        if path is not None and self.plan.processes.main:
            tensors = {"logprobs": self.plan.tokens.old, "values": self.values}
            write_tensors(path, tensors, {"facts": json.dumps(self.facts)})

    def compute(self) -> None:
        """Computes log pi_old and V_old of all rows with the current models."""
        plan, scorer = self.plan, self.scorer
        tokens = plan.tokens
        every_row = range(len(plan.rows))
        (tokens.old,) = scorer.score(self.pair.actor, every_row, [tokens.temperature])
        values = values_of(
            self.pair.critic,
            plan,
            scorer.pad,
            scorer.device,
            scorer.bf16,
        )
        self.values = torch.tensor(values)

    def old_logprobs(self, rows: list[int]) -> Tensor:
        """log pi_old (N,) of the response tokens of these rows."""
        return self.plan.tokens.gather(self.plan.tokens.old, rows)

    def advantages(self, rows: list[int]) -> Tensor:
        """A_t = R_t - V_old(s_t) (B,) of these rows (Rare-tool section 3.3)."""
        returns = [self.plan.rows[row].parts[RETURN] for row in rows]
        return torch.tensor(returns) - self.values[rows]

    def _read(self, path: Path) -> bool:
        """Loads the file if it belongs to this training; returns whether it did."""
        refuse_irregular(path)
        if not path.exists():
            return False
        with naming_damage(path), safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", ""))
            if facts != self.facts:
                return False
            self.plan.tokens.old = file.get_tensor("logprobs")
            self.values = file.get_tensor("values")
        return True
