"""The snapshot from which a killed training resumes, and the optimisers in it.

state.safetensors contains weights/<parameter>, AdamW's moments by parameter name, and
random/<generator> with one row per process. Its header contains everything else as JSON
text. It is one file, replaced atomically: a kill at any moment leaves the old snapshot
or the new one. It takes 12 bytes per trained parameter.

Planned data (order, weights, old and reference log-probabilities) is not stored: it is
computed again from the starting model, and `facts` tell whether the result is the same.
An objective that updates such data keeps its own files in the same folder. The metrics
lines so far stay in metrics.jsonl.

An optimiser is AdamW, or bitsandbytes' AdamW with 8-bit moments. Moments are stored as
safetensors by parameter name: no pickle is involved, and they are restored bit for bit.
Learning rate, betas and weight decay are not stored: they are settings of the call that
continues.
"""

import hashlib
import json
import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from transformers import TrainerCallback

from agentcli.errors import DataError, UsageError
from agentcli.policies.registry import require_installed
from agentcli.records.regular import is_there, refuse_irregular
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop import distributed
from agentcli.training.loop.checkpoints import write_tensors


def check_optimizer(settings: TrainSettings) -> None:
    """Checks that the chosen optimiser can be used.

    Raises MissingError without bitsandbytes, UsageError if it would have to be sharded.
    """
    if settings.optimizer == "adamw":
        return
    if settings.sharding != "none":
        raise UsageError(
            f"train.optimizer: {settings.optimizer} keeps moments of whole weights; set "
            "train.optimizer=adamw or train.sharding=none"
        )
    reader = f"train.optimizer: {settings.optimizer}"
    require_installed("bitsandbytes", "quantised", reader)


