"""What a study's table says of figures and arms that cannot be set against each other, and what is refused before."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from agentcli.analysis.estimate import write_took
from agentcli.analysis.study import add_loop, differences, unlike, unlike_tasks, untold
from agentcli.records.files import write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.section import read
from agentcli.records.study import ArmOutcome, Study, seeds_of
from agentcli.stages.layers import find_preset
from agentcli.stages.study import Chain, StudyPlan, plan
from agentcli.stages.yaml_files import read_yaml
from command_line import agentcli
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


GREEDY = {"evaluation": {"temperature": 0}}


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"panels": {"test": {"split": "test", "settings": GREEDY}}}, "panels.test.settings.evaluation.temperature"),
        ({"arms": {"g": {}, "x": {"evaluation": {"samples": 1}}}}, "arms.x.evaluation.samples"),
        ({"starts": {"start": {"settings": {"evaluation": {"n": 9}}}}}, "starts.start.settings.evaluation.n"),
        ({"settings": {"evaluation": {"split": "train"}}}, ": settings.evaluation.split"),
        (
            {"panels": {"a": {"split": "test", "settings": {"evaluation": {"label": "b"}}}}},
            "panels.a.settings.evaluation.label",
        ),
        (
            {"panels": {"a": {"split": "test", "settings": {"environment": {"split": "train"}}}}},
            "panels.a.settings.environment.split",
        ),
    ],
)
def test_settings_that_a_panel_replaces_are_refused(more: dict[str, Any], place: str, tmp_path: Path) -> None:
    refused(lambda: plan(study(**more), tmp_path), 2, place, "write it there")


def test_the_model_of_a_panel_is_what_was_trained(tmp_path: Path) -> None:
    panels = {"test": {"split": "test", "settings": {"policy": {"kind": "expert"}}}}
    refused(lambda: plan(study(panels=panels), tmp_path), 2, ("of start-test", "policy.kind", "expert"), "leave it out")


def test_a_start_has_its_own_attempts(tmp_path: Path) -> None:
    panels = {"test": {"split": "test", "by": "pass-at-k", "samples": 4}}
    few, many = ({"evaluation": {"k": k}} for k in (2, 8))
    assert plan(study(panels=panels, settings=few), tmp_path).left
    starts = {"start": {"settings": many}}
    asked = study(panels=panels, settings=few, starts=starts)
    refused(lambda: plan(asked, tmp_path), 2, ("of start", "panels.test.samples", "pass@8"), "evaluation.k")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"title": "a\nb"}, "title: "),
        ({"results": [figures("P\n", g=1)]}, "results[0].paper: "),
        ({"search": {"values": [10**400, 2], "seed": 9}}, "search.values[0]: "),
        ({"search": {"values": [2, float("nan")], "seed": 9}}, "search.values[1]: "),
        ({"search": {"values": [2, float("inf")], "seed": 9}}, "search.values[1]: "),
        ({"search": {"values": [2, 3], "seed": -1}}, "search.seed: "),
    ],
)
def test_a_bad_value_is_refused_by_its_key(more: dict[str, Any], place: str) -> None:
    assert refused(lambda: study(**more), 2, place).startswith(place)


@pytest.mark.parametrize("text", ["٣", "9" * 5000, "0-" + "1" * 5000])
def test_a_seed_has_ten_digits_at_most(text: str) -> None:
    assert len(refused(lambda: seeds_of(text, "seeds"), 2, "seeds")) < 100


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ({"values": [1e-3, -1e-3], "seed": 0}, ("search.values", "train.learning_rate")),
        ({"path": "nope.x", "values": [1, 2], "seed": 0}, ("search.path", "nope")),
        ({"values": [1e-3, 1e-4], "seed": 1}, ("search.seed: 1",)),
    ],
)
def test_what_a_search_makes_bad_is_refused_by_its_key(
    search: dict[str, Any], names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = msgspec.to_builtins(study(seeds="1-2")) | {"search": search}
    Path("s.yaml").write_text(json.dumps(values), encoding="utf-8")
    line = refused(agentcli("study", "s.yaml", "--dry-run"), 2, names)
    assert line.startswith("s.yaml: search.")


def test_what_parts_took_is_read_again_under_their_names(tmp_path: Path) -> None:
    arms = ["g", "1e3", "null", "2024-13-32"]
    made = StudyPlan(study(), tmp_path, [0], arms, [Chain(f"{arm} 0", ()) for arm in arms])
    write_took(made)
    assert list(read_yaml(tmp_path / "took.yaml")["took"]) == arms


def test_settings_of_a_preset_and_of_a_loops_evaluations_stand(tmp_path: Path) -> None:
    """What `extends` brings is not written in the file; a loop that is evaluated reads what an arm says."""
    arms = {"g": {"extends": "gigpo-search"}, "x": GREEDY | {"run": {"evaluate_every": 2}}}
    assert plan(study(arms=arms), tmp_path).left
    panels = {"test": {"split": "test", "settings": GREEDY}}
    refused(lambda: plan(study(arms=arms, panels=panels), tmp_path), 2, "panels.test.settings.evaluation.temperature")


def test_trees_that_nothing_reads_may_be_dropped(tmp_path: Path) -> None:
    second = {"test": {"split": "test"}, "more": {"split": "test", "settings": DROPPED}}
    kept = {"test": {"split": "test", "settings": {"evaluation": {"trees": "all"}}}}
    for more in (
        {"settings": DROPPED, "measures": ["success", "steps"]},
        {"panels": second, "by_step": ["actions"]},
        {"panels": kept, "settings": KEPT, "measures": ["entropy"]},
    ):
        assert plan(study(**more), tmp_path / "out").left
