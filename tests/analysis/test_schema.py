"""JSON Schemas of all records: what they say is what the types say, and they hold for real records."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.analysis.schema import KINDS, METRICS, json_schema, kind_names, kind_of, metrics_type, type_of
from agentcli.errors import UsageError
from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import settings_class
from agentcli.records import types
from agentcli.records.settings import Settings
from agentcli.records.types import Record
from refusal import refused
from sample_records import every_record

RECORDS = {**every_record(), "settings": Settings()}
JSON_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
SAID_ELSEWHERE = {"title", "description", "default", "$defs"}


def fault(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> str | None:
    """Where `value` breaks a JSON Schema, None where it holds. Knows the words that our schemas use, and fails at any other."""
    for word, what in schema.items():
        found = _broken(word, what, value, schema, root, at)
        if found:
            return found
    return None


def _broken(word: str, what: Any, value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> str | None:
    match word:
        case "$ref":
            return fault(value, root["$defs"][what.removeprefix("#/$defs/")], root, at)
        case "type":
            good = isinstance(value, JSON_TYPES[what]) and (what == "boolean" or not isinstance(value, bool))
            return None if good else f"{at}: no {what}"
        case "enum":
            return None if value in what else f"{at}: not in enum"
        case "anyOf":
            return None if any(fault(value, one, root, at) is None for one in what) else f"{at}: none of anyOf"
        case "minimum":
            return f"{at}: below minimum" if value < what else None
        case "maximum":
            return f"{at}: above maximum" if value > what else None
        case "exclusiveMinimum":
            return f"{at}: not above minimum" if value <= what else None
        case "exclusiveMaximum":
            return f"{at}: not below maximum" if value >= what else None
        case "required":
            return next((f"{at}.{name}: missing" for name in what if name not in value), None)
        case "properties":
            inner = ((name, one) for name, one in what.items() if name in value)
            return next(
                (found for name, one in inner if (found := fault(value[name], one, root, f"{at}.{name}"))), None
            )
        case "additionalProperties":
            more = [name for name in value if name not in schema.get("properties", {})]
            if what is False:
                return f"{at}.{more[0]}: unknown" if more else None
            return next((found for name in more if (found := fault(value[name], what, root, f"{at}.{name}"))), None)
        case "items":
            if what is False:
                return None if len(value) <= len(schema["prefixItems"]) else f"{at}: too long"
            pairs = enumerate(value)
            return next((found for n, one in pairs if (found := fault(one, what, root, f"{at}[{n}]"))), None)
        case "prefixItems":
            pairs = enumerate(zip(value, what, strict=True))
            return next((found for n, (one, own) in pairs if (found := fault(one, own, root, f"{at}[{n}]"))), None)
        case "minItems" | "maxItems":
            return None if (len(value) >= what if word == "minItems" else len(value) <= what) else f"{at}: {word}"
    assert word in SAID_ELSEWHERE, word
    return None


def test_every_record_type_has_a_name() -> None:
    records = {
        kind
        for kind in vars(types).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Record
    }
    assert records <= {kind.type for kind in KINDS}
    assert set(RECORDS) == set(kind_names())


@pytest.mark.parametrize("name", kind_names())
def test_a_schema_says_what_the_type_says(name: str) -> None:
    schema, kind = json_schema(name), type_of(name)
    body = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    fields = msgspec.structs.fields(kind)
    assert set(body["properties"]) == {field.name for field in fields}
    assert set(body["required"]) == {field.name for field in fields if field.required}
    assert body["additionalProperties"] is False


@pytest.mark.parametrize("name", kind_names())
def test_a_schema_holds_for_a_record_and_not_for_a_damaged_one(name: str) -> None:
    schema = json_schema(name)
    sound = msgspec.json.decode(msgspec.json.encode(RECORDS[name]))
    assert fault(sound, schema, schema) is None
    assert fault({**sound, "zz": 1}, schema, schema) == "$.zz: unknown"
    for field in msgspec.structs.fields(type_of(name)):
        damaged = {**sound, field.name: {"no": ["such", "value"]}}
        if not re.match(r"dict", str(field.type)):
            assert (fault(damaged, schema, schema) or "").startswith(f"$.{field.name}"), field.name
        if field.required:
            del damaged[field.name]
            assert fault(damaged, schema, schema) == f"$.{field.name}: missing"


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("tree", ("steps", 0, "reward"), 1e30, "none of anyOf|above maximum"),
        ("tree", ("steps", 0, "parent"), -1, "none of anyOf"),
        ("tree", ("steps", 0, "token_ids", 0), -1, "below minimum"),
        ("tree", ("steps", 0, "stop"), "halt", "not in enum"),
        ("credit", ("steps", 0, "advantage"), 1e30, "none of anyOf"),
        ("credit", ("steps", 0, "step"), -1, "below minimum"),
        ("episode", ("tokens",), 2**70, "above maximum"),
        ("manifest", ("stages", "rollout", "counts", "trees"), -1, "below minimum"),
        ("settings", ("rollout", "leaves"), 0, r"^\$\.rollout: none of anyOf"),
        ("settings", ("train", "adam_betas"), [0.5], "minItems"),
    ],
)
def test_bounds_and_choices_are_in_the_schema(name: str, at: tuple[Any, ...], value: Any, message: str) -> None:
    schema = json_schema(name)
    record = msgspec.json.decode(msgspec.json.encode(RECORDS[name]))
    inner = record
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    assert re.search(message, fault(record, schema, schema) or "")


@pytest.mark.parametrize("method", method_names())
def test_the_schema_of_settings_knows_what_a_method_brings(method: str) -> None:
    """It holds for settings of every method, and refuses a setting of another one."""
    schema = json_schema("settings")
    settings = settings_class(method)()
    sound = msgspec.json.decode(msgspec.json.encode(settings))
    assert fault(sound, schema, schema) is None
    assert sound["rollout"]["method"] == method
    if method != "carl":
        sound["rollout"]["criterion"] = "random"
        assert fault(sound, schema, schema) == "$.rollout: none of anyOf"


def test_the_schema_of_settings_takes_chain_where_no_method_is_named() -> None:
    schema = json_schema("settings")
    assert fault({"rollout": {"leaves": 2}}, schema, schema) is None
    assert fault({"rollout": {"leaves": 2, "roots": 2}}, schema, schema) == "$.rollout: none of anyOf"
    assert fault({"rollout": {"method": "carl", "roots": 2}}, schema, schema) is None
    assert fault({"evaluation": {"copies": 2, "vote": "action"}}, schema, schema) is None
    assert fault({"evaluation": {"copys": 2}}, schema, schema) == "$.evaluation.copys: unknown"


def test_metrics_are_told_apart_by_their_fields() -> None:
    for name, kind in METRICS.items():
        assert metrics_type(msgspec.to_builtins(RECORDS[name])) is kind


def test_an_unknown_schema_names_the_nearest() -> None:
    refused(lambda: json_schema("episod"), names="episod", remedy="episode")


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("some.jsonl", None, "does not say what it holds; name it with --kind"),
        ("credit/grpo.json", None, "does not say"),
        ("model.safetensors", None, "does not say"),
        ("trees.jsonl", "tre", "no schema 'tre'; did you mean tree?"),
        ("trees.jsonl", "settings", "settings are .yaml files"),
        ("s.yaml", "tree", "settings are .yaml files"),
    ],
)
def test_a_kind_that_cannot_be_is_a_usage_error(path: str, kind: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        kind_of(Path(path), kind)
    assert message in str(caught.value)
