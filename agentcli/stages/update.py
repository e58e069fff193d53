"""The update of one iteration of a loop, in this process or in processes of its own.

The end of a process frees all of a GPU, which the loop's sampler takes next. Several
can share a model, and an error of CUDA ends nothing but them. They are given the update
as JSON, and answer with a line of JSON for everything that a user should see.
"""

import asyncio
import gc
import os
import shlex
import signal
import sys
import traceback
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import AgentCliError, UsageError
from agentcli.exploration.settings import decode
from agentcli.records.kernel import die_with_parent
from agentcli.records.processes import how_ended, rank, search_path
from agentcli.records.runs import RunDirectory, remember_hashes
from agentcli.records.settings import RolloutSettings, RunSettings
from agentcli.reports.standing import Progress
from agentcli.stages.layers import same_files
from agentcli.stages.remote import RemoteFault, fault_of
from agentcli.stages.session import Invocation, Within, carry_out
from agentcli.stages.train import perform, plan

MODULE = "agentcli.stages.update"
SECONDS_TO_END = 2.0
"""How long other processes may take to end after one that reported a fault."""
VISIBLE = "CUDA_VISIBLE_DEVICES"

Warn = Callable[[str], None]


class IterationUpdate(msgspec.Struct, kw_only=True):
    """What `train` needs to know of an iteration; the rest is in its folder."""

    settings: dict[str, Any]
    run: str
    """The iteration's folder."""
    model: str
    """The directory or hub id that it starts from."""
    tracking: str
    """The loop's folder for trackers."""
    beside: dict[str, float]
    """Metrics for trackers, besides those of the trees."""
    command: list[str]
    """The words of the loop, for the manifest."""
    layers: list[str] = []
    """Where the loop's settings come from, for the manifest."""
    hashes: dict[str, str]
    """What the loop has hashed already (records/runs.py)."""

    def carry_out(self, progress: Progress, warn: Warn) -> None:
        """Trains in this process; an interrupted training is resumed."""
        update = plan(
            decode(self.settings),
            Path(self.run),
            None,
            model=self.model,
            tracking_dir=Path(self.tracking),
            beside=self.beside,
        )
        within = Within(progress, "success")
        invocation = Invocation(
            self.command, resume=True, progress=within, layers=self.layers
        )
        carry_out(update, partial(perform, warn=warn), invocation)


def updates_before(run: RunDirectory) -> int:
    """Number of optimiser updates before an iteration's training."""
    record = run.finished("train")
    return record.statistics.get("updates_before", 0) if record else 0


def updates_after(run: RunDirectory) -> int:
    """Number of optimiser updates after an iteration's training."""
    record = run.finished("train")
    updates = record.statistics.get("updates", 0) if record else 0
    return updates_before(run) + updates


def refuse_unreadable(run: RunDirectory, explored: RolloutSettings) -> None:
    """Raises AgentCliError if no response was readable and nothing was learned.

    The next iteration would be the same.
    """
    rollout = run.finished("rollout")
    train = run.finished("train")
    if rollout is None or train is None or train.statistics.get("updates", 0):
        return
    responses = rollout.counts.get("responses", 0)
    if not responses or rollout.counts["malformed_responses"] < responses:
        return
    remedy = (
        "lower train.learning_rate, or start from a policy that imitated longer "
        "(sft.updates)"
    )
    # Other methods ask in the form that every demonstration has.
    if explored.numbered:
        method = explored.method
        world = ["--env", train.settings["environment"]["name"]]
        files = shlex.join(same_files(train.layers) or world)
        remedy = (
            f"teach the policy the form of {method}, and start from it, with: agentcli "
            f"demos {files} --set rollout.method={method} -o runs/demos-{method} && "
            f"agentcli sft runs/demos runs/demos-{method}"
        )
    raise AgentCliError(
        f"{run.path}: none of {responses} responses was readable, and no update was "
        f"made; {remedy}"
    )


def training_processes(settings: RunSettings) -> int:
    """How many processes of their own train an iteration; 0: this one trains.

    Raises UsageError for more than there are GPUs, and for a training in this process
    that could not use what it sees.
    """
    import torch

    gpus = torch.cuda.device_count()
    if settings.train_in == "process":
        if settings.processes > 1:
            raise UsageError(
                f"run.processes: {settings.processes}, but run.train_in is process, "
                "which is one; set run.train_in=child"
            )
        if gpus > 1:
            raise UsageError(
                f"run.train_in: process, which sees {gpus} GPUs and trains on one; set "
                f"run.train_in=child, or make one visible with {VISIBLE}=0"
            )
        return 0
    if 0 < gpus < settings.processes:
        raise UsageError(
            f"run.processes: {settings.processes}, one GPU each, and {gpus} are "
            f"visible; set run.processes={gpus}"
        )
    if settings.train_in == "auto" and settings.processes == 1 and not gpus:
        return 0
    return settings.processes


