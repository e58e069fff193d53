"""Every option of every command reaches its setting when typed, and never overrides a file when not."""

import json
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.cli.command import Command, Option
from agentcli.cli.typed import parse_where
from agentcli.credit.registry import method_names as credit_names
from agentcli.credit.registry import switches_of
from agentcli.exploration.registry import method_names as growth_names
from agentcli.exploration.settings import VOTING, added_fields, decode, methods_with
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.reports.output import to_yaml
from command_line import agentcli, all_commands, settings_of
from refusal import refused

COMMANDS = list(all_commands().values())
CASES = [(command, option) for command in COMMANDS for option in command.options_with() if option.path]
NAMES = [f"{command.name}-{option.name}" for command, option in CASES]

pytestmark = pytest.mark.usefixtures("empty_folder", "no_variables")


def value_at(settings: Settings, path: str) -> Any:
    value: Any = settings
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else getattr(value, key)
    return value


def with_value(path: str, value: Any) -> Path:
    """A -c file that sets one path, and what that path needs to take effect."""
    text: Any = value
    for key in reversed(path.split(".")):
        text = {key: text}
    section, _, name = path.partition(".")
    if section == "rollout" and name not in RolloutSettings.__struct_fields__:
        text["rollout"]["method"] = methods_with(name)[0]
    if path == "cluster.workers":
        text["cluster"]["on"] = "ray"
    if path == "rollout.minimum_leaves":
        text["rollout"]["deadline_seconds"] = 5.0
    if path.startswith("policy.") and path != "policy.kind":
        kind = "openai" if path.startswith("policy.endpoint.") else "transformers"
        text["policy"]["kind"] = kind
        text["demos"] = {"policy": kind}
    if path in ("environment.name", "environment.data"):
        # Nothing is left to the world, so that it may be one that does not exist.
        text["environment"]["split"] = "train"
        text |= {"evaluation": {"split": "test"}, "prompt": {"style": "full"}}
    file = Path("only.yaml")
    file.write_text(to_yaml(text), encoding="utf-8")
    return file


def two_values(option: Option) -> tuple[Any, Any, list[str]]:
    """A value for the file, another one for the command line, and how that one is typed."""
    if option.path == "environment.where":
        return {"kind": ["a"]}, {"kind": ["b"], "room": ["c"]}, ["kind=b,room=c"]
    if option.path == "tracking.to":
        return ["wandb"], ["tensorboard"], ["tensorboard"]
    if option.path == "train.update":
        return "critical", "all", ["all"]
    if option.metavar and "|" in option.metavar and option.metavar.islower():
        second, first = option.metavar.split("|")[:2]
        return first, second, [second]
    if option.path == "rollout.method":
        return "spark", "carl", ["carl"]
    if option.kind is bool:
        return True, False, []
    by_kind: dict[Any, tuple[Any, Any]] = {int: (7, 3), float: (0.7, 0.3), str: ("one", "two")}
    first, second = by_kind[option.kind]
    return first, second, [str(second)]


@pytest.mark.parametrize(("command", "option"), CASES, ids=NAMES)
def test_an_option_not_given_leaves_the_file_alone_and_one_given_overrides_it(command: Command, option: Option) -> None:
    path = option.path or ""
    in_file, typed, words = two_values(option)
    file = with_value(path, in_file)
    layers = ["--config", str(file)]
    assert value_at(settings_of(command, layers), path) == in_file
    switch = option.names[-1:] if option.kind is bool else option.names[:1]
    expected = {**in_file, **typed} if isinstance(typed, dict) else typed
    assert value_at(settings_of(command, [*layers, *switch, *words]), path) == expected


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if any(option.path for option in command.options_with())],
    ids=lambda c: c.name,
)
def test_without_options_a_file_with_every_setting_changed_comes_through(command: Command, tmp_path: Path) -> None:
    changed = _changed(decode({}))
    (tmp_path / "all.yaml").write_text(to_yaml(changed), encoding="utf-8")
    assert settings_of(command, ["--config", "all.yaml"]) == changed


def _changed(section: Any) -> Any:
    """The same settings with every number, text and switch other than its default."""
    values = {}
    for field in msgspec.structs.fields(section):
        old, kind = getattr(section, field.name), field.type
        if isinstance(old, msgspec.Struct):
            values[field.name] = _changed(old)
        elif field.name == "method":
            values[field.name] = old
        elif typing.get_origin(kind) is typing.Literal:
            values[field.name] = typing.get_args(kind)[-1]
        elif isinstance(old, bool):
            values[field.name] = not old
        elif isinstance(old, float):
            values[field.name] = old / 2 or 0.5
        elif isinstance(old, int):
            values[field.name] = old + 1
        elif isinstance(old, tuple):
            values[field.name] = tuple(item / 2 for item in old)
        elif isinstance(old, dict):
            values[field.name] = {"method": "spark"} if "method" in old else {"x": ["y"]}
        elif isinstance(old, list):
            (item,) = typing.get_args(kind)
            values[field.name] = list(typing.get_args(item))
        elif sections := [
            one for one in typing.get_args(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)
        ]:
            values[field.name] = _changed(sections[0]())
        else:
            text = str(kind)
            literals = [one for one in typing.get_args(kind) if typing.get_origin(one) is typing.Literal]
            if literals:
                values[field.name] = typing.get_args(literals[0])[-1]
                continue
            if kind == bool | None:
                values[field.name] = True
                continue
            values[field.name] = 5 if "int" in text else 1.0 if "float" in text else "text"
    return type(section)(**values)


