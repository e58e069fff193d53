"""Reads traces.jsonl of verifiers 0.4 (its `trace_store.write_episode`): an episode a line.

A trace is a graph of messages. The nodes that the model sampled are steps; the messages
between them are what it read. A leaf of the graph ends a trajectory with the trace's
reward, the weighted sum of its `rewards`: where a harness rewrote the history, one trace
is several trajectories. Every agent of an episode is a group of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.foreign import rollouts
from agentcli.records.types import LogProbability, Position, Reward, Temperature

AGAIN = "leave the line out, or write it again with verifiers 0.4"
MOST_NODES = 4096
"""Most messages of a trace: each response repeats the path to it."""
LIMITS = (
    *("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"),
    *("compaction_failed",),
)
"""Stop conditions of a trace that was cut off (`Trace.is_truncated`)."""


class ForeignLink(msgspec.Struct):
    """A causal link between nodes of a trace."""

    node: int
    type: str


class ForeignNode(msgspec.Struct):
    """A message of a trace, with the tokens that it adds."""

    message: rollouts.ForeignMessage
    parent: Position | None = None
    sampled: bool = False
    token_ids: list[Position] = []
    mask: list[bool] = []
    logprobs: list[LogProbability] = []
    semantic_parents: list[ForeignLink] = []


class ForeignSampling(msgspec.Struct):
    """How a response was sampled."""

    temperature: Temperature | None = None


class ForeignModelCall(msgspec.Struct):
    """A call of the model."""

    node: int | None = None
    sampling: ForeignSampling | None = None
    finish_reason: str | None = None


class ForeignReward(msgspec.Struct):
    """One named reward of a trace."""

    score: Reward
    weight: Reward = 1.0


class ForeignAgent(msgspec.Struct):
    """The agent of a trace."""

    name: str = "agent"
    trainable: bool = True


class ForeignTrace(msgspec.Struct):
    """One agent's trace."""

    agent: ForeignAgent
    nodes: list[ForeignNode] = []
    calls: list[ForeignModelCall] = []
    rewards: dict[str, ForeignReward | None] = {}
    ok: bool = False
    stop_condition: str | None = None
    errors: list[dict[str, Any]] = []


class ForeignEpisode(msgspec.Struct):
    """A line of traces.jsonl."""

    task: dict[str, Any]
    traces: list[ForeignTrace]
    env: dict[str, Any] = {}
    group: dict[str, Any] | None = None


def read(
    file: Path, choices: rollouts.ImportChoices
) -> Iterator[rollouts.ForeignRollout]:
    """Streams the traces of a file. Raises DataError with line and field."""
    for number, line in rollouts.limited_lines(file):
        place = f"{file}:{number}"
        episode = rollouts.decoded(line, ForeignEpisode, place, AGAIN)
        named = (episode.group or {}).get("id")
        group = str(
            named or episode.task.get("key") or episode.task.get("hash") or number
        )
        agents = {trace.agent.name for trace in episode.traces}
        for index, trace in enumerate(episode.traces):
            yield rollouts.ForeignRollout(
                place,
                group if len(agents) == 1 else f"{group}/{trace.agent.name}",
                _turns(trace, f"{place}: traces[{index}]"),
                kind=str(episode.env.get("id", "")),
                mask=None if trace.agent.trainable else "a model that is not trained",
            )


class Head(NamedTuple):
    """Where a conversation stands at a node of a trace."""

    turn: int | None
    """The last response; None before the first."""
    since: tuple[int, ...]
    """The nodes after it."""


