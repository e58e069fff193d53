"""Studies: what a file may say, which commands it becomes, and what its runs show."""

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml
from agentcli.analysis.advice import from_scratch
from agentcli.analysis.estimate import remaining
from agentcli.analysis.study import (
    add_drops,
    add_training_tokens,
    difference,
    differences,
    refuse_counted,
    results,
    searched,
    settled,
    too_wide,
    verdict_of,
)
from agentcli.errors import AgentCliError
from agentcli.records.files import read_json
from agentcli.records.runs import RunDirectory
from agentcli.records.shards import Shard
from agentcli.records.study import ArmOutcome, SearchChoice, SeedDifference, StudyResults, seeds_of
from agentcli.reports.standing import Progress
from agentcli.reports.study import draw, markdown, page_hint
from agentcli.stages.study import (
    FLAGS,
    TO_THE_END,
    Chain,
    StageCommand,
    StudyPlan,
    find_study,
    list_studies,
    perform,
    plan,
    read_study,
)
from command_line import agentcli as in_process
from command_line import all_commands
from refusal import refused
from sample_records import stage_record
from small_study import STUDY


@pytest.fixture
def file(empty_folder: Path) -> Path:
    path = Path("s.yaml")
    path.write_text(STUDY, encoding="utf-8")
    return path


def changed(file: Path, before: str, after: str) -> Path:
    text = file.read_text(encoding="utf-8")
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")
    return file


# The file.


def test_a_size_lies_over_the_rest_and_the_first_one_is_taken(file: Path) -> None:
    small, paper = read_study(file), read_study(file, "paper")
    assert (small.seeds, small.settings["run"]) == ("0-1", {"iterations": 2})
    assert (paper.seeds, paper.settings["run"], paper.settings["demos"]) == (
        "0-2",
        {"iterations": 100},
        {"count": 30},
    )
    refused(lambda: read_study(file, "huge"), 2, ("s.yaml", "huge", "laptop, paper"))
    assert plan(read_study(changed(file, "seeds: 0-1", "seeds: 5")), Path("out")).seeds == [5]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("reference: grpo", "reference: gropo", ("s.yaml", "reference", "gropo")),
        ("samples: 1", "sample: 1", ("s.yaml", "panels.test.sample", "samples")),
        ("grpo: 26.6", "carl: 26.6", ("s.yaml", "results[0].figures", "carl")),
        ("grpo: {credit", "grpo: {start: cold, credit", ("s.yaml", "arms.grpo.start", "cold")),
        ("title: ", "titel: ", ("s.yaml", "titel", "title")),
        ("table: Table 1", "table: Table 1, measure: score", ("s.yaml", "results[0].measure", "score")),
        ("  grpo: {credit", "  ../grpo: {credit", ("s.yaml", "arms", "letters")),
        ("  rewardflow: {credit", "  demos-2: {credit", ("s.yaml", "demos-2")),
        ("rewardflow: 49.2", "rewardflow: .nan", ("s.yaml", "figures")),
        ("  laptop: {}", "  laptop: [1]", ("s.yaml", "sizes.laptop")),
        ("demos: {count: 30}", "demos: {count: 2024-01-01}", ("settings of all", "date")),
        ("table: Table 1", "table: Table 1, measure: pass@16", ("s.yaml", "results[0].measure", "pass-at-k")),
        ("grpo: {credit", "grpo: {policy: {model: m}, credit", ("of grpo", "policy.model", "starts.NAME.model")),
        ("method: rewardflow", "method: grpo-prm", ("of rewardflow", "process reward model", "rollout.prm")),
        ("grpo: {credit", "grpo: {seed: 3, credit", ("settings of grpo", "seed", "seeds")),
        ("grpo: {credit", "grpo: {environment: {split: tset}, credit", ("of grpo", "environment.split", "tset")),
        ("grpo: {credit", "grpo: {rollout: {method: rare-tool}, credit", ("of grpo", "rare-tool", "Toolbox")),
        ("split: test", "split: test, drop_from: L0", ("s.yaml", "panels.test.drop_from", "L0")),
        ("table: Table 1", "table: Table 1, measure: drop", ("s.yaml", "results[0].measure", "drop_from")),
        ("table: Table 1", "table: Table 1, measure: training_tokens", ("s.yaml", "results[0].panel", "loop")),
        ("samples: 1}", "samples: 1, temperature: 0}\nmeasures: [success, entropy]", ("s.yaml", "measures", "greedy")),
        ("split: test", "by: pass-at-k, split: test", ("panels.test.samples", "pass@16", "evaluation.k")),
        ("seeds: 0-1", "seeds: [0, 1]", ("s.yaml", "seeds", "array")),
        ("split: test", "split: tset", ("settings of grpo", "panels.test.split tset", "test")),
        ("  test: {split", "  loop: {split", ("s.yaml", "panels.loop", "rename")),
        ("title: Credit in the tunnel", 'title: "red \\e[31m"', ("s.yaml", "one line")),
        ("table: Table 1", 'table: "Table\\n1"', ("s.yaml", "one line")),
        ("seeds: 0-1", "took: {gropo: {seconds: 1, megabytes: 1}}\nseeds: 0-1", ("s.yaml", "took", "gropo")),
        ("seeds: 0-1", "took: {grpo: {seconds: 1}}\nseeds: 0-1", ("s.yaml", "took", "megabytes")),
        ("reference: grpo", "starts: {start: {demos: []}}\nreference: grpo", ("s.yaml", "starts", "demos")),
    ],
)
def test_a_bad_file_is_refused_by_its_field(file: Path, before: str, after: str, names: tuple[str, ...]) -> None:
    refused(lambda: plan(read_study(changed(file, before, after)), Path("out")), 2, names)