def test_options_of_a_command_are_unambiguous() -> None:
    for command in COMMANDS:
        paths = [option.path for option in command.options_with() if option.path]
        words = [word for option in command.options for word in option.names]
        assert len(set(paths)) == len(paths), command.name
        assert len(set(words)) == len(words), command.name


def test_where_takes_pairs_and_lists() -> None:
    assert parse_where(["kind=a,b", "room=x", "kind=c"]) == {"kind": ["a", "b", "c"], "room": ["x"]}
    assert parse_where(["kind=a,b,room=x,y"]) == {"kind": ["a", "b"], "room": ["x", "y"]}


@pytest.mark.parametrize("text", ["kind", "=a", "kind=", "kind=a,,b", ""])
def test_where_that_says_nothing_is_refused(text: str) -> None:
    refused(lambda: parse_where([text]), remedy="key=value")


@pytest.mark.parametrize("command", ["rollout", "run"])
@pytest.mark.parametrize("method", [name for name in growth_names() if name != VOTING])
def test_a_methods_options_are_shown_with_its_name_only(command: str, method: str) -> None:
    options = all_commands()[(command,)].options_with(method)
    own = {one.name for one in options if one.panel == f"Only with --method {method}"}
    assert own <= {field.name for field in added_fields(method)}
    for option in options:
        section, _, name = (option.path or "").partition(".")
        of_methods = section == "rollout" and bool(methods_with(name))
        assert option.hidden == (of_methods and option.name not in own), option.shown
    assert not {"vote", "depth", "vote_tokens"} & {option.name for option in options}


@pytest.mark.parametrize("method", credit_names())
def test_a_credit_methods_switches_are_options(method: str) -> None:
    options = all_commands()[("assign-credit",)].options_with(method)
    shown = {
        option.path.partition(".")[2]
        for option in options
        if (option.path or "").startswith("credit.") and not option.hidden
    }
    assert shown == {"method", *switches_of(method)}
    kinds = {option.path: option.kind for option in all_commands()[("assign-credit",)].options_with()}
    assert {option.path: option.kind for option in options} == kinds


def test_help_of_rollout_is_short_and_names_the_longer_one(tmp_path: Path) -> None:
    words = help_of("rollout")
    assert len(flags(words)) <= 36
    assert "--method NAME --help" in " ".join(words.replace("│", " ").split())
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    mine = {"spark": {"--roots", "--branching", "--branch", "--fork"}, "mine.py:grow": {"--wins"}, "chain": set()}
    always = flags(help_of("rollout", "--method", "chain"))
    for method, own in mine.items():
        assert flags(help_of("rollout", "--method", method)) == always | own


def test_a_setting_of_a_function_of_ones_own_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    words = (
        "rollout",
        "--policy",
        "random",
        "--method",
        "mine.py:grow",
        "--wins",
        "3",
        "--dry-run",
        "--json",
        "-o",
        "x",
    )
    assert json.loads(agentcli(*words).stdout)["settings"]["rollout"]["wins"] == 3
    (tmp_path / "broken.py").write_text("\n1 / 0\n", encoding="utf-8")
    refused(agentcli("rollout", "--method", "broken.py:grow", "--help"), 1, names="broken.py:2")


MINE = """
from agentcli.exploration.actor import Actor
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree

class Mine(RolloutSettings, kw_only=True):
    wins: int = 1
    \"\"\"Successes after which a task is not played again.\"\"\"

async def grow(actor: Actor, settings: Mine) -> Tree: ...
"""


def help_of(*words: str) -> str:
    return agentcli(*words, "--help").stdout


def flags(text: str) -> set[str]:
    """The options that a help lists."""
    return set(re.findall(r"^[│|] +(--[a-z-]+)", text, re.MULTILINE))


def option_of(command: str, name: str) -> Option:
    """An option of a command by its name in a Call."""
    (option,) = [one for one in all_commands()[(command,)].options_with() if one.name == name]
    return option


@pytest.mark.parametrize(
    ("command", "name", "default"),
    [
        ("rollout", "leaves", "8"),
        ("rollout", "method", "chain"),
        ("rollout", "roots", "4"),
        ("rollout", "branching", "2"),
        ("train", "recompute_logprobs", "off"),
        ("assign-credit", "method", "grpo"),
        ("eval", "samples", "1"),
    ],
)
def test_help_ends_with_the_default(command: str, name: str, default: str) -> None:
    assert option_of(command, name).whole_help.endswith(f" Default: {default}.")


def test_help_of_a_setting_without_a_default_says_none() -> None:
    assert "Default" not in option_of("rollout", "budget").whole_help


@pytest.mark.parametrize("command", ["rollout", "assign-credit"])
def test_help_names_every_method(command: str) -> None:
    option = option_of(command, "method")
    names = growth_names() if command == "rollout" else credit_names()
    assert set(names) - {VOTING} <= set(re.findall(r"[a-z-]+", option.help))
