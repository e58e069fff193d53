"""Credit for other trainers: advantages of rollouts that are given as plain lists.

    advantages = step_advantages(
        {
            "groups": ["q1", "q1", "q1"],
            "rewards": [1.0, 0.0, 0.0],
            "success": [True, False, False],
            "states": [["hall", "attic"], ["hall", "cellar"], ["hall", "attic"]],
        },
        "rewardflow",
    )

The rollouts of a group become one tree (records/types.py), and the tree goes through
the same function as under `agentcli assign-credit`. Nothing here needs torch.

Without `parents` a rollout is a chain, and its reward and success are those of its
last step. A rollout with `parents` may branch: its rewards and success are then lists
with one entry a step, of which `success` is read at the leaves only.

The reward is the outcome reward R of every method (credit.outcome is score, unless it
is set); the methods that ask who succeeded read `success`.
"""

from collections.abc import Mapping, Sequence, Sized
from itertools import groupby
from typing import Any

import msgspec

from agentcli.credit import registry
from agentcli.errors import DataError, UsageError
from agentcli.records.foreign.rollouts import ForeignCall
from agentcli.records.grouping import grouped
from agentcli.records.section import Finite, fault_and_path, read
from agentcli.records.step_rows import advantages
from agentcli.records.trees import validate_tree
from agentcli.records.types import (
    Credit,
    Ledger,
    Outcome,
    Record,
    Reward,
    Step,
    Task,
    Tree,
    Validity,
)

Lists = Mapping[str, Any]
"""The fields of Rollouts, each a plain list."""


class Rollouts(Record, kw_only=True):
    """Rollouts as lists: entry i of every list is of rollout i.

    A list of lists has, in entry i, one entry for each step of rollout i.
    """

    groups: list[int | str]
    """Rollouts with the same group are compared: those of one prompt or task."""
    rewards: list[Reward | list[Reward | None] | None]
    """Outcome reward; None for a rollout that broke, which is left out of every group
    statistic. A list has the world's own reward of every step, None for a last step
    that broke.
    """
    success: list[bool | list[bool | None] | None] | None = None
    """Whether it succeeded; None for one that was cut off."""
    parents: list[list[int | None]] | None = None
    """The step before each step, by its place in the rollout; None for a first one."""
    states: list[list[str]] | str | None = None
    """What identifies the state that each step starts from: a key, or the text that
    the agent saw. "observation" takes the messages since the last answer, which are
    equal where the agent saw the same, even if the world differs.
    """
    next_states: list[list[str | None]] | None = None
    """The state after each step. None, or without the list: that of the step that
    follows.
    """
    actions: list[list[str | None]] | None = None
    """The action of each step; None where none can be read. Without them, the answers
    in `messages`: their tool calls, else their content.
    """
    valid: list[list[bool]] | None = None
    """Whether the action did something (credit.invalid_penalty, pruned steps)."""
    tags: list[list[str | None]] | None = None
    """The kind of reasoning: planning, explore, reflection (rlvmr)."""
    values: list[list[Reward]] | None = None
    """A critic's value of the state that each step starts from (ppo)."""
    scores: list[list[Reward]] | None = None
    """A process reward model's score of each step (grpo-prm)."""
    notes: list[list[dict[str, float | str]]] | None = None
    """What a judge noted of each step: best, chosen, process_ok (rare-tool)."""
    messages: list[list[dict[str, Any]]] | None = None
    """Chats, with `role`, `content` and `tool_calls`: every message of the assistant is
    a step.
    """
    steps: list[int] | None = None
    """The number of steps, where no other list tells it; without any, 1."""


NEEDS = {
    "dpepo": ("states", "actions"),
    "gigpo": ("states",),
    "grpo-prm": ("states", "scores"),
    "ppo": ("values",),
    "rare-tool": ("notes",),
    "rewardflow": ("states", "success"),
    "rlvmr": ("tags", "actions", "success"),
}
"""The lists that a method reads, besides groups, rewards and parents."""
BY_STEP = (
    "parents",
    "states",
    "next_states",
    "actions",
    "valid",
    "tags",
    "values",
    "scores",
    "notes",
)
"""The lists with one entry a step."""


