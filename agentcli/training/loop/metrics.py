"""The base of all lines of metrics.jsonl. Each kind of training declares its own."""

from typing import TYPE_CHECKING

from agentcli.records.types import SCHEMA_VERSION, Record


class MetricsLine(Record, kw_only=True):
    """Base of all lines."""

    schema_version: int = SCHEMA_VERSION
    update: int
    """1-based."""
    if TYPE_CHECKING:
        # Every class declares it as its last field: fields are written in the order of
        # their declaration.
        seconds: float
