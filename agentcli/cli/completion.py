"""The names that the shell offers for a value when TAB is pressed.

Every function takes Typer's context, which contains what was typed so far, and returns
names. If none fits, the shell completes paths by itself. Names come from the registries
and settings that the stages use. These are imported on demand, and none of them loads
torch, transformers or a world's engine.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import typer

Values = Callable[[typer.Context], list[str]]

ASKED = "_AGENTCLI_COMPLETE" in os.environ
"""Whether the shell asks for completions. If not, Typer does not inspect the functions,
which would cost each command two milliseconds.
"""


def completer(values: Values) -> Callable[[typer.Context, str], list[str]]:
    """Turns `values` into a function for Typer's parameter `autocompletion`."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return [value for value in values(ctx) if value.startswith(incomplete)]

    return complete


def fixed(*names: str) -> Values:
    """Always offers the same names."""
    return lambda ctx: list(names)


def _typed(ctx: typer.Context, name: str) -> str | None:
    """The value of a parameter typed earlier."""
    value = ctx.params.get(name)
    if value is not None:
        return str(value)
    # While an option still lacks its value, Typer has not yet assigned the positional
    # argument.
    return ctx.args[0] if name in ("run", "world") and ctx.args else None


def exploration_methods(ctx: typer.Context) -> list[str]:
    """The exploration methods."""
    from agentcli.exploration.registry import method_names

    return method_names()


def credit_methods(ctx: typer.Context) -> list[str]:
    """The credit methods."""
    from agentcli.credit.registry import method_names

    return method_names()


def credit_files(ctx: typer.Context) -> list[str]:
    """The credit files of RUN (or runs/latest); if there are none, every method."""
    from agentcli.stages.resolve import RUNS

    run = Path(_typed(ctx, "run") or RUNS / "latest")
    files = (run / "credit").glob("*.jsonl")
    return sorted(file.stem for file in files) or credit_methods(ctx)


def worlds(ctx: typer.Context) -> list[str]:
    """The built-in and installed worlds."""
    from agentcli.environments.registry import world_names

    return world_names()


def splits(ctx: typer.Context) -> list[str]:
    """The splits of the world that was typed, else of the default one."""
    from agentcli.environments.registry import make_world
    from agentcli.errors import AgentCliError
    from agentcli.records.settings import EnvironmentSettings

    settings = EnvironmentSettings()
    settings.name = _typed(ctx, "env") or _typed(ctx, "world") or settings.name
    # An error during completion would not be read: a world that fails offers nothing.
    try:
        return list(make_world(settings).card.splits)
    except AgentCliError:
        return []


def presets(ctx: typer.Context) -> list[str]:
    """The shipped presets."""
    from agentcli.stages.layers import list_presets

    return [path.stem for path in list_presets()]


def policies(ctx: typer.Context) -> list[str]:
    """Every policy except the one that only `demos` creates."""
    from agentcli.policies.registry import policy_names

    return [name for name in policy_names() if name != "demonstrator"]


def dtypes(ctx: typer.Context) -> list[str]:
    """The data types in which a model can be loaded."""
    from agentcli.policies.load import DTYPES

    return ["auto", *DTYPES]


def trackers(ctx: typer.Context) -> list[str]:
    """The trackers that metrics can be sent to."""
    from msgspec.structs import fields

    from agentcli.records.settings import TrackingSettings

    types = {field.name: field.type for field in fields(TrackingSettings)}
    (name,) = get_args(types["to"])
    return list(get_args(name))


def schemas(ctx: typer.Context) -> list[str]:
    """The records and settings that have a JSON Schema."""
    from agentcli.analysis.schema import kind_names

    return kind_names()
