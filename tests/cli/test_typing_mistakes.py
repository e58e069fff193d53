"""Mistakes in the words themselves: one line with the nearest name and what to type, code 2, and nothing on stdout."""

import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import typer
from agentcli.cli.app import main
from agentcli.cli.errors import LONGEST, one_line
from agentcli.version import __version__
from command_line import agentcli, all_commands

COMMANDS = all_commands()
ROOT = Path(__file__).parents[2]
FLAGS = {path: [option for option in command.options if not option.positional] for path, command in COMMANDS.items()}
PATHS = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)

pytestmark = pytest.mark.usefixtures("empty_folder")


def refused(*words: str) -> str:
    """The one line that these words are answered with."""
    answer = agentcli(*words)
    assert (answer.code, answer.stdout) == (2, ""), answer
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    assert list(Path().iterdir()) == []
    return answer.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize("words", [(), ("env",), ("run",), ("env", "serve"), ("rollout", "--method", "spark")])
def test_help_of_a_command_is_its_option_help(words: tuple[str, ...]) -> None:
    asked, told = agentcli("help", *words), agentcli(*words, "--help")
    assert (asked.code, asked.stdout) == (0, told.stdout)
    assert "Usage: " in asked.stdout


def test_help_of_what_is_no_command_names_the_nearest() -> None:
    assert refused("help", "rolout") == "no command rolout; did you mean rollout? type: agentcli --help"


def test_the_version_has_a_letter() -> None:
    assert agentcli("-V").stdout == agentcli("--version").stdout == f"{__version__}\n"


@PATHS
def test_an_unknown_option_of_every_command(path: tuple[str, ...]) -> None:
    command = " ".join(path)
    assert refused(*path, "--zzqx").split("; type: ") == ["no option --zzqx", f"agentcli {command} --help"]
    for option in FLAGS[path]:
        (long,) = [name for name in option.names if name.startswith("--")][:1]
        if len(long) > 6:
            misspelt = long[:-2] + long[-1] + long[-2]
            near = refused(*path, misspelt)
            if misspelt not in {name for other in FLAGS[path] for name in other.names}:
                assert near == f"no option {misspelt}; did you mean {long}? type: agentcli {command} --help"
            break


@PATHS
def test_a_missing_value_of_every_option_of_every_command(path: tuple[str, ...]) -> None:
    for option in FLAGS[path]:
        name = option.names[0]
        if option.takes_value:
            expected = f"{name} needs a value ({option.shown_value}); type: agentcli {' '.join(path)} --help"
            assert refused(*path, name) == expected
            assert refused(*path, name, name) == expected.replace(";", f", not {name};")
        elif len(option.names) < 3 and name.startswith("--"):
            said = refused(*path, f"{name}=1")
            assert said.split("; type: ") == [f"{name} takes no value", f"agentcli {' '.join(path)} --help"]


@PATHS
def test_a_wrong_type_of_every_number_of_every_command(path: tuple[str, ...]) -> None:
    for option in FLAGS[path]:
        expected = {int: "a whole number", float: "a number"}.get(option.kind)
        if expected:
            name = option.names[0]
            wanted = f"{name} many: expected {expected}; type: agentcli {' '.join(path)} --help"
            assert refused(*path, name, "many") == refused(*path, f"{name}=many") == wanted


def test_a_preset_is_an_option_of_run() -> None:
    said = refused("run", "quickstart")
    assert said.startswith("run takes options only, a preset as --preset NAME: ")