def test_settings_that_no_stage_would_take_are_refused_before_anything_is_written(file: Path) -> None:
    study = read_study(changed(file, "method: rewardflow", "method: rewardflow, alpa: 1"))
    refused(lambda: plan(study, Path("out")), 2, ("rewardflow", "credit.alpa"))
    assert not Path("out").exists()


@pytest.mark.parametrize(("text", "seeds"), [("0-3", [0, 1, 2, 3]), ("5", [5]), ("3,0-1,1", [3, 0, 1])])
def test_seeds(text: str, seeds: list[int]) -> None:
    assert seeds_of(text, "seeds") == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "0-5000", "1.5"])
def test_what_is_no_seed_is_refused(text: str) -> None:
    refused(lambda: seeds_of(text, "--seeds"), 2, "--seeds")


# The commands.


def test_arms_begin_from_the_checkpoint_of_their_seed(file: Path) -> None:
    made = plan(read_study(file), Path("out"))
    assert [(chain.name, chain.after) for chain in made.chains] == [
        ("demos 0", ()),
        ("start 0", ("demos 0",)),
        ("grpo 0", ("start 0",)),
        ("rewardflow 0", ("start 0",)),
        ("demos 1", ()),
        ("start 1", ("demos 1",)),
        ("grpo 1", ("start 1",)),
        ("rewardflow 1", ("start 1",)),
    ]
    start, grpo = made.chains[1:3]
    assert [command.stage for command in start.commands] == ["sft", "evaluation/test"]
    assert "out/0/start/checkpoint" in grpo.commands[0].words
    assert not Path("out").exists()


def test_only_some_arms_and_seeds(file: Path) -> None:
    study = read_study(file)
    made = plan(study, Path("out"), only=["rewardflow"], seeds="7")
    assert [chain.name for chain in made.chains] == ["demos 7", "start 7", "grpo 7", "rewardflow 7"]
    refused(lambda: plan(study, Path("out"), only=["carl"]), 2, ("--only", "carl", "grpo, rewardflow"))


def test_a_shard_has_a_part_of_the_seeds(file: Path) -> None:
    study = read_study(file)
    parts = [plan(study, Path("out"), seeds="0-4", shard=Shard(index, 2)) for index in (1, 2)]
    assert [made.seeds for made in parts] == [[0, 2, 4], [1, 3]]
    whole = plan(study, Path("out"), seeds="0-4")
    names = [chain.name for made in parts for chain in made.chains]
    assert sorted(names) == sorted(chain.name for chain in whole.chains)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--shard", "3/2"], "--shard is '3/2'"),
        (["--shard", "3/4"], "there are 2 seeds"),
        (["--only", " ,"], "names no arm"),
        (["--workers", "2"], "--workers 2: needs --on ray"),
        (["--on", "moon"], "'moon' is no place"),
        (["--on", "local", "--workers", "2"], "--workers 2: needs --on ray"),
        (["--shard", "1/2", "--add-seeds", "9", "--narrower", "5"], "--add-seeds looks at all seeds"),
    ],
)
def test_machines_are_checked_before_anything_is_played(file: Path, typed: list[str], says: str) -> None:
    answer = in_process("study", str(file), *typed, "-o", "out")
    assert (answer.code, says in answer.stderr) == (2, True), answer.stderr
    assert not Path("out").exists()


