"""The snapshot from which a killed training resumes.

state.safetensors contains weights/<parameter>, AdamW's moments by parameter name, and
random/<generator> with one row per process. Its header contains everything else as JSON
text. It is one file, replaced atomically: a kill at any moment leaves the old snapshot
or the new one. It takes 12 bytes per trained parameter.

Planned data (order, weights, old and reference log-probabilities) is not stored: it is
computed again from the starting model, and `facts` tell whether the result is the same.
An objective that updates such data keeps its own files in the same folder. The metrics
lines so far stay in metrics.jsonl.
"""

import hashlib
import json
import math
import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from transformers import TrainerCallback

from agentcli.errors import DataError
from agentcli.records.regular import is_there, refuse_irregular
from agentcli.training.loop.checkpoints import write_tensors
from agentcli.training.loop.distributed import (
    Processes,
    gather_from_ranks,
    placed_like,
    whole_tensors,
)
from agentcli.training.loop.optimizers import (
    optimizer_tensors,
    put_optimizer_tensors,
    trained_parameters,
)

FILE = "state.safetensors"
AGAIN = "start again with --overwrite"
Facts = dict[str, int | str]


class SnapshotHeader(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything in a snapshot that is not a tensor."""

    facts: Facts
    update: int
    """Number of updates done."""
    lines: int
    """Number of metrics lines written."""
    counters: dict[str, float]
    """The trainer's own running sums."""
    rates: list[float]
    """Learning rate of each parameter group."""
    scheduler: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """The model, optimiser and schedule of a training."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    device: torch.device
    updates_before: int = 0
    """Updates that the optimiser had made before this training."""

    def tensors(self) -> dict[str, Tensor]:
        """Weights and moments by their names in the file."""
        tensors = optimizer_tensors(self.optimizer, self.model)
        for name, parameter in trained_parameters(self.model).items():
            tensors[f"weights/{name}"] = parameter
        return tensors


def digest(*values: Any) -> str:
    """A short hash of values that msgspec can encode."""
    return hashlib.blake2b(msgspec.json.encode(values), digest_size=8).hexdigest()


def settings_fact(settings: msgspec.Struct, without: Collection[str] = ()) -> str:
    """A hash of all settings that affect the result.

    The interval between snapshots is not one of them.
    """
    values: dict[str, Any] = msgspec.to_builtins(settings)
    for name in (*without, "save_every_updates"):
        del values[name]
    return digest(values)


def model_fact(model: torch.nn.Module) -> str:
    """A hash of every parameter's name, shape and first 64 values.

    It is cheap to compute, and differs between checkpoints.
    """
    beginnings = []
    for name, parameter in model.named_parameters():
        values = parameter.detach().flatten()[:64].cpu().tolist()
        beginnings.append((name, list(parameter.shape), values))
    return digest(beginnings)


class Snapshots(TrainerCallback):
    """Writes a snapshot after every `every`-th update; resumes from an existing one.

    `facts` (numbers, and hashes of settings, data and starting model) identify the
    training: only a snapshot with the same facts is resumed. Creating this object
    restores weights, moments and scheduler from the snapshot. As a callback of the
    Trainer it restores the random states when the first update begins. If `folder` is
    None, it does nothing.

    Raises DataError, naming --overwrite, for a snapshot that is damaged or belongs to
    another training.
    """

    def __init__(
        self,
        folder: Path | None,
        every: int,
        facts: Facts,
        trained: Trained,
        processes: Processes,
    ) -> None:
        self.path = folder / FILE if folder is not None else None
        self.resumed: SnapshotHeader | None = None
        self._every = every
        self._trained = trained
        self._processes = processes
        self._facts: Facts = {**facts, "processes": processes.size}
        self._random: dict[str, Tensor] = {}
        if self.path is not None and is_there(self.path):
            self._restore(self.path)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Restores the random states once, after the Trainer's own preparation."""
        if self._random:
            restore_random_state(self._random, self._trained.device)
            self._random = {}

    def save(self, update: int, lines: int, counters: dict[str, float]) -> None:
        """Writes a snapshot if one is due. Raises WriteError.

        Every process calls it, between updates.
        """
        if self.path is None or update % self._every:
            return
        trained = self._trained
        tensors: dict[str, Tensor] = {}
        for name, state in random_state(trained.device).items():
            states = gather_from_ranks(state, self._processes, trained.device)
            tensors[f"random/{name}"] = states
        main = self._processes.main
        tensors.update(whole_tensors(trained.tensors(), keep=main))
        if not main:
            return
        header = {
            "facts": self._facts,
            "update": update,
            "lines": lines,
            "counters": counters,
            "rates": [float(group["lr"]) for group in trained.optimizer.param_groups],
            "scheduler": trained.scheduler.state_dict(),
        }
        write_tensors(self.path, tensors, {"snapshot": json.dumps(header)})

    def _restore(self, path: Path) -> None:
        """Restores the contents of the file, after checking that its facts match."""
        refuse_irregular(path)
        with naming_damage(path), safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            values = json.loads(metadata.get("snapshot", ""))
            header = msgspec.convert(values, SnapshotHeader)
        self._check(path, header)
        with naming_damage(path), safe_open(path, "pt") as file:
            self._put(file, header)
        self.resumed = header

    def _check(self, path: Path, header: SnapshotHeader) -> None:
        """Raises DataError if the snapshot belongs to another training."""
        for name, now in self._facts.items():
            then = header.facts.get(name)
            if then != now:
                difference = f"{name}: {then}, now {now}"
                if isinstance(now, str):  # a hash means nothing to a reader
                    difference = f"other {name}"
                raise DataError(
                    f"{path}: the snapshot is of another training ({difference}); "
                    f"{AGAIN}"
                )

    def _put(self, file: Any, header: SnapshotHeader) -> None:
        """Restores weights, moments and schedule; keeps the random states for later."""
        trained = self._trained
        weights: dict[str, Tensor] = {}
        random_states: dict[str, Tensor] = {}
        moments: dict[str, Tensor] = {}
        for key in file.keys():  # noqa: SIM118 - no mapping
            kind, _, name = key.partition("/")
            if kind == "weights":
                weights[name] = file.get_tensor(key)
            elif kind == "random":
                random_states[name] = file.get_tensor(key)
            else:
                moments[key] = file.get_tensor(key)
        parameters = trained_parameters(trained.model)
        saved_shapes = {name: value.shape for name, value in weights.items()}
        shapes = {name: parameter.shape for name, parameter in parameters.items()}
        if saved_shapes != shapes:
            raise DataError("its weights are not the model's")
        put_optimizer_tensors(trained.optimizer, trained.model, moments)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(placed_like(weights[name], parameter))
        trained.scheduler.load_state_dict(header.scheduler)
        # The schedule sets the rates only at its next step.
        groups = trained.optimizer.param_groups
        for group, rate in zip(groups, header.rates, strict=True):
            group["lr"] = rate
        self._random = {
            name: random_states[name][self._processes.rank]
            for name in random_state(trained.device)
        }


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Turns any exception from reading a damaged file into a DataError naming it."""
    try:
        yield
    except (OSError, SafetensorError, ValueError, LookupError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{path}: the snapshot is damaged ({reason}); {AGAIN}"
        ) from error


def random_state(device: torch.device) -> dict[str, Tensor]:
    """States of Python's, numpy's and torch's global generators, as 1-D tensors.

    On a GPU, also the state of that device. All tensors are on the CPU.
    """
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    second_gauss = math.nan if gauss is None else gauss
    states = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor([second_gauss], dtype=torch.float64),
        "numpy": torch.tensor([*keys, position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    """Restores the states. Raises KeyError if one is missing."""
    second_gauss = states["python_gauss"].item()
    gauss = None if math.isnan(second_gauss) else second_gauss
    random.setstate((3, tuple(states["python"].tolist()), gauss))

    *keys, position, has_gauss = states["numpy"].tolist()
    words = np.array(keys, dtype=np.uint32)
    cached = states["numpy_gauss"].item()
    np.random.set_state(("MT19937", words, position, has_gauss, cached))

    # torch reads a slice from the start of its storage, so a row must be cloned.
    torch.set_rng_state(states["torch"].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].clone(), device)
    if device.type == "mps":
        torch.mps.set_rng_state(states["mps"].clone())
