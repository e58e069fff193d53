"""Absurd numbers: NaN, infinity, less than any, more than any, in every numeric option of every command, in every numeric setting
by --set, file and variable, and in records; refused in one line that names the place, and nothing is written.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.errors import UsageError
from agentcli.exploration.settings import settings_class
from agentcli.records.settings import Settings
from agentcli.stages.layers import resolve
from bad_input_runs import (
    CREDIT,
    EPISODES,
    EVAL,
    GIVEN,
    RESUMED,
    ROLLOUT,
    RUN,
    SFT,
    TRAIN,
    TREES,
    contents,
    edit,
    folder,
    quietly,
    untouched,
    write,
)
from command_line import all_commands
from refusal import refused

__all__ = ["folder"]

ABSURD = {int: ("nan", "1e30", "-1", "0", str(2**70)), float: ("nan", "inf", "1e400", "1e30", "-1", "0")}
ZERO_IS_ONE_OF_THEM = {
    "--distinct",
    "--seed",
    "--history",
    "--iteration",
    "--lora",
    "--port",
    "--temperature",
    "--top",
}
COMMANDS = all_commands()
NUMERIC = {
    path: [option for option in command.options if option.kind in (int, float)] for path, command in COMMANDS.items()
}
FREE = {"rollout.entropy.base", "rollout.entropy.weight", "rollout.entropy.threshold"}
"""Settings that may be less than 0."""


def settings_paths(kind: type[msgspec.Struct] = Settings, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is no section, with its default."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from settings_paths(field.type, f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}", field.type


def takes_number(path: str, number: float | str, method: str) -> bool:
    """Whether a setting can be this ordinary number."""
    try:
        resolve(None, [], {}, [f"rollout.method={method}", f"{path}={number}"], {})
    except UsageError:
        return False
    return True


METHOD_OF = {
    path: method
    for method in ("arpo", "carl", "dpepo", "spark", "chain")
    for path, _ in settings_paths(settings_class(method))
    if takes_number(path, 1, method) and not takes_number(path, "word", method)
}
"""The numbers among the settings, and an exploration method that has them."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("path", [path for path, options in NUMERIC.items() if options], ids=" ".join)
def test_in_every_option_of_every_command(path: tuple[str, ...]) -> None:
    before = contents()
    run = ("runs/x",) if any(argument.name == "run" for argument in COMMANDS[path].arguments) else ()
    if path == ("credit", "compare"):
        run = ("runs/x", "grpo", "rloo")
    if path == ("export",):
        run = ("runs/x", "--to", "preferences")
    if path == ("import",):
        run = ("runs/x/trees.jsonl", "--from", "messages")
    for option in NUMERIC[path]:
        for value in ABSURD[option.kind]:
            if (value == "0" and option.names[0] in ZERO_IS_ONE_OF_THEM) or (
                value == str(2**70) and option.path is None
            ):
                continue  # of what there is, any number may be shown
            refused(quietly(*path, *run, option.names[0], value), 2, option.names[0])
    assert contents() == before


def test_most_settings_are_numbers() -> None:
    assert len(METHOD_OF) > 50
    assert {"seed", "policy.temperature", "train.lora.dropout", "rollout.entropy.base", "sft.tiny.heads"} <= set(
        METHOD_OF
    )


