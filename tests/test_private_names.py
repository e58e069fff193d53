"""The private names of other libraries that agentcli uses: these and no others, and the installed versions have them."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import agentcli
import pytest
from packaging.requirements import Requirement
from transformers import PreTrainedConfig, PreTrainedModel, Trainer
from trl.trainer.dpo_trainer import DPOTrainer
from typed_pages import ROOT

PACKAGE = Path(agentcli.__file__).parent
READ = {"_attn_implementation": PreTrainedConfig, "_is_distributed_loading_by_transformers": PreTrainedModel}
"""Attributes of their objects, and the class that has them."""
OVERRIDDEN = {
    "_defer_fsdp_gradient_reduction": Trainer,
    "_prepare_dataset": DPOTrainer,
    "_precompute_ref_logps": DPOTrainer,
}
"""Methods of their trainers that ours replace."""
TRAINERS = (
    "imitation:ImitationTrainer",
    "preference:PreferenceTrainer",
    "ppo:PpoTrainer",
    "offline_ppo:OfflinePpoTrainer",
    "process_reward:ProcessRewardTrainer",
)
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def private_attributes(file: Path) -> Iterator[str]:
    """Private names that a file takes from something other than its own objects."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield node.attr


def test_no_other_private_attribute_is_read() -> None:
    folders = ("training", "policies", "stages")
    files = [file for folder in folders for file in (PACKAGE / folder).rglob("*.py")]
    own = {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    names = {name for file in files for name in private_attributes(file)}
    assert names - own - OF_TUPLES == set(READ)


@pytest.mark.parametrize(("name", "owner"), [*READ.items(), *OVERRIDDEN.items()])
def test_the_installed_version_has_it(name: str, owner: type) -> None:
    assert name in dir(owner)


def test_no_other_private_method_is_replaced() -> None:
    replaced = set()
    for place in TRAINERS:
        module, _, name = place.partition(":")
        kinds = getattr(importlib.import_module(f"agentcli.training.{module}"), name).__mro__
        theirs = [kind for kind in kinds if not kind.__module__.startswith("agentcli")]
        for kind in kinds:
            if kind not in theirs:
                private = [name for name in vars(kind) if name.startswith("_") and not name.startswith(("__", "_abc_"))]
                replaced |= {name for name in private if any(name in vars(other) for other in theirs)}
    assert replaced == set(OVERRIDDEN)


@pytest.mark.parametrize("library", ["transformers", "trl", "peft", "accelerate"])
def test_an_installation_is_held_below_the_next_names(library: str) -> None:
    import tomllib
    from importlib.metadata import version

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {Requirement(line).name: Requirement(line).specifier for line in project["dependencies"]}[library]
    assert any(bound.operator == "<" for bound in bounds)
    assert version(library) in bounds
    assert ("5.18.0" in bounds, "5.19.0" in bounds) == (False, True) or library != "transformers"
