"""A dry run with --resume refuses what the command itself would, in the same line, else shows the plan; it writes nothing."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bad_input_runs import (
    DEMO_TREES,
    EXISTING,
    OTHER_INPUT,
    OTHER_SETTINGS,
    RUN,
    SFT,
    TRAIN,
    Damage,
    contents,
    edit,
    folder,
    quietly,
    remove,
    untouched,
    write,
)
from command_line import agentcli, all_commands, succeeded
from refusal import refused

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


def alike(words: tuple[str, ...], code: int, *mentions: str) -> None:
    """Both the command and its dry run are refused, in the same line."""
    answer = untouched((*words, "--dry-run"))
    refused(answer, code, mentions)
    assert quietly(*words) == answer


def test_every_command_that_resumes_has_a_dry_run_and_is_tried_here() -> None:
    resumable = {path for path, one in all_commands().items() if {"resume", "dry_run"} & {o.name for o in one.options}}
    tried = {(words[0],) for words in EXISTING.values()}
    others = {
        ("env", "panel"),
        ("preset", "copy"),
        ("merge",),
        ("export",),
        ("import",),
        ("push",),
        ("view",),
        ("serve",),
        ("env", "serve"),
        # It resumes by itself: tests/stages/test_study.py.
        ("study",),
    }
    assert resumable == tried | others
    for path in tried:
        assert {"resume", "dry_run"} <= {option.name for option in all_commands()[path].options}
    for path in others:
        assert "resume" not in {option.name for option in all_commands()[path].options}
    assert set(EXISTING) == set(OTHER_SETTINGS) == set(OTHER_INPUT) | {"demos"}


@pytest.mark.parametrize("name", EXISTING)
def test_other_settings_are_refused(name: str) -> None:
    more, said = OTHER_SETTINGS[name]
    alike((*EXISTING[name], "--resume", *more), 2, "--resume with other settings than it was started with: ", said)


@pytest.mark.parametrize("name", OTHER_INPUT)
def test_other_input_is_refused(name: str) -> None:
    path, more = OTHER_INPUT[name]
    edit(path, lambda data: data + more)()
    alike((*EXISTING[name], "--resume"), 2, f"--resume with other input than it was started with: {path} has changed")


@pytest.mark.parametrize("name", EXISTING)
def test_with_the_same_settings_the_plan_is_shown(name: str) -> None:
    before = contents()
    answer = agentcli(*EXISTING[name], "--resume", "--dry-run", "--json")
    assert contents() == before
    assert answer.code == 0, answer
    plan = json.loads(answer.stdout)
    assert plan["command"] == EXISTING[name][0]
    assert all(count > 0 for count in plan["counts"].values())
    assert " has ended; only what is missing or errored would be done again\n" in answer.stderr


@pytest.mark.parametrize("words", [SFT, RUN, TRAIN], ids=lambda words: words[0])
def test_a_run_that_is_still_to_begin_may_be_resumed(words: tuple[str, ...]) -> None:
    before = contents()
    answer = succeeded(*words, "--resume", "--dry-run")
    assert answer.stderr.endswith(f"new: {words[0]} was not begun; it would begin\n")
    assert answer.stdout.startswith(f"command: {words[0]}\n")
    assert contents() == before


def test_both_flags_exclude_each_other() -> None:
    for words in EXISTING.values():
        alike((*words, "--resume", "--overwrite"), 2, "--resume and --overwrite exclude each other")


@pytest.mark.parametrize(
    ("damage", "name", "code", "said"),
    [
        (
            remove("runs/sft/settings/sft.json"),
            "sft",
            0,
            "settings/sft.json is missing: taking the settings to be those of",
        ),
        (write("runs/sft/settings/sft.json"), "sft", 3, "runs/sft/settings/sft.json: "),
        (write(DEMO_TREES), "annotate", 2, f"{DEMO_TREES} has changed"),
        (remove("runs/x/credit"), "train", 3, "runs/x/credit: no credit yet"),
    ],
    ids=["no record of the settings", "an empty record", "empty trees", "no credit"],
)
def test_what_is_not_there_to_compare_with(damage: Damage, name: str, code: int, said: str) -> None:
    damage()
    if code:
        alike((*EXISTING[name], "--resume"), code, said)
        return
    before = contents()
    answer = agentcli(*EXISTING[name], "--resume", "--dry-run")
    assert contents() == before
    assert answer.code == 0
    assert said in answer.stderr


def test_an_interrupted_loop_is_compared_before_its_iterations() -> None:
    remove("runs/loop/manifest.json")()
    words = EXISTING["run"]
    alike((*words, "--resume", "--leaves", "3"), 2, "rollout.leaves was 2, now 3")
    shown = succeeded(*words, "--resume", "--dry-run")
    assert shown.stderr == "runs/loop: run was begun and has not ended; it would go on\n"
    assert re.search(r"iterations: 1\n", shown.stdout)
    refused(quietly(*words, "--dry-run"), 2, "runs/loop/iteration_000", "--resume")


HOLDER = (
    "import pathlib, sys; from agentcli.records.runs import RunLock; "
    "held = [RunLock(pathlib.Path(run), 'agentcli other', 'now') for run in sys.argv[1:]]; print('held', flush=True); input()"
)


@contextmanager
def held(*runs: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the locks of these runs until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *runs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_another_writer_is_told_as_the_command_itself_would() -> None:
    runs = ("demos", "annotated", "sft", "x", "votes", "loop")
    with held(*(f"runs/{run}" for run in runs)) as writer:
        for words in EXISTING.values():
            said = f" is being written by `agentcli other` (process {writer.pid} on "
            alike((*words, "--resume"), 2, said, "; wait for it, or write elsewhere with -o DIR")
    left = contents()
    assert "runs/x/.lock" in left
    for words in EXISTING.values():
        assert agentcli(*words, "--resume", "--dry-run").code == 0, "a writer that was killed holds nothing"
    assert contents() == left
