"""The command line as a user meets it: help, errors with their exit codes, dry runs, and what goes to stdout."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
import typer
import yaml
from agentcli.cli import trees
from agentcli.cli.app import build
from agentcli.cli.call import Call, register
from agentcli.cli.command import Command
from agentcli.cli.errors import one_line_errors
from agentcli.cli.options import LAYERS, METHOD, OUT, RESUME
from agentcli.environments.registry import settle
from agentcli.errors import AgentCliError, DataError, MissingError, UsageError
from agentcli.exploration.settings import decode
from agentcli.records.files import write_json
from agentcli.records.free_memory import shortage
from agentcli.records.runs import link_latest
from agentcli.records.settings import Settings
from agentcli.records.types import Manifest, StageRecord
from agentcli.reports.output import to_yaml
from agentcli.reports.standing import Standing
from agentcli.stages.layers import resolve
from command_line import all_commands
from typer.testing import CliRunner

HEAVY = ("torch", "transformers", "textworld", "networkx", "scipy", "numpy", "msgspec", "yaml")

pytestmark = pytest.mark.usefixtures("empty_folder", "no_variables")


def agentcli(*arguments: str) -> Any:
    """One command line, in this process."""
    return CliRunner().invoke(build(), list(arguments))


@pytest.mark.parametrize(("variable", "coloured"), [("FORCE_COLOR", True), ("TERM", False)])
def test_an_error_is_red_only_on_a_terminal(variable: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "1")
    stderr = command_line.agentcli("evl").stderr
    assert stderr.startswith("\x1b[1;31merror:" if coloured else "error: ")
    assert len(stderr.splitlines()) == 1


def test_a_path_that_is_not_utf_8_is_refused_where_it_would_be_made() -> None:
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict", "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-m", "agentcli", "preset", "copy", "quickstart", b"a\xff.yaml", "-q"]
    answer = subprocess.run(words, capture_output=True, check=False, env=strict)
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert b"a\\udcff.yaml" in answer.stderr


def test_help_loads_nothing_heavy() -> None:
    program = f"""
import sys
from agentcli.cli.app import build
try:
    build(['--help'])(['--help'])
except SystemExit:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert answer.stderr.strip() == "[]"
    assert "assign-credit" in answer.stdout


def test_every_command_ends_its_help_with_an_example() -> None:
    for words in all_commands():
        text = agentcli(*words, "--help").stdout
        assert f"Example: agentcli {' '.join(words)}" in " ".join(text.split()), words


def test_version() -> None:
    from agentcli import __version__

    assert agentcli("--version").stdout.strip() == __version__


def test_an_unknown_option_is_a_usage_error() -> None:
    assert agentcli("rollout", "--leavs", "3").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("bad option"), 2, "error: bad option"),
        (DataError("x.jsonl:3: torn"), 3, "error: x.jsonl:3: torn"),
        (MissingError("no compiler"), 4, "error: no compiler"),
        (AgentCliError("two\nlines"), 1, "error: two lines"),
        (
            ModuleNotFoundError("No module named 'textworld'", name="textworld"),
            4,
            "error: textworld is not installed; type: pip install 'agentcli[alfworld]'",
        ),
        (
            ModuleNotFoundError("No module named 'vllm.core'", name="vllm.core"),
            4,
            "error: vllm.core is not installed; type: pip install 'agentcli[vllm]'",
        ),
        (
            ModuleNotFoundError("No module named 'corridors'", name="corridors"),
            4,
            "error: corridors is not installed; type: pip install corridors",
        ),
        (KeyError("x"), 1, "error: KeyError: 'x' (unexpected; AGENTCLI_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), 130, "error: interrupted; try again"),
        *(
            (lack, 1, f"error: {shortage()}, then try again")
            for lack in (
                MemoryError(),
                RuntimeError("std::bad_alloc"),
                ImportError("libtorch.so: failed to map segment from shared object"),
                SystemError("error return without exception set"),
                OSError(errno.ENOMEM, "Cannot allocate memory"),
            )
        ),
    ],
)
def test_an_exception_becomes_one_line_and_a_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        with one_line_errors(lambda: "try again"):
            raise error

    with pytest.raises(typer.Exit) as caught:
        fail()
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == line + "\n"
    monkeypatch.setenv("AGENTCLI_DEBUG", "1")
    with pytest.raises(typer.Exit):
        fail()
    assert "Traceback" in capsys.readouterr().err