def test_a_shard_of_a_study_that_searches_is_refused(file: Path) -> None:
    changed(file, "seeds: 0-1", SEARCH)
    answer = in_process("study", str(file), "--shard", "1/2", "-o", "out")
    assert (answer.code, "train.learning_rate" in answer.stderr) == (2, True), answer.stderr


def test_a_study_of_one_model_has_no_demonstrations(file: Path) -> None:
    """And one whose model is nowhere begins nothing."""
    study = read_study(changed(file, "reference:", "starts: {base: {model: ./none}}\nreference:"))
    made = plan(study, Path("out"), seeds="0")
    assert [(chain.name, chain.after) for chain in made.chains] == [("grpo 0", ()), ("rewardflow 0", ())]
    assert "./none" in made.chains[0].commands[0].words
    refused(lambda: perform(made, 1, Progress()), 4, names="no directory ./none", remedy="starts.base.model in")
    assert not Path("out").exists()


STARTS = """\
starts:
  weak: {}
  both: {demos: [{}, {rollout: {method: dpepo}}], settings: {sft: {updates: 60}}}
  grown: {model: hub/model, demos: [{rollout: {method: dpepo}}]}
reference:"""


def test_starts_share_the_demonstrations_that_are_alike(file: Path) -> None:
    """The second set of `both` is the one of `grown`; no arm begins with `weak`."""
    text = file.read_text(encoding="utf-8").replace("reference:", STARTS)
    for arm, start in (("grpo", "both"), ("rewardflow", "grown")):
        text = text.replace(f"  {arm}: {{credit", f"  {arm}: {{start: {start}, credit")
    file.write_text(text, encoding="utf-8")
    made = plan(read_study(file), Path("out"), seeds="0")
    chains = {chain.name: chain for chain in made.chains}
    assert {name: chain.after for name, chain in chains.items()} == {
        "demos 0": (),
        "demos-2 0": (),
        "both 0": ("demos 0", "demos-2 0"),
        "grown 0": ("demos-2 0",),
        "grpo 0": ("both 0",),
        "rewardflow 0": ("grown 0",),
    }
    words = chains["grown 0"].commands[0].words
    assert words[1] == "out/0/demos-2"
    assert words[words.index("--model") + 1] == "hub/model"


def test_a_panel_has_its_own_settings_and_command(file: Path) -> None:
    more = (
        "panels:\n"
        "  votes: {by: test-time-branch, split: test, samples: 1, settings: {environment: {max_steps: 3}}}\n"
        "  k: {by: pass-at-k, split: test, settings: {evaluation: {k: 3}}}"
    )
    made = plan(read_study(changed(file, "panels:", more)), Path("out"), seeds="0")
    commands = made.chains[2].commands
    assert [(one.stage, one.words[0]) for one in commands] == [
        ("run", "run"),
        ("evaluation/votes", "test-time-branch"),
        ("evaluation/k", "pass-at-k"),
        ("evaluation/test", "eval"),
    ]
    votes = Path(commands[1].words[commands[1].words.index("-c") + 1])
    values = json.loads(made.files[votes])
    assert values["environment"]["max_steps"] == 3
    assert values["credit"] == {"method": "grpo"}
    assert commands[2].words[commands[2].words.index("-n") + 1] == "3"


def test_other_settings_are_another_command(file: Path) -> None:
    before = plan(read_study(file), Path("out")).chains
    after = plan(read_study(changed(file, "method: rewardflow", "method: rewardflow, gamma: 0.8")), Path("out")).chains
    same = [one == other for one, other in zip(before, after, strict=True)]
    assert same == [True, True, True, False] * 2


def test_a_study_may_move(file: Path, tmp_path: Path) -> None:
    """What has ended is known below another name of its folder, and by no other words; `.` is in none."""
    made = plan(read_study(file), Path("out"), seeds="0")
    command = made.chains[0].commands[0]
    words = [word.replace("out/", f"{tmp_path}/moved/") for word in command.words]
    record(command, words)
    assert command.ended
    record(command, [*words, "--overwrite"])
    assert command.ended, "typed again by hand"
    record(command, [word.replace("/0/", "/1/") for word in words])
    assert not command.ended
    record(command, [*words[:-1], "elsewhere"])
    assert not command.ended
    here = plan(read_study(file), Path(), seeds="0").chains[0].commands[0]
    record(here, [*here.words])
    assert here.ended