def step_advantages(
    rollouts: Lists, method: str = "rewardflow", **switches: Any
) -> list[list[float | None]]:
    """The advantage of every step, rollout by rollout.

    `rollouts` has the fields of Rollouts; `method` and `switches` are those of
    `agentcli assign-credit`. None: the method assigns none (a broken rollout, or under
    carl a step without siblings). Raises DataError or UsageError (both AgentCliError): one
    line that names the list, its entry, the method or the switch.

    >>> step_advantages({"groups": [7, 7], "rewards": [1, 0], "steps": [2, 1]}, "rloo")
    [[1.0, 1.0], [-1.0]]
    """
    _refuse_no_mapping(rollouts)
    given = read(_plain(rollouts, "rollouts"), Rollouts, "rollouts.")
    assign, settings = _made(method, _plain(switches, "switches"))
    _read_messages(given)
    needs = _needs(method, switches, settings)
    for name in sorted(needs):
        if getattr(given, name) is None:
            raise DataError(
                f"rollouts.{name}: is missing; {method} reads it (what it holds: "
                "agentcli.credit.lists.Rollouts)"
            )
    counts = _counts(given)
    result: list[list[float | None]] = [[None] * count for count in counts]
    by_group = grouped((group, row) for row, group in enumerate(given.groups))
    for members in by_group.values():
        tree = _tree(given, counts, members)
        validate_tree(tree, "rollouts")
        places = [(row, step) for row in members for step in range(counts[row])]
        if {"states", "success"} <= needs:
            _require_ends(tree, places)
        by_step = advantages(_assigned(assign, tree, settings))
        for number, (row, step) in enumerate(places):
            result[row][step] = by_step[number]
    return result


def token_advantages(
    masks: Sequence[Sequence[int]],
    rollouts: Lists,
    method: str = "rewardflow",
    **switches: Any,
) -> list[list[float]]:
    """The advantage of every token of the responses, 0 outside the steps.

    `masks[i]` has one number for each token of rollout i: 0 for a token that was not
    sampled, and a run of equal other numbers is a step. A trainer's response mask
    therefore serves as it is, where texts of the environment stand between the steps. A
    step without an advantage gets 0, and a rollout of zeros counts as one step. The
    rest is as in `step_advantages`.

    >>> lists = {"groups": [7, 7], "rewards": [1, 0]}
    >>> token_advantages([[1, 1, 0, 1], [1, 0, 0, 0]], lists, "rloo")
    [[1.0, 1.0, 0.0, 1.0], [-1.0, 0.0, 0.0, 0.0]]
    """
    _refuse_no_mapping(rollouts)
    if "steps" in rollouts:
        raise UsageError("rollouts.steps: the masks tell the steps; leave it out")
    try:
        marks = msgspec.convert(_plain(masks, "masks"), list[list[bool | Finite]])
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        raise DataError(
            f"masks{path}: {fault}; masks is a list of lists, with a number for each "
            "token of a rollout"
        ) from error
    runs = [[(mark, len([*run])) for mark, run in groupby(row)] for row in marks]
    steps = [max(1, sum(mark != 0 for mark, _ in row)) for row in runs]
    groups = rollouts.get("groups")
    if isinstance(groups, Sized) and len(groups) != len(steps):
        raise DataError(f"masks: is of {len(steps)} rollouts, groups of {len(groups)}")
    by_step = step_advantages({**rollouts, "steps": steps}, method, **switches)
    tokens = []
    for row, gains in zip(runs, by_step, strict=True):
        remaining = iter(gains)
        spread: list[float] = []
        for mark, length in row:
            gain = next(remaining) if mark != 0 else 0.0
            spread += [gain or 0.0] * length
        tokens.append(spread)
    return tokens


def _refuse_no_mapping(rollouts: Any) -> None:
    """Raises DataError for rollouts that are not lists by their names."""
    if not isinstance(rollouts, Mapping):
        raise DataError(
            "rollouts: is a mapping of lists (agentcli.credit.lists.Rollouts), not "
            f"{type(rollouts).__name__}"
        )