def test_the_line_after_an_interruption_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(call: Call) -> None:
        call.progress.start(Standing("growing", 3))
        call.place.new_run()
        raise KeyboardInterrupt

    command = Command(name="grow", body=interrupted, options=(*LAYERS, METHOD, OUT, RESUME), example="")
    small = typer.Typer()
    register(command, small)
    for words, expected in [
        (["--method", "spark"], "go on with: agentcli grow --method spark -o runs/grow-001 --resume"),
        (["-o", "x y", "--resume"], "go on with: agentcli grow -o 'x y' --resume"),
    ]:
        monkeypatch.setattr(sys, "argv", ["agentcli", "grow", *words])
        result = CliRunner().invoke(small, words)
        bar, line = result.stderr.splitlines()
        assert bar.startswith("growing: 0/3")
        assert (result.exit_code, line) == (130, f"error: interrupted; {expected}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["rollout", "--set", "rollout.leavs=3"],
            "--set rollout.leavs=3: rollout.leavs: no such setting; did you mean rollout.leaves?",
        ),
        (["rollout", "--preset", "quikstart"], "no preset 'quikstart'; did you mean quickstart?"),
        (
            ["rollout", "--method", "chain", "--roots", "3"],
            "--roots 3: rollout.roots: no such setting; chain has none: add --method arpo or",
        ),
        (["rollout", "--policy", "expert", "--temperature", "0.5"], "--temperature has no effect with --policy expert"),
        (["eval", "--policy", "random", "--temperature", "0.5"], "--temperature has no effect with --policy random"),
        (["demos", "--policy", "search", "--model", "x"], "--model has no effect with --policy search"),
        (["rollout", "--panel", "p.json", "--split", "L0"], "--split has no effect with the panel file p.json"),
        (["rollout", "--preset", "quickstart", "--history", "3"], "--history has no effect with prompt.style compact"),
        (["rollout", "--policy", "expert", "--resume"], "--resume needs -o DIR"),
        (["sft"], "no RUN given and no runs/latest here"),
        (["preset", "show"], "name a preset"),
        (["env", "check", "--tasks", "0"], "--tasks 0: must be at least 1"),
    ],
)
def test_usage_errors_are_one_line_with_code_2(words: list[str], message: str) -> None:
    result = agentcli(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_missing_run_is_bad_data() -> None:
    result = agentcli("assign-credit", "runs/nowhere")
    assert result.exit_code == 3
    assert "runs/nowhere: no such" in result.stderr


def record(settings: Settings, **fields: Any) -> StageRecord:
    import msgspec

    return StageRecord(
        command=["agentcli"],
        settings=msgspec.to_builtins(settings),
        versions={},
        git_commit=None,
        seed=settings.seed,
        started="",
        finished="",
        **fields,
    )


@pytest.fixture
def latest() -> Path:
    """runs/one, named by runs/latest, with a checkpoint and recorded settings."""
    run = Path("runs/one")
    (run / "checkpoint").mkdir(parents=True)
    settings = resolve(None, [], {}, ["seed=11", "rollout.leaves=5", "prompt.style=compact", "credit.gamma=1"], {})
    write_json(run / "manifest.json", Manifest(stages={"rollout": record(settings)}))
    link_latest(run)
    return run


def call_of(*words: str, command: Command = trees.ROLLOUT) -> tuple[Call, str]:
    """The Call that these words make, and what was written to stderr."""
    import dataclasses

    seen: list[Call] = []

    def look(call: Call) -> None:
        assert call.settings is not None
        seen.append(call)
        call.place.model(call.settings)

    small = typer.Typer()
    register(dataclasses.replace(command, body=look), small)
    result = CliRunner().invoke(small, list(words))
    assert result.exit_code == 0, result.output
    return seen[0], result.stderr


def model_of(*words: str) -> str | None:
    call, _ = call_of(*words)
    return call.place.model(call.settings)


def test_rollout_goes_on_from_the_latest_run_and_says_so(latest: Path) -> None:
    call, said = call_of("--method", "spark")
    assert (call.settings.prompt.style, call.settings.rollout.method) == ("compact", "spark")
    assert call.place.model(call.settings) == "runs/one/checkpoint"
    used, world, model = said.splitlines()
    assert used.split() == ["using", "runs/one", "(runs/latest)"]
    assert world.startswith("world and policy ")
    assert " runs/one;" in world
    assert world.endswith("--preset")
    assert model.startswith("model runs/one/checkpoint;")
    assert model.endswith("--model")


def test_a_new_run_inherits_no_option_of_the_method_before(latest: Path) -> None:
    """A deadline, a budget of leaves or a seed that was typed once would hold for all runs to come."""
    call, _ = call_of("--method", "carl")
    fresh = resolve(None, [], {}, ["rollout.method=carl"], {})
    assert call.settings.rollout == fresh.rollout
    assert (call.settings.seed, call.settings.credit) == (0, fresh.credit)


@pytest.mark.parametrize("words", [["--preset", "quickstart"], ["--model", "x"], ["-c", "c.yaml"]])
def test_rollout_inherits_no_settings_where_others_are_named(words: list[str], latest: Path) -> None:
    Path("c.yaml").write_text("rollout: {minimum_leaves: 3}", encoding="utf-8")
    call, _ = call_of(*words)
    assert call.settings.seed == 0
    assert call.place.model(call.settings) == ("x" if "--model" in words else "runs/one/checkpoint")


def test_stages_that_read_a_run_inherit_under_a_file_but_not_under_a_preset(latest: Path) -> None:
    from agentcli.cli.evaluation import EVAL

    Path("c.yaml").write_text("rollout: {minimum_leaves: 3}", encoding="utf-8")
    assert call_of("-c", "c.yaml", command=EVAL)[0].settings.seed == 11
    assert call_of("runs/one", "--preset", "quickstart", command=EVAL)[0].settings.seed == 0


def test_quiet_says_nothing(latest: Path) -> None:
    assert call_of("-q")[1] == ""


def test_a_policy_without_a_model_needs_no_run() -> None:
    assert model_of("--policy", "expert") is None


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ([], "runs/one"),
        (["runs/one"], "runs/one"),
        (["-o", "there"], "there"),
        (["--model", "x"], "runs/eval-001"),
        (["--policy", "expert"], "runs/eval-001"),
        (["runs/one", "--policy", "expert"], "runs/one"),
    ],
)
def test_an_evaluation_is_written_where_its_model_lies(words: list[str], folder: str, latest: Path) -> None:
    from agentcli.cli.evaluation import EVAL
    from agentcli.cli.evaluation import folder as chosen

    assert chosen(call_of(*words, command=EVAL)[0]) == Path(folder)