def test_the_loops_of_a_study_go_on_where_a_policy_forgets_to_answer(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is a result as another. A loop that was played without these words has ended too."""
    typed: list[list[str]] = []
    monkeypatch.setattr("agentcli.stages.study._run", lambda words, log, stopped: typed.append(words) or "")
    made = plan(read_study(file), Path("out"), seeds="0")
    perform(made, 1, Progress(), ["--on", "local"])
    assert {words[0] for words in typed if TO_THE_END[1] in words} == {"run"}
    (loop,) = [words for words in typed if words[0] == "run" and "out/0/grpo" in words]
    command = replace(made.chains[2].commands[0], sources=())
    for words in (loop, [*command.words]):
        record(command, words)
        assert command.ended


def record(command: StageCommand, words: list[str]) -> None:
    """Writes that the command has ended, typed so."""
    entry = msgspec.structs.replace(stage_record(), command=["agentcli", *words, *FLAGS])
    RunDirectory(command.folder).record_stage(command.stage, entry)


def test_settings_from_the_environment_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs would have them, and neither the file nor the words of the commands."""
    monkeypatch.setenv("AGENTCLI_ROLLOUT__LEAVES", "2")
    answer = in_process("study", str(file), "--dry-run")
    assert (answer.code, "AGENTCLI_ROLLOUT__LEAVES" in answer.stderr) == (2, True), answer.stderr


def test_a_part_that_fails_stops_only_what_needs_it(tmp_path: Path, file: Path) -> None:
    """Neither command ends well; the arm of the first is not even begun, another seed is."""

    def chain(name: str, record: str, after: str | None = None) -> Chain:
        commands = (StageCommand(tmp_path / name, "schema", ("schema", record)),)
        return Chain(name, commands, (after,) if after else ())

    chains = [chain("start 0", "tree"), chain("grpo 0", "tree", "start 0"), chain("start 1", "tree")]
    made = StudyPlan(read_study(file), tmp_path, [0, 1], ["grpo"], chains)
    with pytest.raises(AgentCliError, match=r"3 of 3 parts failed, first start 0"):
        perform(made, 2, Progress())
    assert (tmp_path / "logs/start 1.log").exists()
    assert not (tmp_path / "logs/grpo 0.log").exists()


def test_the_example_of_the_help_page_plans_and_writes_nothing(empty_folder: Path) -> None:
    words = shlex.split(all_commands()["study",].example)[1:]
    answer = in_process(*words, "--dry-run", "--json")
    assert answer.code == 0, answer.stderr
    planned = json.loads(answer.stdout)
    assert planned["counts"] == {"parts": 40, "commands left": 72}
    assert planned["outputs"][0] == "runs/credit/0/demos"
    assert list(empty_folder.iterdir()) == []


def test_without_a_file_the_shipped_studies_are_listed() -> None:
    answer = in_process("study", "--json")
    names = {json.loads(line)["study"] for line in answer.stdout.splitlines()}
    assert names == {path.stem for path in list_studies()} >= {"tunnel-credit", "rewardflow-table-1-sokoban"}
    refused(lambda: find_study("tunnel-credits"), 2, ("tunnel-credits", "tunnel-credit"))


# What they show.


def made_difference(gains: list[float]) -> SeedDifference:
    return difference(
        "test", "success", "carl", list(range(len(gains))), [50.0] * len(gains), [50 + gain for gain in gains]
    )


def test_a_difference_by_hand() -> None:
    """Gains 1, 2, 3: mean 2, t of two degrees of freedom 4.3027, all signs alike: p = 2 / 8."""
    found = made_difference([1, 2, 3])
    assert (found.mean, found.reference_mean, found.gain, found.p) == pytest.approx((52, 50, 2, 0.25))
    assert (found.low, found.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))