def _plain(values: Any, place: str) -> Any:
    """The values with numbers and arrays of numpy or torch as plain ones."""

    def listed(value: Any) -> Any:
        if not hasattr(value, "tolist"):
            raise DataError(
                f"{place}: holds a {type(value).__name__}, not only numbers, texts and "
                "lists of them"
            )
        return value.tolist()

    try:
        return msgspec.to_builtins(values, enc_hook=listed)
    except RecursionError as error:
        raise DataError(f"{place}: lists in lists without an end") from error


def _made(
    method: str, switches: dict[str, Any]
) -> tuple[registry.Assign, msgspec.Struct]:
    """The method with its settings; outcomes are the given rewards, unless set."""
    if not isinstance(method, str):
        raise UsageError(f"method: is a name, not {type(method).__name__}")
    named = {"method": method, **switches}
    # ppo rewards either outcomes or steps, and refuses an outcome beside steps.
    by_step = method == "ppo" and switches.get("rewards") == "environment"
    if "outcome" in registry.switches_of(method) and not by_step:
        named.setdefault("outcome", "score")
    _, assign, settings = registry.make(named)
    return assign, settings


def _needs(method: str, switches: dict[str, Any], settings: msgspec.Struct) -> set[str]:
    """The lists that the method reads with these switches."""
    needs = {*NEEDS.get(method, ())}
    if switches.get("outcome") == "success" or switches.get("drop_wrong"):
        needs.add("success")
    # dpepo has forms that compare no states.
    if not getattr(settings, "reads_states", True):
        needs.discard("states")
    return needs


def _assigned(assign: registry.Assign, tree: Tree, settings: msgspec.Struct) -> Credit:
    """The credit of a tree.

    Raises DataError with a remedy for lists in the place of that for `assign-credit`.
    """
    try:
        return assign(tree, settings)
    except DataError as error:
        fault, _, _ = str(error).partition("; ")
        raise DataError(
            f"rollouts: {fault}; correct the lists, or take another method or switch"
        ) from error


def _require_ends(tree: Tree, places: Sequence[tuple[int, int]]) -> None:
    """Raises DataError for a rollout that was cut off in a state that is not given."""
    for step, (row, place) in zip(tree.steps, places, strict=True):
        if step.outcome is Outcome.TRUNCATED and not step.next_state:
            raise DataError(
                f"rollouts.next_states[{row}][{place}]: is missing; the rollout was "
                "cut off in that state"
            )


def _read_messages(given: Rollouts) -> None:
    """Takes actions, and states where they are observations, from the messages."""
    by_text = isinstance(given.states, str)
    if by_text and (given.states != "observation" or given.messages is None):
        raise DataError(
            "rollouts.states: is a list, or 'observation' where messages are given; it "
            f"is {given.states!r}"
        )
    if given.messages is None:
        return
    _refuse_other_count("messages", given.messages, given)
    seen, said, left = [], [], []
    for row, chat in enumerate(given.messages):
        before: list[list[str]] = [[]]
        answers: list[str | None] = []
        for place, message in enumerate(chat):
            content = message.get("content") or ""
            if not isinstance(content, str):
                content = msgspec.json.encode(content).decode()
            if message.get("role") == "assistant":
                calls = _calls(message, f"rollouts.messages[{row}][{place}]")
                answers.append(calls or content)
                before.append([])
            else:
                before[-1].append(content)
        if not answers:
            raise DataError(
                f"rollouts.messages[{row}]: no message is the assistant's; leave the "
                "rollout out"
            )
        *observations, last = ["\n".join(texts) for texts in before]
        seen.append(observations)
        said.append(answers)
        left.append([*[None] * (len(answers) - 1), last or None])
    given.actions = given.actions or said
    if by_text:
        given.states = seen
        given.next_states = given.next_states or left


def _calls(message: Mapping[str, Any], place: str) -> str:
    """The tool calls of a message as an import writes them; "" without any."""
    try:
        calls = msgspec.convert(message.get("tool_calls") or [], list[ForeignCall])
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        raise DataError(f"{place}.tool_calls{path}: {fault}") from error
    return "\n".join(call.text for call in calls)


