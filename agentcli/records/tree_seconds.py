"""The seconds of a tree: a line of seconds.jsonl.

They lie beside the trees, so that one seed means the same trees.jsonl.
"""

from agentcli.records.types import SCHEMA_VERSION, Record, Seconds


class TreeSeconds(Record, kw_only=True):
    """The seconds that a tree took. A tree that was redone has two lines."""

    schema_version: int = SCHEMA_VERSION
    task: str
    """Task id of the tree."""
    policy: Seconds
    """Seconds its requests waited for the policy, each counted: shared batches and the
    queue before them are part of it.
    """
    environment: Seconds
    """Seconds its steps waited for the engines, each counted."""
    wall: Seconds
    """From its first request to its end."""