@pytest.mark.parametrize(
    ("gains", "paper", "verdict"),
    [
        ([4, 5, 6, 5, 4, 6], 20.0, "holds"),
        ([-1, 1, 0, 1, -1, 0], 20.0, "does not"),
        ([-30, 30, 10, 20, -20, 0], 20.0, "cannot tell"),
        ([-4, -5, -6, -5, -4, -6], -20.0, "holds"),
        ([4, 5, 6, 5, 4, 6], -20.0, "does not"),
        # Two seeds that agree say nothing, nor do six that cannot differ.
        ([0, 0], 20.0, "cannot tell"),
        ([0] * 6, 20.0, "cannot tell"),
        # The same games of 24, from 9 to 10 and from 17 to 18: they differ by rounding.
        ([100 * (10 / 24 - 9 / 24), 100 * (18 / 24 - 17 / 24)] * 3, 20.0, "cannot tell"),
        # A gain of 0 has no side.
        ([4, 5, 6, 5, 4, 6], 0.0, "does not"),
        ([-1, 1, 0, 1, -1, 0], 0.0, "cannot tell"),
    ],
)
def test_the_word_about_a_papers_gain(gains: list[float], paper: float, verdict: str) -> None:
    assert verdict_of(made_difference(gains), paper) == verdict


def test_the_share_of_success_that_is_lost_elsewhere(file: Path) -> None:
    """SPARK Table 3: 76.6 here and 29.7 there lose 61.2 %."""
    two = "panels:\n  seen: {split: test}\n  unseen: {split: test, drop_from: seen}"
    study = read_study(changed(file, "panels:", two))
    panels = {"seen": {"success": 0.766}, "unseen": {"success": 0.297}, "test": {"success": 0.5}}
    add_drops(panels, study)
    assert panels["unseen"]["drop"] == pytest.approx(0.612, abs=0.0005)
    assert "drop" not in panels["seen"]
    nothing = {"seen": {"success": 0.0}, "unseen": {"success": 0.0}, "test": {"success": 0.5}}
    add_drops(nothing, study)
    assert "drop" not in nothing["unseen"], "there was nothing to lose"


def test_the_tokens_of_training_beside_the_references(file: Path) -> None:
    tokens = {("grpo", 0): 200.0, ("grpo", 1): 100.0, ("rewardflow", 0): 186.2, ("rewardflow", 1): 90.0}
    outcomes = [
        ArmOutcome(arm=arm, seed=seed, panels={}, totals={"tokens": spent}) for (arm, seed), spent in tokens.items()
    ]
    add_training_tokens(outcomes, read_study(file))
    assert not any(one.panels for one in outcomes), "the file has no figure of them"
    figure = (
        "- {paper: SPARK, table: Table 2, panel: loop, measure: training_tokens, figures: {grpo: 100, rewardflow: 93}}"
    )
    study = read_study(changed(file, "results:\n", f"results:\n{figure}\n"))
    add_training_tokens(outcomes, study)
    shares = {(one.arm, one.seed): one.panels["loop"]["training_tokens"] for one in outcomes}
    assert shares == pytest.approx({("grpo", 0): 1, ("grpo", 1): 1, ("rewardflow", 0): 0.931, ("rewardflow", 1): 0.9})
    (gain,) = [one for one in differences(outcomes, "grpo", {}) if one.arm == "rewardflow"]
    assert (gain.gain, gain.is_share) == (pytest.approx(-8.45), True)


# What is decided while it is played.

SEARCH = "search: {values: [1.0e-4, 3.0e-4], seed: 9}\nseeds: 0-1"


def test_a_search_plays_every_arm_with_every_value_and_keeps_the_best_one(file: Path) -> None:
    study = read_study(changed(file, "seeds: 0-1", SEARCH))
    assert study.search is not None
    trial = searched(study, study.search, list(study.arms))
    assert (list(trial.arms), trial.seeds) == (
        ["grpo-0.0001", "grpo-0.0003", "rewardflow-0.0001", "rewardflow-0.0003"],
        "9",
    )
    assert trial.arms["grpo-0.0003"] == {"credit": {"method": "grpo"}, "train": {"learning_rate": 3e-4}}
    rates = [0.5, 0.5, 0.2, 0.3]
    outcomes = [
        ArmOutcome(arm=arm, seed=9, panels={"test": {"success": rate}})
        for arm, rate in zip(trial.arms, rates, strict=True)
    ]
    found = StudyResults(study={}, outcomes=outcomes, differences=[])
    after, rule = settled(study, study.search, found, list(study.arms))
    assert after.arms["grpo"]["train"] == {"learning_rate": 1e-4}
    assert after.arms["rewardflow"]["train"] == {"learning_rate": 3e-4}
    assert rule == "train.learning_rate, searched on seed 9: grpo 0.0001, rewardflow 0.0003"
    found.outcomes.pop()
    refused(lambda: settled(study, study.search, found, list(study.arms)), 3, ("rewardflow", "has not ended"))