@pytest.mark.parametrize("words", [(), ("--preset", "quickstart"), ("--set", "rollout.minimum_leaves=3")])
def test_the_model_of_a_resumed_run_is_the_one_that_it_was_begun_with(words: tuple[str, ...], latest: Path) -> None:
    begun = resolve(None, [], {}, ["policy.model=other/model", "rollout.leaves=7"], {})
    write_json(Path("runs/b/settings/rollout.json"), {"settings": {}, "inputs": {}, "resolved": begun})
    call, _ = call_of(*words, "-o", "runs/b", "--resume")
    assert call.place.model(call.settings) == "other/model"
    assert call.settings.rollout.leaves == (8 if "quickstart" in words else 7)
    assert model_of(*words, "-o", "runs/b") == str(latest / "checkpoint")
    assert model_of(*words, "-o", "runs/b", "--resume", "--model", "m") == "m"


def test_dry_run_prints_settings_that_a_file_could_hold() -> None:
    words = ["rollout", "--preset", "quickstart", "--policy", "expert", "--leaves", "2", "--tasks", "3", "--dry-run"]
    result = agentcli(*words)
    assert result.exit_code == 0, result.output
    plan = yaml.safe_load(result.stdout)
    assert plan["counts"] == {
        "tasks": 3,
        "leaves_at_most": 6,
        "steps_at_most": 6 * plan["settings"]["environment"]["max_steps"],
    }
    flags = {"policy.kind": "expert", "rollout.leaves": 2, "environment.tasks": 3}
    settings = settle(resolve("quickstart", [], {}, [], flags))
    assert decode(plan["settings"]) == settings
    whole = json.loads(agentcli(*words, "--json").stdout)
    assert whole.pop("settings") == yaml.safe_load(to_yaml(settings))
    assert (whole.pop("expected")["seconds"], plan["expected"]["time"]) == (None, "not known")
    assert whole == {name: plan[name] for name in whole}
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("preset", ["quickstart", "grpo-alfworld", "spark-alfworld", "rewardflow-alfworld"])
def test_world_and_methods_accept_every_preset(preset: str) -> None:
    result = agentcli("run", "--preset", preset, "--model", "any", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)["counts"]
    assert counts["panel_tasks"] >= counts["tasks_per_iteration"] > 0


def test_presets_are_listed_and_shown() -> None:
    listed = agentcli("preset", "list", "--json")
    names = [json.loads(line)["preset"] for line in listed.stdout.splitlines()]
    assert "quickstart" in names
    shown = agentcli("preset", "show", "spark-alfworld").stdout
    assert yaml.safe_load(shown) == json.loads(agentcli("preset", "show", "spark-alfworld", "--json").stdout)
    assert "appendix B.4" in shown


def test_result_goes_to_stdout_and_tables_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcli.records.types import Ledger
    from agentcli.reports.output import print_result

    done = record(Settings(), counts={"trees": 2}, ledger=Ledger(steps=7), seconds={"wall": 1.5})

    def finish(call: Call) -> None:
        print_result("rollout", done, Path("runs/x"), json=bool(call.values["resume"]), quiet=False)

    small = typer.Typer()
    register(Command(name="x", body=finish, options=(RESUME,), example=""), small)
    plain = CliRunner().invoke(small, [])
    assert plain.stdout == "runs/x\n"
    assert "counts: trees 2" in plain.stderr
    lines = CliRunner().invoke(small, ["--resume"]).stdout.splitlines()
    assert json.loads(lines[0])["ledger"]["steps"] == 7
    assert len(lines) == 1
