"""What a study says where something has no value, and which figures of papers stand where."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from agentcli.analysis.advice import from_scratch
from agentcli.analysis.study import (
    add_loop,
    began_with,
    difference,
    differences,
    measured,
    results,
    unmeasured,
)
from agentcli.errors import DataError, UsageError
from agentcli.records.runs import RunDirectory
from agentcli.records.section import read
from agentcli.records.study import ArmOutcome, PanelChoice, PaperResult, StartChoice, Study, StudyResults
from agentcli.reports.plots.figures import Course, training_figure
from agentcli.reports.study import draw, remarks, tables
from agentcli.stages.study import StudyPlan, plan
from sample_records import evaluation, stage_record

PANELS = {"test": PanelChoice(split="test"), "L2": PanelChoice(split="L2", drop_from="test")}


def study(**more: object) -> Study:
    return Study(title="t", preset="quickstart-tunnel", arms={"a": {}, "b": {}}, reference="a", panels=PANELS, **more)


def outcome(seed: int, arm: str = "a", **more: object) -> ArmOutcome:
    panels = {"test": {"success": 0.5}, "L2": {"success": 0.2, "drop": 0.6}}
    return ArmOutcome(arm=arm, seed=seed, panels=panels, **more)


def test_what_has_no_value_is_named_with_its_seeds() -> None:
    lost, kept = outcome(1), outcome(2)
    del lost.panels["L2"]["drop"]
    assert list(unmeasured(study(), [kept])) == []
    assert list(unmeasured(study(), [lost, kept])) == [
        "no drop on L2 of a (seed 1): without any success there is nothing to lose"
    ]
    asked = study(measures=["success", "entropy"])
    kept.panels["test"]["entropy"] = 0.4
    assert [line.partition(":")[0] for line in unmeasured(asked, [kept, outcome(3), outcome(3, "b")])] == [
        "no entropy on test of a (seed 3), b (seed 3)",
        "no entropy on L2 of a (seed 2, 3), b (seed 3)",
    ]


@pytest.mark.parametrize(
    ("scores", "shown"), [((0.5, 0.75), (50, 75)), ((0.5, 75.0), (0.5, 75)), ((-20.0, 0.5), (-20, 0.5))]
)
def test_a_score_is_in_percent_unless_the_world_rewards_in_points(
    scores: tuple[float, float], shown: tuple[float, float]
) -> None:
    """ScienceWorld's are from 0 to 100."""
    arms = [ArmOutcome(arm=arm, seed=0, panels={"test": {"score": of}}) for arm, of in zip("ab", scores, strict=True)]
    (found,) = differences(arms, "a", {})
    assert (found.reference_mean, found.mean, found.gain) == (*shown, shown[1] - shown[0])
    assert found.is_share == (scores == (0.5, 0.75))


def test_responses_to_a_level_are_counted_where_they_are_held_equal() -> None:
    """Both are 20 points above the start after five iterations of six; b updates a tenth of the responses."""
    course = [0.5, 0.6, 0.75, 0.85, 0.85, 0.9]
    a = outcome(0, course=course, steps=6 * [100], responses=6 * [50])
    b = outcome(0, "b", course=course, steps=6 * [100], responses=6 * [5])
    began = {("a", 0): 0.5, ("b", 0): 0.5}
    found = {one.measure: one for one in differences([a, b], "a", began, ["responses"]) if one.panel == "loop"}
    assert [name for name in found if name.startswith("responses")] == ["responses to +10", "responses to +20"]
    assert (found["responses to +20"].reference_mean, found["responses to +20"].mean) == (250, 25)
    assert not found["responses to +20"].is_share
    assert all("responses" not in one.measure for one in differences([a, b], "a", began, ["steps"]))
    b.responses = []
    unknown = differences([a, b], "a", began, ["responses"])
    assert [one.measure for one in unknown if one.panel == "loop"] == ["area", "steps to +10", "steps to +20"]


