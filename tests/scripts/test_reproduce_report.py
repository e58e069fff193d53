"""Measures, tables and pictures from a results.json made by hand."""

from pathlib import Path

import pytest
import reproduce_report
from made_results import RISING, made
from plot_results import PICTURES, draw
from refusal import refused
from reproduce_measures import (
    Measure,
    area,
    by_seed,
    compare,
    games,
    measures,
    over_games,
    quarters,
    rate,
    regimes,
    to_level,
)
from reproduce_results import Selection, merge, save


def test_the_reference_leads() -> None:
    (regime,) = regimes(made())
    assert regime.methods == ("grpo", "gigpo", "carl")
    assert regime.seeds == (0, 1)
    assert regimes(made(), "carl")[0].reference == "carl"


def test_a_picture_can_show_some_methods_and_seeds(tmp_path: Path) -> None:
    save(tmp_path / "r.json", made())
    part = Selection(methods=["grpo", "gigpo"], seeds=[1])
    assert {(run.method, run.seed) for run in part.of(made()).runs} == {("grpo", 1), ("gigpo", 1)}
    assert [start.seed for start in part.of(made()).starts] == [1]
    (path,) = draw([tmp_path / "r.json"], tmp_path, names=["success"], part=part, title="two")
    assert path == tmp_path / "two-success.svg"
    refused(lambda: Selection(methods=["none"]).of(made()), 3, "--methods")


def test_sampled_success_over_seeds_by_hand() -> None:
    """50 % against 75 and 83.3 %: differences 25 and 33.3; t with one degree of freedom is 12.706."""
    (regime,) = regimes(made())
    sampled = measures()[0]
    reference, own = (by_seed(regime, sampled, method) for method in ("grpo", "gigpo"))
    assert reference == pytest.approx([50, 50])
    assert own == pytest.approx([75, 250 / 3])
    tested = compare(reference, own)
    assert tested is not None
    half = 12.7062 * (25 / 3 / 2)
    assert (tested.mean, tested.low, tested.high) == pytest.approx((175 / 6, 175 / 6 - half, 175 / 6 + half), rel=1e-4)
    assert (tested.pairs, tested.p, tested.least_p) == (2, 0.5, 0.5)


def test_a_seed_that_one_side_lacks_is_no_pair() -> None:
    (regime,) = regimes(made())
    sampled = measures()[0]
    reference, own = (by_seed(regime, sampled, method) for method in ("grpo", "carl"))
    assert own == [pytest.approx(50), None]
    tested = compare(reference, own)
    assert tested is not None
    assert tested.pairs == 1
    assert compare([None, 1.0], [2.0, None]) is None


def test_area_and_steps_to_a_level_by_hand() -> None:
    """The start has 25 %. Means of five: .34, .38, .40 after 500, 600, 700 steps; 40 % is reached last, never by grpo."""
    (regime,) = regimes(made())
    run = regime.runs["gigpo", 0]
    assert area(regime, run) == pytest.approx(100 * sum(RISING) / 7)
    reached = {points: by_seed(regime, to_level(points), "gigpo") for points in (5, 10, 15, 20)}
    assert reached == {5: [500, 500], 10: [600, 600], 15: [700, 700], 20: [None, None]}
    assert by_seed(regime, to_level(5), "grpo") == [None, None]


def test_games_are_paired_by_seed_and_place() -> None:
    (regime,) = regimes(made())
    own = games(regime, "gigpo", "L0", "place")
    assert own == {(0, 2): [1, 1, 0], (0, 3): [1, 0, 0], (1, 2): [1, 1, 0], (1, 3): [1, 1, 0]}
    assert rate(own)[0] == pytest.approx(100 * 7 / 12)
    tested = over_games(games(regime, "grpo", "L0"), games(regime, "gigpo", "L0"))
    assert tested is not None
    assert tested.gain.value == pytest.approx(175 / 6)
    assert tested.mcnemar is None
    greedy = over_games(games(regime, "start", "L0-greedy"), games(regime, "grpo", "L0-greedy"))
    assert greedy is not None
    assert greedy.mcnemar == pytest.approx(2 / 2**6)


def test_quarters_leave_out_what_is_unknown() -> None:
    assert quarters([None, 1.0, 2.0, 4.0, 5.0, 7.0, None, None]) == [1.0, 3.0, 6.0, None]
    assert quarters([1.0, 2.0]) == [1.0, 2.0]


def test_the_report_says_all(capsys: pytest.CaptureFixture[str]) -> None:
    (regime,) = regimes(merge([("made", made())]))
    reproduce_report.report(regime)
    lines = capsys.readouterr().out.splitlines()
    assert "Not there: carl 1." in lines
    assert "| carl | not reached | - | - | - | - | - | - |" in lines
    assert "| gigpo | 500 | 500 | 500 | - | - | - | - |" in lines
    assert "| gigpo | 75.0 | 83.3 | 79.2 | +29.2 (-23.8 to +82.1) | 2 | 0.5 | 0.5 |" in lines
    assert ["carl", "`credit.method=carl`", "ccccccc"] in [line.strip("| ").split(" | ") for line in lines]
    assert any(line.startswith("| grpo | 2 | 1,400 | 14 |") and " 75.0 | 42.9 |" in line for line in lines)
    assert any(line.startswith("| grpo | 0 | -, 0.100 |") and line.endswith("| -2.0 | 1.5 |") for line in lines)
    widths = [len(line.split(" | ")) for line in lines if line.startswith("| ---")]
    assert len(widths) == 6 + 6


def test_a_measure_that_no_run_has_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    results = made()
    for run in results.runs:
        del run.evaluations["L0-greedy"]
    (regime,) = regimes(results)
    reproduce_report.seed_tables(regime)
    assert "greedy" not in capsys.readouterr().out


def test_without_the_start_s_score_no_level_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    results = made()
    for start in results.starts:
        del start.evaluations["L0"]
    (regime,) = regimes(results)
    reproduce_report.seed_tables(regime)
    assert "not reached |" not in capsys.readouterr().out


def test_numbers_in_their_unit() -> None:
    steps = Measure("x", "steps", lambda regime, run: None)
    assert reproduce_report.number(12345.4, steps) == "12,345"


def test_every_table_has_its_picture(tmp_path: Path) -> None:
    save(tmp_path / "results.json", made())
    written = draw([tmp_path / "results.json"], tmp_path / "all")
    assert [path.name for path in written] == [f"six-{name}.svg" for name in PICTURES]
    (again,) = draw([tmp_path / "results.json"], tmp_path / "again", names=["levels"])
    assert again.read_bytes() == (tmp_path / "all" / again.name).read_bytes()
