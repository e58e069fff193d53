"""The time that is left of a study: what its file says, on this machine, several parts at once."""

from pathlib import Path

import msgspec
import pytest
from agentcli.analysis.estimate import remaining, yardstick
from agentcli.analysis.study import searched
from agentcli.records.study import PartCost, SearchChoice, Study
from agentcli.stages.study import plan, read_study
from small_study import STUDY


@pytest.fixture
def file(empty_folder: Path) -> Path:
    path = Path("s.yaml")
    path.write_text(STUDY, encoding="utf-8")
    return path


def says(file: Path, yardstick: float | None = None, **seconds: float) -> Study:
    """The study of the file, which says what parts took: as many megabytes as seconds."""
    took = {part: PartCost(seconds=of, megabytes=of) for part, of in seconds.items()}
    return msgspec.structs.replace(read_study(file), took=took, yardstick=yardstick)


def test_what_was_never_played_takes_as_long_as_its_like(file: Path) -> None:
    """10 s of demonstrations, 30 of a start, 100 of an arm and of the other. A search: 4 arms."""
    known = says(file, demos=10, start=30, grpo=100)
    made = plan(known, Path("out"), seeds="0")
    assert remaining([made], 1).seconds == 240
    assert remaining([made], 1).disk_bytes == 240e6
    search = SearchChoice(values=[1e-4, 3e-4], seed=9)
    trial = plan(searched(made.study, search, made.arms), Path("out"))
    assert remaining([trial, made], 1).seconds == 440 + 240
    only = plan(says(file, demos=9), Path("out"))
    assert remaining([only], 1).seconds is None, "nothing tells of a training"


def test_where_nothing_was_played_arithmetic_speaks_and_says_so(file: Path) -> None:
    known = msgspec.structs.replace(says(file, demos=9), gpu_hours=1234.4)
    cost = remaining([plan(known, Path("out"), seeds="0")], 1)
    assert (cost.seconds, cost.disk_bytes) == (None, None)
    assert "by arithmetic 1,234 hours of one H100" in cost.basis
    played = msgspec.structs.replace(says(file, demos=9, start=9, grpo=9), gpu_hours=1234.4)
    assert "H100" not in remaining([plan(played, Path("out"), seeds="0")], 1).basis


def test_several_jobs_wait_for_what_an_arm_begins_with(file: Path) -> None:
    known = says(file, demos=10, start=30, grpo=100, rewardflow=60)
    one, two = (plan(known, Path("out"), seeds=seeds) for seeds in ("0", "0-1"))
    assert [remaining([one], jobs).seconds for jobs in (1, 2, 9)] == [200, 140, 140]
    # Then an arm of each seed, and the other of each: grpo in the file comes first.
    assert [remaining([two], jobs).seconds for jobs in (1, 2, 4)] == [400, 200, 140]


def test_a_slower_machine_takes_longer(file: Path) -> None:
    """This one needs more than a microsecond for the yardstick, and less than a second."""
    faster, slower = (
        remaining([plan(says(file, yardstick=there, grpo=100, start=30, demos=10), Path("out"), seeds="0")], 1)
        for there in (1e-3, 1e3)
    )
    assert faster.disk_bytes == slower.disk_bytes == 240e6
    assert faster.seconds > 240 > slower.seconds
    assert faster.seconds == round(240 * yardstick() / 1e-3)
