"""What a study's table says of figures and arms that cannot be set against each other, and what is refused before."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentcli.analysis.study import add_loop, differences, unlike, unlike_tasks, untold
from agentcli.records.files import write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.section import read
from agentcli.records.study import ArmOutcome, Study
from agentcli.stages.layers import find_preset
from agentcli.stages.study import StudyPlan, plan
from compared_loops import made
from refusal import refused
from sample_records import evaluation

ARMS = ("g", "x", "y")


def study(**more: Any) -> Study:
    values: dict[str, Any] = {
        "title": "t",
        "preset": "quickstart-tunnel",
        "arms": {arm: {} for arm in ARMS},
        "reference": "g",
        "panels": {"test": {"split": "test"}},
    }
    return read(values | more, Study, "")


def outcome(arm: str, seed: int, **totals: float) -> ArmOutcome:
    return ArmOutcome(arm=arm, seed=seed, panels={"test": {"success": 0.5}}, totals=totals)


def test_what_was_spent_is_compared_on_the_seeds_that_both_have() -> None:
    """Each seed costs both the same; x has only the two cheap ones, and y none of them."""
    ended = [outcome("g", seed, steps=100 * (seed + 1)) for seed in range(4)]
    ended += [outcome("x", seed, steps=100 * (seed + 1)) for seed in range(2)]
    assert list(unlike([*ended, outcome("y", 7, steps=1)], "g", ["steps"])) == []
    ended[-1].totals["steps"] = 350
    assert list(unlike(ended, "g", ["steps"])) == ["steps: x 1.50 of g's"]


def test_responses_that_are_not_known_are_not_none() -> None:
    first, unknown = outcome("g", 0, steps=10, responses=100), outcome("x", 0, steps=10)
    (line,) = unlike([first, unknown], "g", ["responses", "steps"])
    assert line.startswith("responses: of x not known")
    (line,) = unlike([first, unknown], "x", ["responses"])
    assert line == "responses: x has none, or it is not known"
    # One seed without them leaves the others.
    ended = [first, unknown, outcome("g", 1, responses=100), outcome("x", 1, responses=50)]
    assert list(unlike(ended, "g", ["responses"])) == ["responses: x 0.50 of g's"]


def test_a_loop_of_pairs_has_no_number_of_responses(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shutil.copytree(made(tmp_path_factory.getbasetemp()) / "x", tmp_path / "x", symlinks=True)
    known, unknown = outcome("g", 0), outcome("x", 0)
    add_loop(known, tmp_path / "x")
    assert known.totals["responses"] == sum(known.responses) > 0
    file = tmp_path / "x/iteration_001/manifest.json"
    manifest = json.loads(file.read_bytes())
    manifest["stages"]["train"]["statistics"]["rows"] = None
    write_json(file, manifest)
    add_loop(unknown, tmp_path / "x")
    assert known.totals.keys() - unknown.totals.keys() == {"responses"}
    assert unknown.totals["updates"] == known.totals["updates"]


def figures(paper: str, measure: str = "success", **of: float) -> dict[str, Any]:
    return {"paper": paper, "table": "1", "measure": measure, "figures": of}


def said(results: list[dict[str, Any]], papers: dict[str, str], **more: Any) -> list[str]:
    """What is said of these figures where all arms have success, and `papers` stand beside their gains."""
    ended = [outcome(arm, seed) for arm in ARMS for seed in (0, 1)]
    gains = list(differences(ended, "g", {}))
    for gain in gains:
        gain.paper = papers.get(gain.arm)
    return list(untold(study(results=results, **more), gains))


def test_a_figure_that_stands_nowhere_names_the_paper_in_its_place() -> None:
    a, b = figures("A", g=50, x=60), figures("B", g=50, y=40)
    beside = {"x": "A, 1", "y": "B, 1"}
    assert said([a, b], beside) == []
    # x of a third paper has A beside it, whichever hash comes first; y alone is no reason to hide that.
    assert said([a, b, figures("C", g=50, x=70)], beside) == ["no gain beside C, 1 (test: success): A, 1 stands there"]
    both = figures("B", g=50, x=70, y=40)
    assert said([a, both], beside) == ["no gain beside B, 1 (test: success of x): A, 1 stands there"]


def test_a_figure_without_its_measure_or_its_reference_says_so() -> None:
    panels = {"test": {"by": "pass-at-k", "split": "test", "samples": 16}}
    (line,) = said([figures("P", "pass@32", g=50, x=60)], {}, panels=panels)
    assert line == "no gain beside P, 1 (test: pass@32): pass@32 was not measured"
    (line,) = said([figures("P", x=60)], {})
    assert line == "no gain beside P, 1 (test: success): it has no figure of g"
    (line,) = said([figures("P", g=60)], {})
    assert line.endswith("its arms were not compared")


def test_arms_that_played_other_tasks_are_named(tmp_path: Path) -> None:
    """A budget has cut the panel of x on seed 1, and y has not ended there."""
    ended = [outcome(arm, seed) for seed in (0, 1) for arm in ARMS if (arm, seed) != ("y", 1)]
    for one in ended:
        summary = evaluation()
        if (one.arm, one.seed) == ("x", 1):
            summary.panel.sha256 = "0" * 64
        file = RunDirectory(tmp_path / str(one.seed) / one.arm).evaluation("test").with_suffix(".json")
        file.parent.mkdir(parents=True)
        write_json(file, summary.values())
    whole = StudyPlan(study(), tmp_path, [0, 1], [*ARMS])
    (line,) = unlike_tasks(whole, ended)
    assert line.startswith("x (seed 1) played other tasks of test than g;")
    assert "evaluation.budget" in line
    assert list(unlike_tasks(whole, [one for one in ended if one.seed == 0])) == []


KEPT = {"evaluation": {"trees": "failed"}}
DROPPED = {"evaluation": {"trees": "none"}}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"settings": KEPT, "measures": ["success", "entropy"]}, ("settings.evaluation.trees: failed", "entropy")),
        ({"settings": DROPPED, "by_step": ["actions"]}, ("settings.evaluation.trees: none", "by_step")),
        ({"arms": {"g": {}, "x": KEPT}, "measures": ["actions"]}, ("arms.x.evaluation.trees", "actions")),
        (
            {"starts": {"start": {"settings": DROPPED}}, "measures": ["nodes"]},
            ("starts.start.settings.evaluation.trees", "nodes"),
        ),
        (
            {"panels": {"test": {"split": "test", "settings": KEPT}}, "measures": ["diversity"]},
            ("panels.test.settings.evaluation.trees", "diversity of test"),
        ),
        ({"preset": "own.yaml", "by_step": ["actions"]}, (": evaluation.trees: failed", "by_step of test")),
    ],
    ids=["study", "by step", "arm", "start", "panel", "preset"],
)
def test_trees_that_are_measured_are_kept(more: dict[str, Any], names: tuple[str, ...], empty_folder: Path) -> None:
    preset = find_preset("quickstart-tunnel").read_text(encoding="utf-8")
    Path("own.yaml").write_text(json.dumps(yaml.safe_load(preset) | KEPT), encoding="utf-8")
    refused(lambda: plan(study(**more), Path("out")), 2, names, "write evaluation.trees: all")


def test_trees_that_nothing_reads_may_be_dropped(tmp_path: Path) -> None:
    second = {"test": {"split": "test"}, "more": {"split": "test", "settings": DROPPED}}
    kept = {"test": {"split": "test", "settings": {"evaluation": {"trees": "all"}}}}
    for more in (
        {"settings": DROPPED, "measures": ["success", "steps"]},
        {"panels": second, "by_step": ["actions"]},
        {"panels": kept, "settings": KEPT, "measures": ["entropy"]},
    ):
        assert plan(study(**more), tmp_path / "out").left