def _counts(given: Rollouts) -> list[int]:
    """The number of steps of every rollout; all lists must agree on it."""
    columns = {name: getattr(given, name) for name in ("rewards", "success", *BY_STEP)}
    found = [0] * len(given.groups)
    # Steps first: where masks gave them, a list that disagrees is the one that the
    # error names.
    for name, column in {"steps": given.steps, **columns}.items():
        if column is None:
            continue
        _refuse_other_count(name, column, given)
        for row, entry in enumerate(column):
            if name != "steps" and not isinstance(entry, list):
                continue
            length = len(entry) if isinstance(entry, list) else entry
            if length < 1 or found[row] not in (0, length):
                raise DataError(
                    f"rollouts.{name}[{row}]: is of {length} steps, not of "
                    f"{found[row] or '1 or more'}"
                )
            found[row] = length
    return [count or 1 for count in found]


def _refuse_other_count(name: str, column: Sized, given: Rollouts) -> None:
    """Raises DataError for a list of more or fewer rollouts than groups has."""
    if len(column) != len(given.groups):
        raise DataError(
            f"rollouts.{name}: is of {len(column)} rollouts, groups of "
            f"{len(given.groups)}"
        )


def _tree(given: Rollouts, counts: Sequence[int], members: Sequence[int]) -> Tree:
    """The tree of a group: its rollouts start at the root."""
    task = Task(id=str(given.groups[members[0]]), world="", split="", kind="")
    steps: list[Step] = []
    for row in members:
        first = len(steps)
        for step in _rollout(given, row, counts[row]):
            step.id += first
            if step.parent is not None:
                step.parent += first
            steps.append(step)
    return Tree(
        task=task, instruction="", method="", seed=0, steps=steps, ledger=Ledger()
    )


def _rollout(given: Rollouts, row: int, count: int) -> list[Step]:
    """The steps of one rollout, with ids from 0."""
    parents = [None, *range(count - 1)]
    if given.parents is not None:
        parents = given.parents[row]
    steps = [_step(given, row, place) for place in range(count)]
    leaves = set(range(count)) - {*parents}
    for step, parent in zip(steps, parents, strict=True):
        if parent is not None:
            if not 0 <= parent < step.id:
                raise DataError(
                    f"rollouts.parents[{row}][{step.id}]: {parent} is no earlier step"
                )
            above = steps[parent]
            above.next_state = above.next_state or step.state
            above.next_observation = above.next_state
        step.parent = parent
    for name in ("rewards", "success"):
        column = getattr(given, name)
        single = column is not None and isinstance(column[row], bool | float)
        if single and len(leaves) > 1:
            raise DataError(
                f"rollouts.{name}[{row}]: the rollout branches; give one entry a step"
            )
    for leaf in leaves:
        _end(given, row, steps[leaf])
    return steps


def _step(given: Rollouts, row: int, place: int) -> Step:
    """One step, with all that is given of it but how it ended."""
    entries: dict[str, Any] = {}
    for name in BY_STEP:
        column = getattr(given, name)
        entries[name] = None if column is None else column[row][place]
    action = entries["actions"]
    validity = Validity.VALID
    if given.actions is not None and action is None:
        validity = Validity.MALFORMED
    elif entries["valid"] is False:
        validity = Validity.INADMISSIBLE
    state = entries["states"] or ""
    after = entries["next_states"] or ""
    score = entries["scores"]
    rewards = given.rewards[row]
    return Step(
        id=place,
        parent=None,
        prompt="",
        response="",
        observation=state,
        tag=entries["tags"],
        action=action,
        validity=validity,
        state=state,
        next_state=after,
        next_observation=after,
        reward=(isinstance(rewards, list) and rewards[place]) or 0.0,
        value=entries["values"],
        score=msgspec.UNSET if score is None else score,
        notes=entries["notes"] or {},
    )


def _end(given: Rollouts, row: int, leaf: Step) -> None:
    """Sets how the trajectory of a leaf ended, and its reward."""
    reward = given.rewards[row]
    if isinstance(reward, list):
        reward = reward[leaf.id]
    leaf.outcome = Outcome.FAILURE
    if reward is None:
        leaf.outcome = Outcome.ERRORED
        return
    leaf.reward = reward
    # No method that asks who succeeded comes here without the list (`_needs`).
    if given.success is None:
        return
    success = given.success[row]
    if isinstance(success, list):
        success = success[leaf.id]
    if success:
        leaf.outcome = Outcome.SUCCESS
    elif success is None:
        leaf.outcome = Outcome.TRUNCATED
