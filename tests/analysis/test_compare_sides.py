"""Several runs a side: gains over seeds by hand, pairs by recorded seed whatever the order, and what is refused."""

import json
import math
import shutil
from pathlib import Path

import msgspec
import pytest
from agentcli.analysis.advice import from_scratch
from agentcli.analysis.compare import read_side
from agentcli.analysis.compare_training import read_iteration
from agentcli.analysis.schema import json_schema
from agentcli.analysis.sides import compare_sides
from agentcli.evaluation.compare import RunComparison
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.summary import summarise
from agentcli.records.files import RecordWriter, read_json, read_records, write_json
from agentcli.records.runs import loop_folders
from agentcli.records.types import Episode, Outcome, Tree
from agentcli.reports.standing import Progress
from command_line import agentcli
from compared_loops import made
from compared_runs import edit, refused, toy
from older_runs import without_checksums
from refusal import refused as refused_call
from staged import evaluate, rollout

WON = {"a-0": 2, "a-1": 5, "a-2": 3, "b-0": 3, "b-1": 7, "b-2": 6}
"""Tasks of ten that each run wins: gains of 1, 2 and 3 tasks by seed."""


def let_win(run: Path, wins: int, label: str = "test") -> None:
    """The evaluation as if the first `wins` tasks had been won, and no others."""
    path = run / f"evaluation/{label}.jsonl"
    rows = list(read_records(path, Episode))
    for place, row in enumerate(rows):
        won = place < wins
        row.outcome = Outcome.SUCCESS if won else Outcome.FAILURE
        row.score = float(won)
    path.unlink()
    with RecordWriter(path) as writer:
        for row in rows:
            writer.write(row)
    told = msgspec.to_builtins(read_json(path.with_suffix(".json"), EvaluationSummary))
    told |= msgspec.to_builtins(summarise(rows))
    write_json(path.with_suffix(".json"), msgspec.convert(told, EvaluationSummary).values())


@pytest.fixture(scope="module")
def six_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sides")
    for name, wins in WON.items():
        evaluate(toy(tasks=10, seed=int(name[-1])), folder / name)
        let_win(folder / name, wins)
        without_checksums(folder / name)
    return folder


@pytest.fixture
def six(six_runs: Path, empty_folder: Path) -> Path:
    """Copies of them in the folder to be in."""
    shutil.copytree(six_runs, empty_folder, dirs_exist_ok=True)
    return empty_folder


def compared(*words: str, labels: tuple[str, ...] = ()) -> RunComparison:
    return compare_sides([read_side(Path(word)) for word in words], labels, Progress())


def test_the_gain_over_seeds_is_that_by_hand(six: Path) -> None:
    """10, 20, 30 points: mean 20, deviation 10, t of two degrees of freedom 4.3027; all three of one sign: p = 2 / 2 ** 3."""
    (one,) = compared("a-*", "b-*").differences
    assert (one.panel, one.measure, one.arm, one.seeds) == ("test", "success", "b-*", [0, 1, 2])
    assert (one.reference_mean, one.mean, one.gain) == pytest.approx((100 / 3, 160 / 3, 20))
    half = 4.302653 * 10 / math.sqrt(3)
    assert (one.low, one.high) == pytest.approx((20 - half, 20 + half))
    assert one.p == 0.25


def test_runs_are_paired_by_their_recorded_seed_whatever_the_order(six: Path) -> None:
    shutil.move("a-0", "z")
    found = compared("a-2,z,a-1", "b-1,b-2,b-0")
    assert found.sides == {"a-2,z,a-1": ["z", "a-1", "a-2"], "b-1,b-2,b-0": ["b-0", "b-1", "b-2"]}
    (one,) = found.differences
    assert (one.seeds, one.gain, one.p) == ([0, 1, 2], pytest.approx(20), 0.25)


def test_the_test_over_games_takes_seeds_as_samples(six: Path) -> None:
    """Of ten tasks the first two are won alike; task 3 by a-1 and a-2 and all of b; none but the sixth and seventh by b alone."""
    row = compared("a-*", "b-*").evaluations["test"]["b-*"]
    assert (row.episodes, row.tasks, row.success.rate) == (30, 10, pytest.approx(16 / 30))
    assert row.against
    assert (row.against.tasks, row.against.gained, row.against.lost) == (10, 5, 0)
    assert row.against.success.difference == pytest.approx(6 / 30)
    assert row.against.mcnemar is None
    assert sum(kind.episodes for kind in row.kinds.values()) == 30


def test_every_further_side_is_set_against_the_first(six: Path) -> None:
    for seed in range(3):
        shutil.copytree(f"a-{seed}", f"c-{seed}")
    found = compared("a-*", "b-*", "c-*")
    assert [(one.arm, one.gain) for one in found.differences] == [("b-*", pytest.approx(20)), ("c-*", 0.0)]
    assert list(found.evaluations["test"]) == ["a-*", "b-*", "c-*"]


