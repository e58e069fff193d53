"""results.json: what is written is read again, files are merged, and what cannot be compared is refused."""

from pathlib import Path

import msgspec
import pytest
from agentcli.errors import DataError
from made_results import LOW, PANEL, made, run, start
from reproduce_results import Results, expanded, load, merge, save


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save(path, made())
    again = load([path])
    assert expanded(again).runs == made().runs
    assert again.starts == made().starts
    assert again.settings == {"six": {"train.clip": 0.2, "train.adam_betas": [0.9, 0.98]}}
    assert [own.settings for own in again.runs[:2]] == [{"credit.method": "gigpo"}, {"credit.method": "grpo"}]


def test_the_same_results_are_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "first.json", made())
    save(tmp_path / "second.json", load([tmp_path / "first.json"]))
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()


def test_sessions_are_merged() -> None:
    """A setting that only one of them shares is told of each run."""
    later = made((2,))
    later.runs = [msgspec.structs.replace(own, settings=own.settings | {"train.clip": 0.3}) for own in later.runs]
    whole = merge([("a", made()), ("b", later), ("again", made())])
    assert len(whole.runs) == 8
    assert whole.settings == {"six": {"train.adam_betas": [0.9, 0.98]}}
    assert {own.seed: own.settings["train.clip"] for own in whole.runs} == {0: 0.2, 1: 0.2, 2: 0.3}


def refused(*parts: Results) -> str:
    """What merging them says."""
    with pytest.raises(DataError) as caught:
        merge([(f"{place}.json", part) for place, part in enumerate(parts)])
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_one_run_told_in_two_ways_is_refused() -> None:
    other = made()
    other.runs[1] = run("grpo", 0, LOW, [0, 0, 0, 0])
    message = refused(made(), other)
    assert "1.json" in message
    assert "grpo of six, seed 0" in message


def test_runs_of_a_seed_share_their_start() -> None:
    other = made()
    other.runs[1] = run("grpo", 0, LOW, [2, 2, 1, 1], start="f" * 64)
    assert "start" in refused(other)


def test_a_panel_of_another_length_is_refused() -> None:
    other = made()
    other.panels[PANEL].kinds.append("place")
    assert "L0" in refused(other)


def test_another_format_is_refused() -> None:
    other = made()
    other.format = 2
    assert "format" in refused(other)


def test_starts_are_told_once() -> None:
    assert "start of six, seed 0" in refused(
        made(), Results(panels={}, settings={}, starts=[start(0, policy="e" * 64)], runs=[])
    )
