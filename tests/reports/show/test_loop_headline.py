"""How far a loop came is never one iteration's draw of tasks."""

import io

import msgspec
from agentcli.evaluation.summary import summarise
from agentcli.records.types import StageRecord
from agentcli.reports.show.run_tables import loop_line
from agentcli.reports.show.runs import IterationOverview, headline, success_of
from rich.console import Console

SHARES = [0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 1.0, 0.0]


def looped(evaluated: dict[int, dict[str, float]] | None = None) -> list[IterationOverview]:
    overviews = []
    for number, share in enumerate(SHARES):
        one = IterationOverview(
            folder=f"iteration_{number:03d}",
            trees=8,
            leaves=64,
            success=share,
            steps=9,
            tokens=9,
            trained=True,
            results=summarise([]),
        )
        overviews.append(msgspec.structs.replace(one, evaluated=(evaluated or {}).get(number, {})))
    return overviews


def line(overviews: list[IterationOverview]) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(loop_line(overviews))
    return file.getvalue()


def test_a_headline_is_the_mean_of_quarters() -> None:
    ends = headline(looped())
    assert (ends.first, ends.last) == (0.5, 0.5)
    assert "quarter" in ends.measured_on
    assert "8 iterations: 50.0 %" in line(looped())
    assert "25.0 %" not in line(looped())


def test_a_loop_that_was_evaluated_is_known_by_its_evaluations() -> None:
    ends = headline(looped({0: {"L0": 0.4}, 4: {"L0": 0.6, "other": 0.1}, 7: {"L0": 0.8}}))
    assert (ends.first, ends.last) == (0.4, 0.8)
    assert "L0" in ends.measured_on


def test_one_evaluation_says_nothing_of_a_course() -> None:
    assert "quarter" in headline(looped({7: {"L0": 0.8}})).measured_on


def test_fewer_iterations_than_quarters_stand_for_themselves() -> None:
    ends = headline(looped()[:2])
    assert (ends.first, ends.last) == (0.25, 0.75)


def test_a_list_of_runs_has_the_last_quarter() -> None:
    times = dict.fromkeys(("started", "finished"), "2026-01-01T00:00:00+00:00")
    record = StageRecord(command=[], settings={}, versions={}, git_commit=None, seed=0, **times)
    record.statistics = {"success": SHARES}
    assert success_of("run", record) == 0.5
