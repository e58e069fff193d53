"""A knob is one line: a field with a docstring in the class of a method's settings. All else follows from it."""

import json
from pathlib import Path

import pytest
from command_line import agentcli, succeeded
from installed import install
from refusal import refused

METHOD = '''
"""chain, as another package brings it, with a setting of its own."""

from agentcli.exploration.chain import explore as grow
from agentcli.exploration.actor import Actor
from agentcli.records.settings import Count, RolloutSettings
from agentcli.records.types import Tree


class KnobRollout(RolloutSettings, kw_only=True):
    """Settings of the method."""

    {field}


async def explore(actor: Actor, settings: KnobRollout) -> Tree:
    """A tree of chain."""
    return await grow(actor, settings)
'''
KNOB = '''patience: Count = 3; "Turns without success before it gives up."'''
PRESET = """
environment: {{name: "toy_world:ToyWorld", max_steps: 4, options: {{tasks: 1}}}}
prompt: {{style: compact}}
policy: {{kind: random}}
rollout: {{method: {method}, leaves: 2}}
"""
WITH, WITHOUT = "with-knob", "without-knob"


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with two methods that differ in one line, and a preset for each."""
    package = empty_folder / "package"
    install(package, monkeypatch, {"agentcli.exploration": {WITH: "with_knob", WITHOUT: "without_knob"}})
    (package / "with_knob.py").write_text(METHOD.format(field=KNOB), encoding="utf-8")
    (package / "without_knob.py").write_text(METHOD.format(field="").replace("    \n", ""), encoding="utf-8")
    for method in (WITH, WITHOUT):
        (empty_folder / f"{method}.yaml").write_text(PRESET.format(method=method), encoding="utf-8")


def rollout(method: str, *words: str) -> tuple[str, ...]:
    return ("rollout", "--preset", f"./{method}.yaml", "-q", "-o", "x", *words)


def shown_settings(*words: str) -> object:
    """What a dry run says the knob comes to."""
    done = succeeded(*rollout(WITH, *words), "--dry-run", "--json")
    return json.loads(done.stdout)["settings"]["rollout"]["patience"]


def test_it_is_set_like_any_other_and_a_dry_run_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_settings() == 3
    assert shown_settings("--set", "rollout.patience=5") == 5
    assert shown_settings("--patience", "6") == 6
    monkeypatch.setenv("AGENTCLI_ROLLOUT__PATIENCE", "7")
    assert shown_settings() == 7


def test_help_says_its_docstring_and_whose_it_is() -> None:
    assert "--patience" not in agentcli("rollout", "--help").stdout
    done = succeeded("rollout", "--method", "with-knob", "--help")
    words = " ".join(done.stdout.replace("│", " ").split())
    assert "--patience" in words
    assert "--method with-knob" in words
    assert "Turns without success before" in words


def test_the_schema_has_it() -> None:
    done = succeeded("schema", "settings")
    methods = json.loads(done.stdout)["$defs"]["Settings"]["properties"]["rollout"]["anyOf"]
    definitions = json.loads(done.stdout)["$defs"]
    bounds = {}
    for method in methods:
        definition = definitions[method["$ref"].removeprefix("#/$defs/")]
        bounds |= dict.fromkeys(definition["properties"]["method"]["enum"], definition["properties"].get("patience"))
    assert bounds[WITH] == {"type": "integer", "minimum": 1, "maximum": 1_000_000_000, "default": 3}
    assert bounds[WITHOUT] is None
    assert bounds["chain"] is None


@pytest.mark.parametrize(
    ("method", "assignment", "names", "remedy"),
    [
        (WITH, "rollout.patence=5", "rollout.patence", "rollout.patience"),
        (WITH, "rollout.patience=0", "rollout.patience", ">= 1"),
        (WITH, "rollout.patience=many", "rollout.patience", "int"),
        (WITHOUT, "rollout.patience=5", ["rollout.patience", WITHOUT], f"--method {WITH}"),
    ],
)
def test_what_it_cannot_be_is_refused(method: str, assignment: str, names: list[str], remedy: str) -> None:
    refused(agentcli(*rollout(method, "--set", assignment)), 2, names, remedy)
    assert not Path("x").exists()


def test_a_resume_with_another_value_is_refused() -> None:
    assert agentcli(*rollout(WITH, "--patience", "5")).code == 0
    refused(agentcli(*rollout(WITH, "--resume", "--patience", "6")), 2, ["rollout.patience", "5", "6"], "--overwrite")
    assert agentcli(*rollout(WITH, "--resume", "--patience", "5")).code == 0