def test_labels_that_all_hold_are_compared_and_others_named(six: Path) -> None:
    for run in WON:
        for suffix in (".json", ".jsonl"):
            shutil.copy(f"{run}/evaluation/test{suffix}", f"{run}/evaluation/more{suffix}")
    Path("b-1/evaluation/more.json").unlink()
    answer = agentcli("compare", "a-*", "b-*", "--json")
    assert {one["panel"] for one in json.loads(answer.stdout)["differences"]} == {"test"}
    assert "left out: more" in answer.stderr
    assert "b-1/evaluation/more.json" in refused("a-*", "b-*", "--label", "more", code=3)


def test_a_score_beyond_success_is_compared_too(six: Path) -> None:
    for run in WON:
        edit(f"{run}/evaluation/test.json", lambda summary: summary.update(score=0.5 + summary["success"]["rate"] / 4))
    gains = {one.measure: one.gain for one in compared("a-*", "b-*").differences}
    assert gains == {"success": pytest.approx(20), "score": pytest.approx(5)}


def test_tables_on_stdout_and_json_by_its_schema(six: Path) -> None:
    answer = agentcli("compare", "a-0,a-1,a-2", "b-*")
    assert (answer.code, answer.stderr) == (0, "")
    for part in (
        "test: success, over seeds",
        "+20.0 (-4.8 to +44.8)",
        "0.250",
        "over games",
        "by kind",
        "exact signed-rank test over seeds",
    ):
        assert part in answer.stdout
    assert "solved" not in answer.stdout
    assert "paper" not in answer.stdout
    told = json.loads(agentcli("compare", "a-*", "b-*", "--json").stdout)
    read = msgspec.convert(told, RunComparison)
    assert msgspec.to_builtins(read) == msgspec.to_builtins(compared("a-*", "b-*"))
    schema = json_schema("comparison")
    assert told.keys() <= schema["$defs"]["RunComparison"]["properties"].keys()


def test_a_pattern_of_one_run_a_side_is_that_run(six: Path) -> None:
    assert agentcli("compare", "a-0", "b-0").stdout == agentcli("compare", "a-[0]", "b-0*").stdout
    assert "differences" not in json.loads(agentcli("compare", "a-0", "b-[0]", "--json").stdout)


# What is refused.


def test_unlike_seeds_are_refused(six: Path) -> None:
    line = refused("a-*", "b-0,b-1", code=2)
    assert all(part in line for part in ("b-0,b-1", "0, 1", "0, 1, 2", "a-*"))
    assert "0, 1" in refused("a-0,a-1", "b-0", code=2)


def test_a_seed_that_is_there_twice_is_refused(six: Path) -> None:
    shutil.copytree("b-1", "b-3")
    line = refused("a-*", "b-*", code=2)
    assert all(part in line for part in ("b-3", "b-1", "seed 1"))


def test_panels_of_one_seed_must_be_alike(six: Path) -> None:
    shutil.rmtree("b-1/evaluation")
    evaluate(toy(tasks=8, seed=1), Path("b-1"))
    line = refused("a-*", "b-*", code=2)
    assert all(part in line for part in ("b-1", "a-1", "evaluation test", "8 tasks", "10 tasks"))


def test_a_part_of_a_panel_that_a_budget_left_is_not_compared_with_the_whole(six: Path) -> None:
    shutil.rmtree("b-1/evaluation")
    evaluate(toy(tasks=10, seed=1, evaluation={"budget": "leaves=5"}), Path("b-1"))
    assert all(part in refused("a-*", "b-*", code=2) for part in ("b-1", "5 tasks", "10 tasks"))


def test_a_name_that_could_be_both_is_refused(six: Path) -> None:
    shutil.copytree("a-0", "a-0,a-1")
    assert all(part in refused("a-0,a-1", "b-0,b-1", code=2) for part in ("a-0,a-1", "a-0, a-1"))
    shutil.copytree("a-0", "a-[0]")
    assert "a-[0]" in refused("a-[0]", "b-0", code=2)


def test_a_run_with_a_comma_in_its_name_is_still_a_run(six: Path) -> None:
    shutil.move("a-0", "a,0")
    shutil.move("a-1", "a[1]")
    for name in ("a,0", "a[1]"):
        assert read_side(Path(name)).runs == [Path(name)]
        assert list(json.loads(agentcli("compare", name, "b-0", "--json").stdout)["evaluations"]["test"]) == [
            name,
            "b-0",
        ]


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (("x-*", "b-*"), 3, "x-*"),
        (("a-0,,a-1", "b-0,b-1"), 2, "a-0,,a-1"),
        (("a-0,a-9", "b-0,b-1"), 3, "a-9"),
        (("a-*",), 2, "a-*"),
        (("a-*", "a-0,b-1,b-2"), 2, "a-0"),
        (("a-0,a-1", "b-0/evaluation/test.json,b-1"), 2, "b-0/evaluation/test.json"),
    ],
)
def test_what_names_no_side_is_refused(six: Path, words: tuple[str, ...], code: int, names: str) -> None:
    assert names in refused(*words, code=code)


