"""A world's own settings: `environment.options`."""

from typing import TypeVar

import msgspec

from agentcli.records.options import read_options
from agentcli.records.settings import EnvironmentSettings

PLACE = "environment.options"

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


def options_of(settings: EnvironmentSettings, kind: type[OptionsT]) -> OptionsT:
    """The options, as the world's own type. Raises UsageError naming a wrong option."""
    return read_options(settings.options, kind, PLACE, settings.name)