def release_memory() -> None:
    """Frees what finished work left behind: cycles of objects, and torch's cache."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


async def train_in_children(
    update: IterationUpdate, processes: int, progress: Progress, warn: Warn
) -> None:
    """Trains in that many processes. Raises the error that ended them.

    They may be killed at any moment, as snapshots are resumed: if this process is
    interrupted or ends, they are.
    """
    words = ["-m", MODULE, msgspec.json.encode(update).decode()]
    environment = _environment(processes, update.settings["threads"])
    children: list[Process] = []
    with meeting_place(processes) as place:
        try:
            for rank in range(processes):
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    env=environment | place(rank),
                    # Ctrl-C reaches the whole group; only the loop is to react, and
                    # ends them itself.
                    start_new_session=True,
                    preexec_fn=partial(die_with_parent, signal.SIGKILL),
                )
                children.append(child)
            await _all_ended(update.run, children, progress, warn)
        finally:
            for child in children:
                if child.returncode is None:
                    child.kill()
                    await child.wait()


@contextmanager
def meeting_place(processes: int) -> Iterator[Callable[[int], dict[str, str]]]:
    """Yields what tells a process its rank, and where it finds the others.

    These are torchrun's variables. As there, the store is this process's, on a port
    that is free, so that two loops do not meet.
    """
    if processes == 1:
        yield lambda rank: {}
        return
    from torch import distributed

    host = "127.0.0.1"
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        host, 0, is_master=True, wait_for_workers=False
    )

    def place(rank: int) -> dict[str, str]:
        ranks = {"RANK": rank, "LOCAL_RANK": rank}
        sizes = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        variables = {**ranks, **sizes, "MASTER_ADDR": host, "MASTER_PORT": store.port}
        # With it, rank 0 connects to the store as the others do, and starts none itself.
        variables["TORCHELASTIC_USE_AGENT_STORE"] = True
        return {name: str(value) for name, value in variables.items()}

    yield place


async def _all_ended(
    run: str, children: list[Process], progress: Progress, warn: Warn
) -> None:
    """Shows what the processes say until all have ended. Raises what ended them."""
    faults: list[RemoteFault] = []
    deaths: list[str] = []

    async def ended(rank: int, child: Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            fault = _shown(line, progress, warn)
            if fault is not None:
                faults.append(fault)
                return
        code = await child.wait()
        if code:
            how = how_ended(code)
            deaths.append(f"process {rank} of {len(children)} ended with {how}")

    waiting = {
        asyncio.create_task(ended(rank, child)) for rank, child in enumerate(children)
    }
    try:
        while waiting and not faults + deaths:
            _, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
        # Processes lose one that was killed, and may say so before its end is known.
        if waiting and not deaths:
            await asyncio.wait(waiting, timeout=SECONDS_TO_END)
    finally:
        for task in waiting:
            task.cancel()
    if deaths:
        raise AgentCliError(
            f"{run}: training {deaths[0]}; go on with --resume, and if nobody ended "
            "it, allow it more memory"
        )
    if faults:
        raise faults[0].error()


def _environment(processes: int, threads: int) -> dict[str, str]:
    """The environment of the processes: they import as this one does, and see as many
    GPUs as they are, if there are any.
    """
    import torch

    # `-m` would put the working folder first, where a file may hide a library.
    environment = os.environ | {"PYTHONPATH": search_path(), "PYTHONSAFEPATH": "1"}
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    environment.setdefault(
        "PYTHONWARNINGS", "ignore::FutureWarning,ignore::DeprecationWarning"
    )
    gpus = torch.cuda.device_count()
    if gpus:
        # The variable may name some GPUs of many, or have UUIDs: a part of it stays
        # valid.
        visible = os.environ.get(VISIBLE) or ",".join(map(str, range(gpus)))
        environment[VISIBLE] = ",".join(visible.split(",")[:processes])
    return environment


class Event(msgspec.Struct, array_like=True):
    """A line from a process that trains: wait, phase, warn or fault."""

    name: str
    values: list[Any]


class Reporter(Progress):
    """Sends everything to the loop; of several processes, only the first shows figures.

    Takes stdout for itself: what libraries print there, in C too, goes to stderr.
    """

    def __init__(self) -> None:
        self._pipe = os.dup(1)
        os.dup2(2, 1)
        self._rank = rank()

    def wait(self, text: str) -> None:
        """Shows what is waited for."""
        self._show("wait", text)

    def phase(self, text: str, figures: Mapping[str, float]) -> None:
        """Shows how far the update is."""
        self._show("phase", text, figures)

    def warn(self, text: str) -> None:
        """Shows a line beside the loop's bar."""
        self._show("warn", text)

    def fault(self, error: Exception) -> None:
        """Says why this process ends."""
        place = f"process {self._rank}: " if self._rank else ""
        fault = fault_of(error, place)
        self._send("fault", fault.kind, fault.text)

    def _show(self, name: str, *values: Any) -> None:
        if self._rank == 0:
            self._send(name, *values)

    def _send(self, name: str, *values: Any) -> None:
        event = Event(name, list(values))
        os.write(self._pipe, msgspec.json.encode(event) + b"\n")


def _shown(line: bytes, progress: Progress, warn: Warn) -> RemoteFault | None:
    """Shows what a line says; returns the fault that it names."""
    try:
        event = msgspec.json.decode(line, type=Event)
    except msgspec.DecodeError:
        # Something was printed before the process took its stdout.
        sys.stderr.write(line.decode(errors="replace"))
        return None
    if event.name == "fault":
        return RemoteFault(*event.values)
    show: dict[str, Callable[..., None]]
    show = {"wait": progress.wait, "phase": progress.phase, "warn": warn}
    show[event.name](*event.values)
    return None


def main() -> None:
    """Trains the update named on the command line, and reports to the loop.

    A fault is reported, and is not the process's status: the loop ends all of them.
    """
    die_with_parent(signal.SIGKILL)
    reporter = Reporter()
    update = msgspec.json.decode(sys.argv[1], type=IterationUpdate)
    remember_hashes(update.hashes)
    try:
        update.carry_out(reporter, reporter.warn)
    except Exception as error:
        if os.environ.get("AGENTCLI_DEBUG") == "1":
            traceback.print_exc()
        reporter.fault(error)


if __name__ == "__main__":
    main()
