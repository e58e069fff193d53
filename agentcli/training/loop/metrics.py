"""The base of all lines of metrics.jsonl. Each kind of training declares its own."""

from collections.abc import Iterable, Sequence
from statistics import fmean
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


def means_of(lines: Sequence[MetricsLine], names: Iterable[str]) -> dict[str, float]:
    """The means of these fields over all lines; empty without lines."""
    if not lines:
        return {}
    return {name: fmean(getattr(line, name) for line in lines) for name in names}
