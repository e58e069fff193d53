"""The times of a tree, in seconds: one line of seconds.jsonl.

They are not part of the trees, so that the same seed gives the same trees.jsonl.
"""

from agentcli.records.types import SCHEMA_VERSION, Record, Seconds


class TreeSeconds(Record, kw_only=True):
    """The seconds that a tree took. A tree that was played again has two lines."""

    schema_version: int = SCHEMA_VERSION
    task: str
    """Task id of the tree."""
    policy: Seconds
    """Total time its requests waited for the policy, queueing and shared batches
    included. Requests that overlap are all counted.
    """
    environment: Seconds
    """Total time its steps waited for the engines; steps that overlap are all counted.
    """
    wall: Seconds
    """From its first request to its end."""