def test_an_iteration_without_a_value_is_a_gap(tmp_path: Path) -> None:
    """A mean over the others; a training without any is named."""
    some = outcome(0, course=[0.1, 0.2], steps=[5, 5], courses={"entropy": [None, 0.25]})
    none = outcome(0, "b", course=[0.1, 0.2], steps=[5, 5], courses={"entropy": [None, None]})
    asked = study(training=["entropy"])
    assert list(unmeasured(asked, [some, none])) == ["no entropy in the training of b (seed 0)"]
    found = StudyResults(study={"title": "t", "reference": "a"}, outcomes=[some, none], differences=[])
    (tmp_path / "gains.svg").write_text("of an earlier table")
    assert {path.name for path in draw(found, tmp_path)} == {"loops.svg", "entropy.svg"}
    assert not (tmp_path / "gains.svg").exists()


def test_a_seed_of_short_trajectories_hides_no_later_step(tmp_path: Path) -> None:
    steps = {0: [1.0, 2.0, 3.0], 1: [3.0, None], 2: [5.0]}
    courses = [
        Course(steps=[1] * 3, values=[*[np.nan if v is None else v for v in of], *[np.nan] * (3 - len(of))])
        for of in steps.values()
    ]
    (line,) = training_figure({"a": courses}, window=1).axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([3, 2, 3])
    outcomes = [outcome(seed, by_step={"actions": of}) for seed, of in steps.items()]
    found = StudyResults(study={"title": "t", "reference": "a"}, outcomes=outcomes, differences=[])
    assert [path.name for path in draw(found, tmp_path)] == ["actions-by-step.svg"]


def test_what_is_no_share_has_three_decimals() -> None:
    entropy = difference("test", "entropy", "b", [0, 1], [0.301, 0.303], [0.321, 0.323])
    tokens = difference("test", "tokens", "b", [0, 1], [301, 303], [321, 323])
    shown = [rows for _, rows in tables([entropy, tokens], "a")]
    assert [row[2:4] for row in shown[0]] == [["0.302", ""], ["0.322", "+0.020 (+0.020 to +0.020)"]]
    assert shown[1][1][2] == "322.0"


def test_an_arm_of_fewer_seeds_names_the_mean_it_is_beside() -> None:
    """b and c gain alike; c has the better seed alone, which must not look like a greater gain."""
    b = difference("test", "success", "b", [0, 1], [20, 40], [30, 50])
    c = difference("test", "success", "c", [1], [40], [50])
    ((_, rows),) = tables([b, c], "a")
    assert [row[2] for row in rows] == ["30.0", "40.0", "50.0 (of 40.0)"]
    said = [list(remarks(StudyResults(study={}, outcomes=[], differences=of))) for of in ([b, c], [b])]
    assert [any("(of N)" in line for line in lines) for lines in said] == [True, False]


def test_a_small_p_is_not_0() -> None:
    shown = []
    for seeds in (6, 10, 12):
        gain = difference(
            "test", "success", "b", [*range(seeds)], [0.0] * seeds, [float(1 + at) for at in range(seeds)]
        )
        ((_, rows),) = tables([gain], "a")
        shown.append(rows[1][4])
    assert shown == ["0.031", "0.002", "0.0005"]


def test_tokens_of_a_step_are_those_of_episodes_that_end_before_the_first() -> None:
    """Every second episode errored at once, so that the mean is half a step."""
    summary = evaluation()
    summary.steps, summary.tokens = 0.5, 20
    assert measured(summary, ["tokens_per_step"])["tokens_per_step"] == 40
    summary.steps = 0
    assert measured(summary, ["tokens_per_step"])["tokens_per_step"] == 20


def test_arms_of_a_model_began_with_what_their_first_iterations_show(tmp_path: Path) -> None:
    """The model itself is not evaluated; a start that imitates is, and its arms have that."""
    asked = study(starts={"cold": StartChoice(), "base": StartChoice(model="m")})
    asked.arms |= {"b": {"start": "base"}, "c": {"start": "base"}}
    courses = {"a": [0.9], "b": [0.2, 0.8], "c": [0.4, 0.8]}
    ended = [outcome(0, "cold"), *(outcome(0, arm, course=course) for arm, course in courses.items())]
    began = began_with(StudyPlan(asked, tmp_path, [0], [*asked.arms]), ended)
    assert began == {("a", 0): 0.5, ("b", 0): pytest.approx(0.3), ("c", 0): pytest.approx(0.3)}


