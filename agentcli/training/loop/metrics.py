"""The base class of all lines of metrics.jsonl; each kind of training has its own."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from agentcli.records.types import SCHEMA_VERSION, Record


class MetricsLine(Record, kw_only=True):
    """Base class of all lines."""

    schema_version: int = SCHEMA_VERSION
    update: int
    """Number of the update, from 1."""
    if TYPE_CHECKING:
        # Every class declares it as its last field: fields are written in the order of
        # their declaration.
        seconds: float


def means_of(lines: Sequence[MetricsLine], names: Iterable[str]) -> dict[str, float]:
    """The means of the named fields over all lines; empty without lines."""
    if not lines:
        return {}
    return {name: fmean(getattr(line, name) for line in lines) for name in names}
