"""What the trees of a panel show and its summary does not: further measures of a study.

A trajectory is a path from the root to a leaf; errored ones are left out. A state is
that of one copy, in the papers' form (credit.state=paper): what was seen, without
feedback on a move that changed nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from statistics import fmean, pstdev

from agentcli.credit.rewardflow import RewardFlowSettings, state_graph
from agentcli.credit.states import standing_states
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches
from agentcli.evaluation.calls import call_shares
from agentcli.records.grouping import mean
from agentcli.records.study import StepMeasured, TreeMeasured
from agentcli.records.trees import acts_by_copy, unbroken_paths
from agentcli.records.types import Step, Tree, Validity


def traits_of(tree: Tree) -> Counter[str]:
    """What is counted over the trajectories of one tree.

    moves: all of them. refusals: those that answer a refusal. visits, states: states
    that a move leaves, all and distinct. actions: distinct ones of each trajectory.
    pairs: distinct states with an action.
    """
    standing = standing_states(tree, "paper")
    counts = Counter[str]()
    states: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for walk in unbroken_paths(tree):
        actions: set[str] = set()
        refused: set[int] = set()
        for step in walk:
            acts = acts_by_copy(step)
            counts["moves"] += len(acts)
            counts["refusals"] += sum(copy in refused for copy, _ in acts)
            refused -= {copy for copy, _ in acts}
            refused |= {
                copy for copy, act in acts if act.validity is not Validity.VALID
            }
            for state, action in _taken(step, standing[step.id]):
                counts["visits"] += 1
                states.add(state)
                pairs.add((state, action))
                actions.add(action)
        counts["actions"] += len(actions)
    counts["states"], counts["pairs"] = len(states), len(pairs)
    return counts


def _taken(step: Step, standing: dict[int, str]) -> Iterable[tuple[str, str]]:
    """The actions of a step that could be read, each with the state that it leaves."""
    for copy, act in acts_by_copy(step):
        if copy in standing and act.action is not None:
            yield standing[copy], act.action


def measure_trees(trees: Iterable[Tree], wanted: set[str]) -> dict[str, float]:
    """The measures among `wanted` that trees have, by name.

    invalid_states: share of the moves that answer a refusal and no new state
    (RewardFlow C.1, Table 6, which gives no formula). unique_states, unique_actions:
    distinct states, and distinct actions in a state, among all visits of a task's
    trajectories (RewardFlow eq. 1, Fig. 4). diversity: distinct actions among all of a
    trajectory and its copies (DPEPO section 5.4). actions, actions_std: moves of a
    response, mean and standard deviation (DPEPO Table 5). nodes, edges: of a task's
    state graph (RewardFlow Table 9). entropy: the mean of -log pi over the sampled
    tokens, in nats (CARL Fig. 4, which gives no formula); no value where answers were
    greedy. call_entropy: of the tools that were called (Rare-tool Fig. 5), in nats; no
    value where none was.
    """
    trees = list(trees)
    counts = sum(map(traits_of, trees), Counter[str]())
    moves = [number for numbers in _moves_by_step(trees) for number in numbers]
    visits = max(1, counts["visits"])
    measures: dict[TreeMeasured, float] = {
        "invalid_states": counts["refusals"] / max(1, counts["moves"]),
        "unique_states": counts["states"] / visits,
        "unique_actions": counts["pairs"] / visits,
        "diversity": counts["actions"] / visits,
        "actions": mean(moves) or 0.0,
        "actions_std": pstdev(moves) if moves else 0.0,
    }
    calls = call_shares(trees)[0]
    if calls.calls_any:
        measures["call_entropy"] = calls.entropy
    if wanted & {"nodes", "edges"} and trees:
        sizes = []
        for tree in trees:
            survey = survey_of(tree, Switches())
            sizes.append(state_graph(tree, survey, RewardFlowSettings()).size)
        measures["nodes"] = fmean(size.nodes for size in sizes)
        measures["edges"] = fmean(size.edges for size in sizes)
    entropy = token_entropy(step for tree in trees for step in _walked(tree))
    if entropy is not None:
        measures["entropy"] = entropy
    return {str(name): value for name, value in measures.items() if name in wanted}


def _walked(tree: Tree) -> list[Step]:
    """The steps of the trajectories that did not error, each once."""
    steps: dict[int, Step] = {}
    for walk in unbroken_paths(tree):
        steps |= {step.id: step for step in walk}
    return list(steps.values())


def tells_entropy(step: Step) -> bool:
    """Whether a step's log-probabilities are those that it was sampled by.

    Of a greedy step, or at another temperature, they are no sample of the entropy.
    """
    sampled = step.temperature > 0 and step.logprob_temperature == step.temperature
    return sampled and bool(step.logprobs)


def token_entropy(steps: Iterable[Step]) -> float | None:
    """The mean of -log pi over the tokens of sampled steps, in nats; None without any.

    It estimates the entropy of the policy that acts (CARL eq. 6), a mean over tokens;
    CARL eq. 8 takes that of each action first.
    """
    surprises: list[float] = []
    for step in steps:
        if tells_entropy(step):
            surprises += [-logprob for logprob in step.logprobs]
    return mean(surprises)


def measure_steps(
    trees: Iterable[Tree], wanted: Collection[StepMeasured]
) -> dict[str, list[float | None]]:
    """The measures among `wanted` at step 1, 2, ... of the trajectories, by name.

    actions: mean number of moves of a response (DPEPO Fig. 9). call_entropy: of the
    tools called there, in nats (Rare-tool Fig. 5). None where there is no such response
    or call.
    """
    trees = list(trees)
    found = dict[str, list[float | None]]()
    if "actions" in wanted:
        found["actions"] = list(map(mean, _moves_by_step(trees)))
    if "call_entropy" in wanted:
        found["call_entropy"] = [
            one.entropy if one.calls_any else None for one in call_shares(trees)[1:]
        ]
    return found


def _moves_by_step(trees: Iterable[Tree]) -> list[list[int]]:
    """How many moves the responses at step 1, 2, ... make that could be read."""
    by_step: list[list[int]] = []
    for tree in trees:
        for walk in unbroken_paths(tree):
            by_step += [[] for _ in range(len(walk) - len(by_step))]
            for step, numbers in zip(walk, by_step, strict=False):
                acts = acts_by_copy(step)
                if acts and step.validity is not Validity.MALFORMED:
                    numbers.append(len(acts))
    return by_step