def test_only_the_arms_that_are_played_are_searched(file: Path) -> None:
    changed(file, "seeds: 0-1", SEARCH)
    changed(file, "reference: grpo", "  gigpo: {credit: {method: gigpo}}\nreference: grpo")
    study_arms = {"grpo", "gigpo"}
    answer = in_process("study", str(file), "--only", "gigpo,gigpo", "--dry-run", "--json")
    assert answer.code == 0, answer
    outputs = json.loads(answer.stdout)["outputs"]
    arms = {Path(one).name for one in outputs if "-0.000" in one}
    assert arms == {"grpo-0.0001", "grpo-0.0003", "gigpo-0.0001", "gigpo-0.0003"}
    # The search is on seed 9; with what it finds two seeds of the two arms follow.
    others = {Path(one).parts[-2:] for one in outputs if "-0.000" not in one and Path(one).name in study_arms}
    assert others == {(seed, arm) for seed in "01" for arm in study_arms}
    study = read_study(file)
    assert study.search is not None
    outcomes = [ArmOutcome(arm=arm, seed=9, panels={"test": {"success": 0.5}}) for arm in arms]
    found = StudyResults(study={}, outcomes=outcomes, differences=[])
    after, rule = settled(study, study.search, found, ["grpo", "gigpo"])
    assert after.arms["rewardflow"] == study.arms["rewardflow"]
    assert rule.endswith("grpo 0.0001, gigpo 0.0001")


@pytest.mark.parametrize(
    ("seed", "most", "counts"), [(9, 0, False), (2, 0, True), (5, 0, False), (6, 4, False), (6, 5, True)]
)
def test_the_seed_of_a_search_is_none_that_may_be_added(seed: int, most: int, counts: bool) -> None:
    """Of seeds 2, 3 and 4, with up to `most` in all."""
    search = SearchChoice(values=[1e-4, 3e-4], seed=seed)
    if counts:
        refused(lambda: refuse_counted(search, [2, 3, 4], most), 2, "search.seed")
    else:
        refuse_counted(search, [2, 3, 4], most)


def test_the_searched_seed_does_not_count(file: Path) -> None:
    changed(file, "seeds: 0-1", SEARCH)
    answer = in_process("study", str(file), "--seeds", "8-9", "--dry-run")
    assert (answer.code, "search.seed: 9" in answer.stderr) == (2, True)


def test_seeds_are_added_while_an_interval_is_too_wide() -> None:
    gains = made_difference([1, 2, 3])
    found = StudyResults(study={"panels": {"test": {}}}, outcomes=[], differences=[gains])
    width = gains.high - gains.low
    assert too_wide(found, width)
    assert not too_wide(found, width + 0.01)
    assert too_wide(StudyResults(study=found.study, outcomes=[], differences=[made_difference([1])]), 100)
    # Equal gains: of two seeds they say nothing, of six they are enough.
    for seeds, wide in ((2, True), (6, False)):
        equal = StudyResults(study=found.study, outcomes=[], differences=[made_difference([0] * seeds)])
        assert too_wide(equal, 10) is wide


# The whole, as a user types it.


def agentcli(*words: str, **more: Any) -> subprocess.Popen[str]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = [sys.executable, "-m", "agentcli", *words]
    return subprocess.Popen(whole, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def figures(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "study.json").read_text(encoding="utf-8"))


def followed_in_loops(made: StudyPlan, loop: Path) -> None:
    """What the iterations of a loop show is what their manifests say."""
    found = results(made)
    ended = [json.loads((folder / "manifest.json").read_text()) for folder in sorted(loop.glob("iteration_*"))]
    explore = [one["stages"]["rollout"]["statistics"]["explore"] for one in ended]
    entropy = [from_scratch(folder).entropy for folder in sorted(loop.glob("iteration_*"))]
    (grpo,) = [one for one in found.outcomes if one.arm == "grpo"]
    assert grpo.courses == {"explore": pytest.approx(explore), "entropy": entropy}
    means = {one.measure: one.reference_mean for one in found.differences if one.panel == "loop"}
    assert means["explore"] == pytest.approx(100 * sum(explore) / 2)
    assert means["entropy"] == pytest.approx(sum(entropy) / 2)
    drawn = {picture.name for picture in draw(found, made.out)}
    assert drawn >= {"loops.svg", "explore.svg", "entropy.svg", "actions-by-step.svg"}