@PATHS
def test_an_argument_too_many_of_every_command(path: tuple[str, ...]) -> None:
    arguments = COMMANDS[path].arguments
    if arguments and typing.get_origin(arguments[-1].kind) is list:
        return
    line = refused(*path, *(["x"] * len(arguments)), "one-more")
    assert line.startswith(f"{path[-1]} takes ")
    assert "one-more" in line
    assert line.endswith(f"; type: agentcli {' '.join(path)} --help")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rolout"], "no command rolout; did you mean rollout? type: agentcli --help"),
        (["qqqq"], "no command qqqq; type: agentcli --help"),
        (["env", "chek"], "no command env chek; did you mean env check? type: agentcli env --help"),
        (["--versoin"], "no option --versoin; did you mean --version? type: agentcli --help"),
        (["env", "--json"], "no option --json; type: agentcli env --help"),
        (["rollout", "--modle", "x"], "no option --modle; did you mean --model? type: agentcli rollout --help"),
        (["rollout", "-z"], "no option -z; type: agentcli rollout --help"),
        (["rollout", "-o"], "-o needs a value (DIR); type: agentcli rollout --help"),
        (
            ["rollout", "--model", "--leaves", "3"],
            "--model needs a value (DIR|ID), not --leaves; type: agentcli rollout --help",
        ),
        (["rollout", "-o", "--overwrite"], "-o needs a value (DIR), not --overwrite; type: agentcli rollout --help"),
        (["rollout", "--temperature", "nan"], "--temperature nan: policy.temperature: expected float >= 0.0"),
        (["rollout", "--leaves", "-1"], "--leaves -1: rollout.leaves: expected int >= 1"),
        (
            ["run", "--tracker", "wandv"],
            "--tracker wandv: tracking.to[0]: must be one of tensorboard, wandb, trackio, mlflow",
        ),
        (["rollout", "--seed", "1", "--set", "seed=2"], "--set seed and --seed 1 say the same thing; keep one of them"),
    ],
)
def test_the_line(words: list[str], line: str) -> None:
    assert refused(*words) == line


@pytest.mark.parametrize("words", [[], ["env"], ["preset"]])
def test_a_group_alone_shows_its_help(words: list[str]) -> None:
    answer = agentcli(*words)
    assert (answer.code, answer.stderr) == (0, "")
    assert " ".join(["Usage: agentcli", *words, "[OPTIONS] COMMAND"]) in answer.stdout


@PATHS
def test_help_of_every_command_ends_with_code_0(path: tuple[str, ...]) -> None:
    for word in ("--help", "-h"):
        answer = agentcli(*path, word)
        assert (answer.code, answer.stderr) == (0, "")
        assert f"Usage: agentcli {' '.join(path)} [OPTIONS]" in answer.stdout


def test_a_message_with_line_ends_control_characters_and_a_long_value_is_one_short_line() -> None:
    assert one_line("a\n b\t\x1b[31mc") == "a b \\x1b[31mc"
    long = one_line(f"--model {'x' * 5000}: no; type this")
    assert len(long) <= LONGEST + 5
    assert long.startswith("--model xx")
    assert long.endswith("xx: no; type this")
    assert refused("rollout", "--preset", "a\nb\x1b[0m").startswith("no preset 'a\\nb\\x1b[0m")
    said = refused("--ver\nsion")
    assert said.startswith("no option --ver sion;")
    assert "--version? " in said
    assert said.endswith("agentcli --help")


def shell(line: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which agentcli is the program; Python's output buffered, or written at once ("1")."""
    program = "from agentcli.cli.app import main; main()"
    own = f"agentcli() {{ {sys.executable} -c '{program}' \"$@\"; }}; {line}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(["bash", "-c", own], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "line",
    [
        "preset list | head -1",
        "preset list | true",
        "schema tree | true",
        "preset show quickstart | true",
        "doctor | true",
    ],
)
def test_a_pipe_that_closes_early_is_no_error_message(line: str, unbuffered: str) -> None:
    assert shell(f"agentcli {line}", unbuffered).stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_stdout_that_cannot_be_written_is_one_line(unbuffered: str) -> None:
    full = shell("agentcli preset show quickstart >/dev/full", unbuffered)
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert full.stderr.startswith("error: ")
    assert "No space left" in full.stderr
    assert shell("agentcli preset list >&-", unbuffered).returncode == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, typer.Abort])
def test_an_interruption_before_the_command_began_is_one_line(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise kind

    monkeypatch.setattr("agentcli.cli.app.build", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted before anything was done; type the same command again\n"
