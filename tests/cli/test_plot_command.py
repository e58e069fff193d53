"""`agentcli plot` as a user meets it: loops become one line, and what cannot be drawn is refused."""

import math
from pathlib import Path

import pytest
from agentcli.evaluation.record import ResultsByKind
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Ledger
from agentcli.reports.plots.groups import by_kind, loops_by_group
from command_line import agentcli
from refusal import refused
from sample_records import stage_record
from table_text import results, summary


def make_loop(path: Path, seed: int, credit: str = "grpo", model: str = "m", kinds: tuple[str, ...] = ()) -> Path:
    """Two iterations as the loop records them; `kinds` of tasks were met in the first only."""
    for number in range(2):
        record = stage_record()
        record.counts = {"trees": 1, "leaves": 4, "success": number + 1}
        record.ledger = Ledger(leaves=4, steps=10)
        record.settings = {
            "seed": seed,
            "policy": {"model": model},
            "rollout": {"method": "chain", "critic": f"critic-of-{seed}"},
            "train": {"options": {"critic": f"critic-of-{seed}"}},
            "credit": {"method": credit},
        }
        measured = summary(0.5, {kind: results(0.25) for kind in kinds[: 1 + (number == 0)]})
        names = ResultsByKind.__struct_fields__
        record.statistics["results"] = {name: value for name, value in measured.values().items() if name in names}
        RunDirectory(path / f"iteration_{number:03d}").record_stage("rollout", record)
    return path


pytestmark = pytest.mark.usefixtures("empty_folder")


def test_loops_that_differ_in_their_seed_are_one_group() -> None:
    runs = [make_loop(Path(f"g{seed}"), seed, model=f"start{seed}") for seed in range(3)]
    runs.append(make_loop(Path("other"), 0, "gigpo"))
    groups = loops_by_group(runs)
    assert {name: len(courses) for name, courses in groups.items()} == {"chain + grpo": 3, "chain + gigpo": 1}
    assert groups["chain + grpo"][0].values == [25, 50]


def test_groups_that_share_their_methods_are_named_by_a_run() -> None:
    first = make_loop(Path("a"), 0)
    second = make_loop(Path("b"), 0)
    manifest = RunDirectory(second / "iteration_000")
    record = manifest.load_manifest().stages["rollout"]
    record.settings["rollout"]["leaves"] = 4
    manifest.record_stage("rollout", record)
    assert list(loops_by_group([first, second])) == ["a", "b"]


def test_a_loop_is_drawn_and_its_file_is_named() -> None:
    make_loop(Path("a"), 0)
    answer = agentcli("plot", "a", "-o", "pictures/a.svg")
    assert (answer.code, answer.stdout) == (0, "pictures/a.svg\n")
    assert Path("pictures/a.svg").read_text(encoding="utf-8").startswith("<?xml")
    refused(agentcli("plot", "a", "-o", "pictures/a.svg"), names="pictures/a.svg", remedy="--overwrite")


def test_a_loop_is_drawn_by_kind_of_task() -> None:
    make_loop(Path("a"), 0, kinds=("clean", "look"))
    kinds = by_kind(loops_by_group([Path("a")]))
    assert kinds["clean"]["chain + grpo"][0].values == [25, 25]
    assert math.isnan(kinds["look"]["chain + grpo"][0].values[1])
    answer = agentcli("plot", "a", "--of", "kinds", "-o", "kinds.svg")
    assert (answer.code, answer.stdout) == (0, "kinds.svg\n")


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        (("a", "-o", "a.jpg"), 2, "a.jpg", "a.svg"),
        (("nowhere",), 3, "nowhere", "agentcli rollout"),
        (("a", "--of", "evaluations"), 3, "a", "agentcli eval a"),
        (("a", "--of", "pass-at-k"), 3, "a", "agentcli eval a"),
        (("a", "--window", "0"), 2, "--window 0", "1"),
        (("a", "--label", "L0"), 2, "--label", "--of evaluations"),
        (("a", "--of", "evaluations", "--window", "3"), 2, "--window", "--of training"),
        (("empty", "--of", "training"), 3, "empty", "agentcli run"),
        (("a", "./a"), 2, "a", "twice"),
    ],
)
def test_what_cannot_be_drawn_is_refused(words: tuple[str, ...], code: int, names: str, remedy: str) -> None:
    make_loop(Path("a"), 0)
    Path("empty").mkdir()
    refused(agentcli("plot", *words), code, names=names, remedy=remedy)
