"""The examples of --help are one session that works: every command's, in this order, as typed, in an empty folder.

Only the scale is small (AGENTCLI_* variables), so that the session takes seconds. What --dry-run promises is checked on
the same session: it writes nothing, and it refuses what the command itself would refuse.
"""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Answer, agentcli, all_commands, files_below, succeeded

COMMANDS = all_commands()
SESSION = [
    ("doctor",),
    ("env", "list"),
    ("env", "check"),
    ("env", "panel"),
    ("env", "new"),
    ("preset", "list"),
    ("preset", "show"),
    ("preset", "copy"),
    ("demos",),
    ("sft",),
    ("rollout",),
    ("assign-credit",),
    ("credit", "compare"),
    ("train",),
    ("eval",),
    ("pass-at-k",),
    ("test-time-branch",),
    ("merge",),
    ("compare",),
    ("show",),
    ("run",),
    ("plot",),
    ("view",),
    ("export",),
    ("import",),
    ("push",),
    ("validate",),
    ("schema",),
]
SHARD = ("rollout", "--preset", "quickstart", "--policy", "random", "--tasks", "3", "--shard")
BEFORE = {
    ("merge",): [(*SHARD, f"{part}/2", "-o", f"runs/part-{part}") for part in (1, 2)],
    ("import",): [("export", "runs/x", "--to", "conversations")],
}
"""What an example takes for granted."""
SMALL = {
    "ENVIRONMENT__MAX_STEPS": "4",
    "ENVIRONMENT__OPTIONS__GAMES": "{train: 24, valid_seen: 8, valid_unseen: 8}",
    "DEMOS__COUNT": "24",
    "SFT__UPDATES": "40",
    "ROLLOUT__LEAVES": "4",
    "ROLLOUT__MINIMUM_LEAVES": "1",
    "ROLLOUT__TASKS_PER_STEP": "2",
    "EVALUATION__TASKS": "1",
    "RUN__ITERATIONS": "1",
    "POLICY__MAX_TOKENS": "12",
}
OPTIONED = [path for path in SESSION if any(option.name == "dry_run" for option in COMMANDS[path].options)]
WRITING = [path for path in OPTIONED if path != ("push",)]
"""Commands that write files here; push writes to the hub (test_push_command.py)."""


def results() -> dict[str, bytes]:
    """Every file of the session with its content."""
    return {str(file): file.read_bytes() for file in Path().rglob("*") if file.is_file()}


def example(path: tuple[str, ...]) -> list[str]:
    """The words after `agentcli`."""
    program, *words = shlex.split(COMMANDS[path].example)
    assert program == "agentcli"
    return words


@pytest.fixture(scope="module", autouse=True)
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], Answer]]:
    """What every example answered, run one after the other in a fresh folder."""
    folder = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
            patch.delenv(name)
        for name, value in SMALL.items():
            patch.setenv(f"AGENTCLI_{name}", value)
        patch.setenv("AGENTCLI_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(folder)
        answers = {}
        for path in SESSION:
            for words in BEFORE.get(path, ()):
                assert agentcli(*words).code == 0, words
            answers[path] = agentcli(*example(path))
        yield answers


def test_the_session_holds_every_command() -> None:
    # What serves until Ctrl-C is typed in tests/with_vllm and in tests/stages/test_env_server.py, a study, which takes
    # minutes at least, in tests/stages/test_study.py.
    assert sorted([*SESSION, ("serve",), ("env", "serve"), ("study",)]) == sorted(COMMANDS)


@pytest.mark.parametrize("path", SESSION, ids=" ".join)
def test_the_example_works_as_typed(path: tuple[str, ...], session: dict[tuple[str, ...], Answer]) -> None:
    assert session[path].code == 0, session[path].stderr
    assert session[path].stdout or path == ("validate",)


def test_every_command_that_writes_has_a_dry_run() -> None:
    before = files_below(Path())
    assert {"l2.json", "mine.yaml", "runs/demos/trees.jsonl", "runs/sft/checkpoint", "runs/x/trees.jsonl"} <= set(
        before
    )
    assert {"runs/x/credit/rewardflow.jsonl", "runs/x/checkpoint", "runs/rl/iteration_000"} <= set(before)
    assert {"runs/x/evaluation/L2.json", "runs/x/evaluation/pass-at-k-L0.json"} <= set(before)
    for path in SESSION:
        if path not in WRITING:
            agentcli(*example(path))
            assert files_below(Path()) == before, path


@pytest.mark.parametrize("path", WRITING, ids=" ".join)
def test_dry_run_writes_nothing_and_reports_inputs_and_counts(path: tuple[str, ...]) -> None:
    before = files_below(Path())
    answer = succeeded(*example(path), "--overwrite", "--dry-run")
    assert files_below(Path()) == before
    if path != ("preset", "copy"):
        json_too = [] if path == ("env", "panel") else ["--json"]
        assert {"settings:", "inputs:", "outputs:", "counts:"} <= set(answer.stdout.split())
        again = agentcli(*example(path), "--overwrite", "--dry-run", *json_too)
        if json_too:
            plan = json.loads(again.stdout)
            assert all(count > 0 for count in plan["counts"].values())
            assert Path(plan["outputs"][0]).exists()
            assert all(Path(file).exists() for file in plan["inputs"].values() if file not in (None, "tiny"))


@pytest.mark.parametrize("path", [path for path in WRITING if path != ("view",)], ids=" ".join)
def test_dry_run_refuses_output_that_exists_as_the_command_does(path: tuple[str, ...]) -> None:
    before, contents = files_below(Path()), results()
    dry = agentcli(*example(path), "--dry-run")
    assert files_below(Path()) == before
    real = agentcli(*example(path))
    assert results() == contents
    assert (dry.code, real.code) == (2, 2), (dry, real)
    assert dry.stdout == real.stdout == ""
    assert dry.stderr.splitlines()[-1] == real.stderr.splitlines()[-1]
    assert " exists; " in dry.stderr


@pytest.mark.parametrize(
    "path",
    [path for path in WRITING if path[0] not in ("env", "preset", "merge", "export", "import", "view")],
    ids=" ".join,
)
def test_resume_of_a_finished_stage_owes_nothing_and_changes_no_result(path: tuple[str, ...]) -> None:
    before = results()
    answer = succeeded(*example(path), "--resume")
    assert "nothing is owed" in answer.stderr
    assert results() == before
