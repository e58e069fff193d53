"""What is left of a study, and what its parts took, in time and on the disk."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import msgspec

from agentcli.records.files import write_atomic
from agentcli.records.runs import RunDirectory
from agentcli.records.study import DEMOS, PartCost
from agentcli.stages.study import Chain, StudyPlan

TOOK = "took.yaml"
"""File of a study's folder with what its parts took."""


class StudyCost(msgspec.Struct, kw_only=True):
    """What is left of a study; None where nothing is known."""

    seconds: int | None
    disk_bytes: int | None


def remaining(plans: Sequence[StudyPlan], jobs: int) -> StudyCost:
    """The time and the disk that the parts need which have not ended.

    By what their like took in this study; before any ended, by what the file says. A
    part of which neither is known takes as long as other arms, or starts, on average.
    """
    costs = [cost for made in plans for cost in _costs_left(made)]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return StudyCost(seconds=None, disk_bytes=None)
    return StudyCost(
        seconds=round(sum(cost.seconds for cost in known) / jobs),
        disk_bytes=round(1e6 * sum(cost.megabytes for cost in known)),
    )


def _costs_left(made: StudyPlan) -> Iterator[PartCost | None]:
    """The cost of each part that has not ended; None where nothing is known."""
    known = {**made.study.took, **took(made)}
    for part in [chain.part for chain in made.chains if chain.left]:
        kind = _kind(made, part)
        alike = [cost for name, cost in known.items() if _kind(made, name) == kind]
        costs = alike or [*known.values()]
        yield known.get(part) or (_mean(costs) if costs else None)


def _kind(made: StudyPlan, part: str) -> str:
    if part in made.study.arms:
        return "arm"
    return "start" if part in made.study.starts else DEMOS


def took(made: StudyPlan) -> dict[str, PartCost]:
    """What each arm and start took, a mean over the seeds that have ended."""
    costs: dict[str, list[PartCost]] = {}
    for chain in made.chains:
        if not chain.left:
            cost = PartCost(seconds=_seconds(chain), megabytes=_bytes(chain) / 1e6)
            costs.setdefault(chain.part, []).append(cost)
    return {part: _mean(of_part) for part, of_part in costs.items()}


def write_took(made: StudyPlan) -> None:
    """Writes OUT/took.yaml: what parts took, in the form that a study's file has it."""
    lines = ["took:"]
    for part, cost in took(made).items():
        size = f"{{seconds: {cost.seconds:.0f}, megabytes: {cost.megabytes:.0f}}}"
        lines.append(f"  {part}: {size}")
    write_atomic(made.out / TOOK, ("\n".join(lines) + "\n").encode())


def _mean(costs: Sequence[PartCost]) -> PartCost:
    return PartCost(
        seconds=fmean(cost.seconds for cost in costs),
        megabytes=fmean(cost.megabytes for cost in costs),
    )


def _seconds(chain: Chain) -> float:
    """Wall-clock seconds of the stages of a chain."""
    total = 0.0
    for command in chain.commands:
        record = RunDirectory(command.folder).finished(command.stage)
        total += record.seconds.get("wall", 0.0) if record else 0.0
    return total


def _bytes(chain: Chain) -> int:
    """Bytes of the files in the folders of a chain."""
    folders = {command.folder for command in chain.commands}
    return sum(
        path.stat().st_size
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