def _turns(trace: ForeignTrace, place: str) -> list[rollouts.ForeignTurn]:
    """The sampled nodes of a trace. Raises DataError for a node without its parent.

    A renderer may leave the reasoning out of the responses that a prompt repeats. Such a
    response and all that follows are nodes of their own, with other tokens, but the same
    turns: they have the same content after the same messages.
    """
    nodes = trace.nodes
    if len(nodes) > MOST_NODES:
        raise DataError(f"{place}.nodes: more than {MOST_NODES}; leave the line out")
    calls = {call.node: call for call in trace.calls}
    turns: list[rollouts.ForeignTurn] = []
    heads: list[Head] = []
    names: list[str] = []
    said: dict[str, int] = {}
    for position, node in enumerate(nodes):
        if node.parent is not None and node.parent >= position:
            raise DataError(
                f"{place}.nodes[{position}].parent: {node.parent} is not an earlier "
                f"node; {AGAIN}"
            )
        head = Head(None, ()) if node.parent is None else heads[node.parent]
        above = "" if node.parent is None else names[node.parent]
        message = node.message
        content = (message.content or "", message.action)
        name = rollouts.digest(repr((above, message.role, content)))
        names.append(name)
        if node.sampled:
            said[name] = len(turns)
            turn = _turn(nodes, position, head, f"{place}.nodes[{position}]")
            call = calls.get(position, ForeignModelCall())
            turn.cut = call.finish_reason == "length"
            if call.sampling is not None and call.sampling.temperature is not None:
                turn.temperature = call.sampling.temperature
            turns.append(turn)
        if name in said:
            heads.append(Head(said[name], ()))
        else:
            heads.append(Head(head.turn, (*head.since, position)))
    inner = {turn.parent for turn in turns}
    after = {head.turn: head.since for head in heads if head.since}
    refused = _abandoned(trace)
    for position, node in enumerate(nodes):
        index = heads[position].turn
        if node.sampled and index is not None and index not in inner:
            messages = [nodes[one].message for one in after.get(index, ())]
            last = turns[index]
            last.end = _ending(trace, last, messages, position in refused)
    return turns


def _turn(
    nodes: list[ForeignNode], position: int, head: Head, place: str
) -> rollouts.ForeignTurn:
    """A sampled node after what the model read. Raises DataError for unlike lists."""
    node = nodes[position]
    sampled = sum(node.mask)
    start = len(node.token_ids) - sampled
    if len(node.mask) != len(node.token_ids) or any(node.mask[:start]):
        raise DataError(
            f"{place}.mask: the sampled tokens are not the last of its "
            f"{len(node.token_ids)} token_ids; {AGAIN}"
        )
    if node.logprobs and len(node.logprobs) != sampled:
        raise DataError(
            f"{place}.logprobs: {len(node.logprobs)} for {sampled} sampled tokens; {AGAIN}"
        )
    pieces = [node.token_ids[:start]]
    above = node.parent
    while above is not None:
        pieces.append(nodes[above].token_ids)
        above = nodes[above].parent
    return rollouts.ForeignTurn(
        parent=head.turn,
        before=[nodes[one].message for one in head.since],
        message=node.message,
        prompt_ids=pieces[::-1],
        # Tokens without their probabilities cannot be trained on.
        token_ids=node.token_ids[start:] if node.logprobs else [],
        logprobs=node.logprobs,
    )


def _abandoned(trace: ForeignTrace) -> set[int]:
    """The attempts at a compaction from which the harness did not go on."""
    links = [
        (i, link) for i, n in enumerate(trace.nodes) for link in n.semantic_parents
    ]
    tried = {node for node, link in links if link.type == "compaction_attempt"}
    return tried - {link.node for _, link in links if link.type == "compaction"}


def _ending(
    trace: ForeignTrace,
    last: rollouts.ForeignTurn,
    after: list[rollouts.ForeignMessage],
    abandoned: bool,
) -> rollouts.Ending:
    """How the branch of a trace that ends in `last` ended."""
    if abandoned:
        return rollouts.Ending(error="an attempt at a compaction", after=after)
    given = [one for one in trace.rewards.values() if one is not None]
    error = None
    if not trace.ok:
        fault = trace.errors[-1] if trace.errors else {}
        error = shown(f"{fault.get('type', 'error')}: {fault.get('message', '')}")
    return rollouts.Ending(
        reward=sum(one.score * one.weight for one in given) if given else None,
        truncated=trace.stop_condition in LIMITS or last.cut,
        error=error,
        after=after,
    )
