"""Docstrings under fields become the descriptions of a schema: every setting has one."""

from typing import Any

from agentcli.analysis.schema import json_schema
from agentcli.records.docs import classes_in
from agentcli.records.types import Step, Task, Tree


def test_every_setting_is_described() -> None:
    silent = []
    for section, definition in json_schema("settings")["$defs"].items():
        for name, schema in definition["properties"].items():
            if not ("description" in schema or is_section(schema)):
                silent.append(f"{section}.{name}")
    assert not silent


def is_section(schema: dict[str, Any]) -> bool:
    """Whether a property is a section, whose settings are described one by one."""
    return "$ref" in schema or all("$ref" in one for one in schema.get("anyOf", [{}]))


def test_a_record_has_the_descriptions_of_its_parts() -> None:
    steps = json_schema("tree")["$defs"]["Step"]["properties"]
    assert "Reasoning tag" in steps["tag"]["description"]


def test_the_classes_of_a_type_are_those_of_its_fields_too() -> None:
    assert {Tree, Step, Task} <= set(classes_in(list[Tree] | None))