def test_a_run_whose_stages_have_not_ended_has_no_seed(six: Path) -> None:
    Path("b-1/manifest.json").unlink()
    assert "b-1" in refused("a-*", "b-*", code=3)


def test_the_seed_of_a_run_is_not_that_of_its_evaluations(six: Path) -> None:
    for name in ("c", "d"):
        rollout(toy(seed=7), Path(name))
        evaluate(toy(tasks=10, seed=0), Path(name))
    edit("d/manifest.json", lambda manifest: manifest["stages"].update(rollout=manifest["stages"].pop("rollout")))
    line = refused("c,d", "a-0,a-1", code=2)
    assert "seed 7" in line


# Loops.


@pytest.fixture
def loops(empty_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two loops of each kind in the folder to be in; those of seed 1 began with another iteration."""
    source = made(tmp_path_factory.getbasetemp())
    for name in ("x", "y"):
        shutil.copytree(source / name, f"{name}-0", symlinks=True)
        shutil.copytree(source / name, f"{name}-1", symlinks=True)
        edit(f"{name}-1/manifest.json", lambda manifest: manifest["stages"]["run"].update(seed=1))
    shutil.rmtree("y-1/iteration_000")
    shutil.copytree("y-0/iteration_002", "y-1/iteration_000", symlinks=True)


def test_loops_have_areas_and_what_they_spent(loops: None) -> None:
    courses = {run: [from_scratch(one).success for one in loop_folders(Path(run))] for run in ("x-0", "y-0", "y-1")}
    found = compared("x-*", "y-*")
    (one,) = found.differences
    assert (one.panel, one.measure) == ("loop", "area"), "three iterations are too few for a level"
    areas = {run: 100 * sum(course) / 3 for run, course in courses.items()}
    assert one.reference_mean == pytest.approx(areas["x-0"])
    assert one.gain == pytest.approx((areas["y-0"] + areas["y-1"]) / 2 - areas["x-0"])
    assert any(line.startswith("updates: y-* ") for line in found.unlike)
    assert "not spent alike: updates: y-* " in agentcli("compare", "x-*", "y-*").stdout


def let_loop(run: str, wins: list[bool]) -> list[int]:
    """The loop as if all of an iteration's trajectories had won, or none; returns the steps of each."""
    folders = [Path(f"{run}/iteration_{number:03}") for number in range(len(wins))]
    for folder in folders[3:]:
        shutil.copytree(folders[2], folder, symlinks=True)
    for folder, won in zip(folders, wins, strict=True):
        trees = list(read_records(folder / "trees.jsonl", Tree))
        (folder / "trees.jsonl").unlink()
        with RecordWriter(folder / "trees.jsonl") as writer:
            for tree in trees:
                for step in tree.steps:
                    if step.outcome is not None:
                        step.outcome = Outcome.SUCCESS if won else Outcome.FAILURE
                writer.write(tree)
    edit(f"{run}/manifest.json", lambda manifest: manifest["stages"]["run"]["counts"].update(iterations=len(wins)))
    return [read_iteration(folder).rollout.ledger.steps for folder in folders]


def test_steps_to_levels_are_those_by_hand(loops: None) -> None:
    """All begin at 0. x: 5 of its first iterations have a mean of 80 %. y: iterations 2 to 6 have 20 %, 3 to 7 have 40 %."""
    early, late = [False] + 6 * [True], 5 * [False] + 2 * [True]
    steps = {run: let_loop(run, early if run.startswith("x") else late) for run in ("x-0", "x-1", "y-0", "y-1")}
    found = {one.measure: one for one in compared("x-*", "y-*").differences}
    assert list(found) == ["area", "steps to +10", "steps to +20", "steps to +30"]
    assert found["area"].gain == pytest.approx(100 * (2 / 7 - 6 / 7))
    for points, until in ((10, 6), (20, 6), (30, 7)):
        one = found[f"steps to +{points}"]
        assert one.reference_mean == (sum(steps["x-0"][:5]) + sum(steps["x-1"][:5])) / 2
        assert one.mean == (sum(steps["y-0"][:until]) + sum(steps["y-1"][:until])) / 2
        assert one.seeds == [0, 1]


def test_a_level_lies_above_what_both_sides_began_with(loops: None) -> None:
    """y wins all of its first iteration and x none: together 50 %. Only a mean of 60, 70, 80 % counts."""
    for run in ("x-0", "x-1"):
        let_loop(run, [False] + 3 * [True] + 3 * [False])
    for run in ("y-0", "y-1"):
        let_loop(run, [True] + 3 * [False] + 3 * [True])
    measures = {one.measure for one in compared("x-*", "y-*").differences}
    assert measures == {"area", "steps to +10"}


def test_a_loop_that_has_not_ended_is_named(loops: None) -> None:
    shutil.rmtree("y-1/iteration_002")
    refused_call(lambda: compared("x-*", "y-*"), 3, ("x-*", "y-1"), remedy="agentcli eval")