@pytest.mark.parametrize("path", METHOD_OF)
def test_in_every_setting_by_set_file_and_variable(path: str, tmp_path: Path) -> None:
    file, variable = tmp_path / "some.yaml", f"AGENTCLI_{path.upper().replace('.', '__')}"
    for value in (".nan", ".inf", "-.inf", "1e400", "1e30", "-1", str(2**70), "true", "[1]", "{}", "1 2"):
        if value == "-1" and path in FREE:
            continue
        nested: Any = json.loads(value) if value in ("true", "[1]", "{}") else value
        for key in reversed(path.split(".")):
            nested = f"{{{key}: {nested if isinstance(nested, str) else json.dumps(nested)}}}"
        file.write_text(nested, encoding="utf-8")
        method = f"rollout.method={METHOD_OF[path]}"
        for files, environ, sets, place in (
            ([], {}, [method, f"{path}={value}"], f"--set {path}={value}: {path}: "),
            ([file], {}, [method], f"{file}: {path}: "),
            ([], {variable: value}, [method], f"{variable}: {path}: "),
        ):
            with pytest.raises(UsageError) as caught:
                resolve(None, files, environ, sets, {})
            assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    ("value", "got"),
    [(".nan", "nan"), ("1e400", "inf"), (str(2**70), "64")],
)
@pytest.mark.parametrize("path", ["environment.options.length", "credit.success_reward", "environment.options.a.b"])
def test_where_a_setting_takes_anything(path: str, value: str, got: str) -> None:
    refused(lambda: resolve(None, [], {}, [f"{path}={value}"], {}), names=(f"--set {path}={value}: {path}: ", got))
    refused(lambda: resolve(None, [], {}, [f"{path}=[1, {{x: {value}}}]"], {}), names=(path, got))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "path"),
    [
        (ROLLOUT, "policy.temperature"),
        (("demos", "-c", "toy.yaml", "-o", "new"), "demos.noise"),
        (SFT, "sft.learning_rate"),
        (CREDIT, "credit.success_reward"),
        (TRAIN, "train.clip"),
        (EVAL, "evaluation.samples"),
        (("pass-at-k", "runs/x"), "evaluation.n"),
        (("test-time-branch", "runs/x"), "evaluation.branching"),
        (RUN, "run.iterations"),
        (("env", "check", "-c", "toy.yaml"), "environment.max_steps"),
        (("env", "panel", "-c", "toy.yaml"), "environment.tasks"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else value,
)
def test_of_every_command_in_set_file_and_variable(
    words: tuple[str, ...], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, name = path.split(".")
    for value in (".nan", "-1", "1e30", ".inf", "1e400"):
        refused(untouched((*words, "--set", f"{path}={value}")), 2, path)
    if words[:2] != ("env", "check"):
        refused(untouched((*words, "--set", f"{path}=-1", "--dry-run")), 2, path)
    write("bad.yaml", f"{section}: {{{name}: .nan}}")()
    refused(untouched((*words, "-c", "bad.yaml")), 2, path)
    monkeypatch.setenv(f"AGENTCLI_{section}__{name}".upper(), "-1")
    refused(untouched(words), 2, path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "field", "words"),
    [
        (TREES, "reward", CREDIT),
        (TREES, "reward", RESUMED),
        (TREES, "reward", ("validate", TREES)),
        (TREES, "id", TRAIN),
        (GIVEN, "advantage", TRAIN),
        (GIVEN, "weight", TRAIN),
        (GIVEN, "step", ("validate", GIVEN)),
        (EPISODES, "sample", EVAL),
        (EPISODES, "tokens", ("validate", EPISODES)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value.replace("/", "."),
)
def test_in_records(path: str, field: str, words: tuple[str, ...]) -> None:
    whole = Path(path).read_bytes()
    for value in ("NaN", "Infinity", "1e400", "1e30", "-1e30", str(2**70)):
        assert f'"{field}":'.encode() in whole
        edit(path, lambda data, value=value: with_value(data, field, value))()  # type: ignore[misc]
        refused(untouched(words), 3, (f"{path}:1", field))
        Path(path).write_bytes(whole)


def with_value(data: bytes, field: str, value: str) -> bytes:
    """The first such field of the first line replaced."""
    before, mark, after = data.partition(f'"{field}":'.encode())
    end = min(place for place in (after.find(b","), after.find(b"}")) if place >= 0)
    return before + mark + value.encode() + after[end:]


def test_the_absurd_is_absurd() -> None:
    """The values above are what they are meant to be."""
    assert math.isnan(float(ABSURD[float][0]))
    assert all(math.isinf(float(text)) for text in ABSURD[float][1:3])
    assert with_value(b'{"a":1,"b":2}', "a", "NaN") == b'{"a":NaN,"b":2}'