def played_in_parts(file: Path) -> None:
    """Two machines play a part each, the second one for workers, and the table is the same."""
    for words in (["--shard", "1/2"], ["--shard", "2/2", "--on", "local"]):
        part = agentcli("study", str(file), "--seeds", "1,0", "-o", "parts", *words)
        part.communicate()
        assert part.returncode == 0
    assert not Path("parts/study.json").exists()
    assert plan(read_study(file), Path("parts"), seeds="0").left == 0
    whole_again = agentcli("study", str(file), "--seeds", "0", "-o", "parts")
    _, said = whole_again.communicate()
    assert whole_again.returncode == 0
    assert "seed 1 has all these arms too" in said
    assert figures(Path("parts")) == figures(Path("whole"))
    assert "--on local" in Path("parts/logs/grpo 0.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_same_figures(file: Path) -> None:
    whole = agentcli("study", str(file), "--seeds", "0", "-o", "whole", "--jobs", "2")
    whole.communicate()
    assert whole.returncode == 0
    killed = agentcli("study", str(file), "--seeds", "0", "-o", "killed")
    # Killed inside the first loop, where half of a run is there.
    while not Path("killed/0/grpo/settings").exists():
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    again = agentcli("study", str(file), "--seeds", "0", "-o", "killed")
    again.communicate()
    assert (again.returncode, figures(Path("killed"))) == (0, figures(Path("whole")))
    made = plan(read_study(file), Path("killed"), seeds="0")
    assert all(chain.left == [] for chain in made.chains)
    assert remaining([made], 1).seconds == 0
    found = read_json(Path("killed/study.json"), StudyResults)
    assert results(made) == found
    compared = {(one.panel, one.measure, one.arm): one for one in found.differences}
    assert set(compared) == {
        ("test", "success", "start"),
        ("test", "success", "rewardflow"),
        ("loop", "area", "rewardflow"),
    }
    gain = compared["test", "success", "rewardflow"]
    assert (gain.paper, gain.verdict) == ("RewardFlow, Table 1", "cannot tell")
    assert gain.paper_gain == pytest.approx(22.6)
    assert "RewardFlow, Table 1" in markdown(found)
    played_in_parts(file)
    # What is measured is no setting: nothing is played again for it.
    measures = (
        "measures: [success, unique_states, nodes, tokens_per_step, entropy]\n"
        "training: [explore, entropy]\nby_step: [actions]\nreference: grpo"
    )
    more = plan(read_study(changed(file, "reference: grpo", measures)), Path("killed"), seeds="0")
    assert more.left == 0
    for one in results(more).outcomes:
        assert 0 < one.panels["test"]["unique_states"] <= 1
        assert min(one.panels["test"]["nodes"], one.panels["test"]["tokens_per_step"]) > 1
        assert one.panels["test"]["entropy"] > 0
        # Late responses of this policy may all be unreadable.
        assert {1} <= set(one.by_step["actions"]) <= {1, None}
    followed_in_loops(more, Path("killed/0/grpo"))
    costs = yaml.safe_load(Path("killed/took.yaml").read_text(encoding="utf-8"))["took"]
    assert set(costs) == {"demos", "start", "grpo", "rewardflow"}
    known = changed(file, "seeds: 0-1", f"took: {json.dumps(costs)}\nseeds: 0-1")
    assert remaining([plan(read_study(known), Path("fresh"), seeds="0")], 1).seconds >= costs["grpo"]["seconds"] > 0
    # An arm whose settings are others now has not ended with them.
    other = read_study(changed(file, "method: rewardflow", "method: rewardflow, gamma: 0.8"))
    left = results(plan(other, Path("killed"), seeds="0"))
    assert [one.arm for one in left.outcomes] == ["start", "grpo"]
    typed = page_hint(found, Path("killed")).rpartition("agentcli ")[2]
    assert in_process(*shlex.split(typed)).code == 0
    assert Path("killed/view.html").exists()
    for picture in ("loops.svg", "study.svg"):
        assert Path("killed", picture).read_bytes() == Path("whole", picture).read_bytes()
    drawn = Path("whole/study.svg").read_text(encoding="utf-8")
    assert "rewardflow" in "".join(ElementTree.fromstring(drawn).itertext())
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