def make_optimizer(
    settings: TrainSettings, groups: Sequence[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Creates the optimiser of train.optimizer for groups of parameters."""
    options: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": settings.adam_betas,
        "eps": settings.adam_epsilon,
    }
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(list(groups), fused=True, **options)
    from bitsandbytes.optim import AdamW8bit

    optimizer: torch.optim.Optimizer = AdamW8bit(list(groups), **options)
    return optimizer


def fill_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Before every step, sets the missing gradients of parameters to 0.

    A vision model may have layers after the one whose output is used. This way every
    parameter has moments, and a snapshot contains all of them.
    """

    def fill(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    # A gradient of 0 is not the same as none: AdamW decays such a weight.
    optimizer.register_step_pre_hook(fill)


_PARTS = ("exp_avg", "exp_avg_sq", "step")
_OF_8_BITS = ("state1", "state2", "step")
"""State tensors of bitsandbytes' AdamW8bit; small weights have unquantised moments."""
_OF_BLOCKS = ("absmax1", "absmax2", "qmap1", "qmap2")
"""Scales of quantised moments, and the values of their 256 levels."""


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name."""
    named = model.named_parameters()
    return {name: parameter for name, parameter in named if parameter.requires_grad}


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: torch.nn.Module
) -> dict[str, Tensor]:
    """The moments of every updated parameter, named `<part>/<parameter>`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for part, value in optimizer.state.get(parameter, {}).items():
            if part in {*_PARTS, *_OF_8_BITS}:
                tensors[f"{part}/{name}"] = torch.as_tensor(value)
            elif part in _OF_BLOCKS:
                # All weights share one tensor of levels, and a file may not contain it
                # twice.
                tensors[f"{part}/{name}"] = value.clone()
    return tensors


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    tensors: dict[str, Tensor],
) -> int:
    """Loads moments into a new optimiser. Returns the number of its earlier updates.

    Raises DataError naming the first tensor that is missing, does not belong to this
    model or has another shape.
    """
    if not tensors:
        return 0  # an optimiser that was never used
    trained = trained_parameters(model)
    in_8_bits = not isinstance(optimizer, torch.optim.AdamW)
    parts = _OF_8_BITS if in_8_bits else _PARTS
    expected = {f"{part}/{name}" for name in trained for part in parts}
    if in_8_bits:
        expected |= _scales(trained, tensors)
    wrong = sorted(expected ^ set(tensors))
    if wrong:
        missing = wrong[0] in expected
        fault = "is missing" if missing else "is not a parameter of this model"
        raise DataError(f"{wrong[0]} {fault} ({len(wrong)} such)")
    updates = 0
    for name, parameter in trained.items():
        state: dict[str, Any] = {}
        for part in parts[:2]:
            moments = tensors[f"{part}/{name}"]
            if moments.shape != parameter.shape:
                raise DataError(
                    f"{part}/{name}: shape is {tuple(moments.shape)}, the model's is "
                    f"{tuple(parameter.shape)}"
                )
            state[part] = distributed.placed_like(moments, parameter)
        for part in _OF_BLOCKS:
            if f"{part}/{name}" in expected:
                state[part] = tensors[f"{part}/{name}"].to(parameter.device)
        step = tensors[f"step/{name}"]
        # The same for all: `fill_gradients` lets no parameter miss an update.
        updates = int(step.item())
        # bitsandbytes counts updates with a plain number.
        state["step"] = updates if in_8_bits else step.to(parameter.device)
        optimizer.state[parameter] = state
    return updates


def _scales(names: Iterable[str], tensors: dict[str, Tensor]) -> set[str]:
    """The names of the scales of these parameters' quantised moments."""
    scales = set()
    for name in names:
        moments = tensors.get(f"state1/{name}")
        if moments is not None and moments.dtype == torch.uint8:
            scales |= {f"{part}/{name}" for part in _OF_BLOCKS}
    return scales


def save_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
    main: bool = True,
) -> None:
    """Writes the moments of every updated parameter, atomically.

    In a sharded training all processes call it; the main one writes.
    """
    tensors = distributed.whole_tensors(optimizer_tensors(optimizer, model), keep=main)
    if main:
        write_tensors(path, tensors)


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module,
    path: Path,
) -> int:
    """Loads saved moments into a new optimiser. Returns its number of earlier updates.

    Raises DataError if the file cannot be read or does not belong to this model.
    """
    refuse_irregular(path)
    try:
        return put_optimizer_tensors(optimizer, model, load_file(path))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path}: no optimiser state can be read there ({error}); set "
            "train.carry_optimizer=false"
        ) from error
    except DataError as error:
        raise DataError(
            f"{path}: {error}; set train.carry_optimizer=false to start afresh"
        ) from error


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
    None, it does nothing. Unless it `resumes`, an existing snapshot is not looked at.

    Raises DataError, naming --overwrite, for a snapshot that is damaged or belongs to
    another training.
    """

    def __init__(
        self,
        folder: Path | None,
        every: int,
        facts: Facts,
        trained: Trained,
        processes: distributed.Processes,
        *,
        resumes: bool = True,
    ) -> None:
        self.path = folder / FILE if folder is not None else None
        self.resumed: SnapshotHeader | None = None
        self._every = every
        self._trained = trained
        self._processes = processes
        # Random states are stored a row for each process, so their number must match.
        self._facts: Facts = {**facts, "processes": processes.size}
        self._random: dict[str, Tensor] = {}
        if resumes and self.path is not None and is_there(self.path):
            self._restore(self.path)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Restores the random states once, after the Trainer's own preparation."""
        if self._random:
            restore_random_state(self._random, self._trained.device)
            self._random = {}

    def forget(self) -> None:
        """Deletes the snapshot of an earlier training, so that none resumes from it."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def save(self, update: int, lines: int, counters: dict[str, float]) -> None:
        """Writes a snapshot if one is due. Raises WriteError.

        Every process calls it, between updates.
        """
        if self.path is None or update % self._every:
            return
        trained = self._trained
        tensors: dict[str, Tensor] = {}
        for name, state in random_state(trained.device).items():
            states = distributed.gather_from_ranks(
                state, self._processes, trained.device
            )
            tensors[f"random/{name}"] = states
        main = self._processes.main
        tensors.update(distributed.whole_tensors(trained.tensors(), keep=main))
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
        # The header comes first: tensors of another training are never read.
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
                parameter.copy_(distributed.placed_like(weights[name], parameter))
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
    # NaN stands for None, which a tensor cannot hold.
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
    # 3 is the version of the form in which Python gives its state.
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