def test_of_two_figures_for_one_place_the_first_stands_there(tmp_path: Path) -> None:
    figures = [PaperResult(paper=name, table="Table 1", figures={"a": 1, "b": 2}) for name in ("P", "Q")]
    asked = study(results=[*figures, PaperResult(paper="R", table="Table 1", figures={"b": 2})])
    rules = results(StudyPlan(asked, tmp_path, [], ["a", "b"])).rules
    assert rules[0] == "no gain beside P, Table 1 (test: success): its arms were not compared"


def test_a_loop_without_log_probabilities_has_no_entropy(tmp_path: Path) -> None:
    (tmp_path / "trees.jsonl").write_text("")
    assert from_scratch(tmp_path).entropy is None


@pytest.mark.parametrize("kept", [[], ["iteration_000"], ["iteration_001"]])
def test_a_course_has_no_gaps(tmp_path: Path, kept: list[str]) -> None:
    """Of two iterations some were deleted."""
    RunDirectory(tmp_path).record_stage("run", msgspec.structs.replace(stage_record(), counts={"iterations": 2}))
    for name in kept:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="some of its iterations are gone"):
        add_loop(outcome(0), tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"arms": {"a": {}, "b": None}}, "s.yaml: arms.b: expected object, got null"),
        (
            {"panels": {"test": {"split": "L0"}, "other": {"split": "L1", "samples": "two"}}},
            "s.yaml: panels.other.samples: expected int, got str",
        ),
        ({"panels": {"test": {"split": "L0"}, "other": {}}}, "s.yaml: panels.other.split: is missing"),
        (
            {"panels": {"test": {"split": "L0"}, "vote": {"split": "L0", "by": "vote"}}},
            "s.yaml: panels.vote.by: must be one of eval, pass-at-k, test-time-branch, is 'vote'",
        ),
        (
            {"results": [{"paper": "P", "table": "T", "figures": {"a": 1.0, "b": "x"}}]},
            "s.yaml: results[0].figures.b: expected float, got str",
        ),
        (
            {"results": [{"paper": "P", "table": "T", "figures": {"a": 1.0}, "measure": "sucess"}]},
            "s.yaml: results[0].measure: must be one of success, ",
        ),
        (
            {"results": [{"paper": "P", "table": "T", "figures": {"a": 1.0}, "panl": "test"}]},
            "s.yaml: results[0].panl: no such setting; did you mean results[0].panel?",
        ),
        ({"starts": [{}]}, "s.yaml: starts: expected object, got array"),
        ({"equal": "responses"}, "s.yaml: equal: expected array, got str"),
        ({"arms": {"a": {}, 1: {}}}, "s.yaml: arms: one of its names: expected str, got int"),
    ],
    ids=[
        "arm",
        "number",
        "missing",
        "choice",
        "in a list",
        "choice in a list",
        "name in a list",
        "a list",
        "not a list",
        "name",
    ],
)
def test_a_bad_value_names_its_arm_or_panel(values: dict[str, Any], said: str) -> None:
    good = {
        "title": "t",
        "preset": "quickstart-tunnel",
        "arms": {"a": {}},
        "reference": "a",
        "panels": {"test": {"split": "L0"}},
    }
    read(good, Study, "s.yaml: ")
    with pytest.raises(UsageError) as refusal:
        read({**good, **values}, Study, "s.yaml: ")
    assert str(refusal.value).startswith(said)


def test_a_greedy_panel_stands_beside_an_arm_that_forks_by_entropy(tmp_path: Path) -> None:
    greedy = {"policy": {"temperature": 0}}
    values = {
        "arms": {"a": {"rollout": {"method": "carl"}}},
        "panels": {"greedy": PanelChoice(split="test", settings=greedy)},
    }
    one = Study(title="t", preset="quickstart-tunnel", reference="a", **values)
    assert plan(one, tmp_path / "out").left
    one.settings = greedy
    with pytest.raises(UsageError, match=r"settings of a: policy\.temperature: 0: carl forks by the entropy"):
        plan(one, tmp_path / "out")
