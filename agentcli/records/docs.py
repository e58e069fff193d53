"""The docstrings under the fields of a settings class.

They become the help of options and the descriptions in a JSON schema.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args

import msgspec

from agentcli.registry import OWN_MODULES


def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring of every field that has one, each on one line.

    Inherited fields are included. The class must come from a source file.
    """
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            docs_by_class = _docs_in(base.__module__)
            docs |= docs_by_class.get(base.__name__, {})
    return docs


def classes_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type contains, starting with itself."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from classes_in(field.type)
    for part in get_args(kind):
        yield from classes_in(part)


def describe(
    definitions: Mapping[str, Any], kinds: Iterable[type[msgspec.Struct]]
) -> None:
    """Adds the docstrings of fields to the definitions of a JSON schema."""
    for kind in kinds:
        for one in classes_in(kind):
            # If two classes have the same name, the schema gives each a longer one.
            definition = definitions.get(one.__name__)
            if definition is None:
                continue
            properties = definition["properties"]
            docs = field_docs(one)
            for name in docs.keys() & properties.keys():
                properties[name]["description"] = docs[name]


@cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of a whole module by class and field."""
    source = inspect.getsource(OWN_MODULES.get(module) or sys.modules[module])
    docs = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            docs[node.name] = _docs_of(node.body)
    return docs


def _docs_of(body: list[ast.stmt]) -> dict[str, str]:
    docs: dict[str, str] = {}
    name = ""
    for statement in body:
        match statement:
            case ast.If(body=declared):  # for type checkers alone
                docs |= _docs_of(declared)
            case ast.AnnAssign(target=ast.Name(id=field)):
                name = field
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                docs[name] = " ".join(text.split())
                name = ""
            case _:
                name = ""
    return docs
