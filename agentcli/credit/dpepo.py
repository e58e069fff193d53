"""dpepo: grpo, each step weighed by how little its actions repeat others, in one environment and across them (004 section 3).

One response acts in several copies of the environment (Step.moves). E' are the copies it selected, a transition is (state, action):

    C_depth(i)  earlier identical actions in copy i          C_width     actions of this step that repeat another of it
    M_depth(i)  earlier identical transitions in copy i      M_width(i)  other selected copies that have seen the transition,
                                                                         earlier or in this same step
    R_action     = mean_i alpha^C_depth(i) + omega^C_width                    (eq. 3)
    R_transition = mean_i gamma^M_depth(i) + mean_i beta^M_width(i)           (eq. 4)
    R_step       = (R_action + R_transition) / 2, in (0, 2]                   (eq. 5); 0.5 without a readable action
    A = R_step * Phi_traj if Phi_traj > 0 else (2 - R_step) * Phi_traj        (eq. 8-9)

Phi_traj is grpo's advantage (eq. 7), the outcome being a success as soon as any copy's is. A shared step takes the mean of A
over its leaves. `invalid_factor` f multiplies R_step by f^(inadmissible moves) (ScienceWorld: 0.5). A step in one environment is
one move.

The ablations of 004 Tables 2 and 4 leave a reward out: R_step is then the other one, still in (0, 2]; without both, A = Phi_traj.
Coefficients of 1 are not that ablation: they make every term 1, R_step 2 and the factor of all failures 0.

`form: release` has, in the place of R_step,

    W = (omega^C_width + mean_i (alpha^C_depth + gamma^M_depth + beta^M_width) / 3) / 2 in (0, 1]

with f^(inadmissible moves) as a third equal term where `invalid_factor` is set; a transition is a pair of consecutive actions,
M_width counts occurrences, `look` is left out of C_width, and omega is 0.80.
"""

from collections import Counter
from collections.abc import Sequence

from agentcli.credit.account import Sheet
from agentcli.credit.common import GroupSwitches, in_range, require, unassigned
from agentcli.credit.group import Survey, rows, scale_for, survey, visits
from agentcli.credit.states import StateForm, standing_states
from agentcli.credit.terms import GRPO, Told, charge, end_line, leaf_group, row_outcome, told
from agentcli.records.types import Credit, Step, Tree, Validity

WITHOUT = {"scale": "a step's weight is not normalised", "similarity": "a transition is one state and one action"}
NO_ACTION = 0.5
"""R_step of a step without a readable action (release; the paper does not say)."""
PLAIN = 1.0
"""R_step where neither reward is part of it: both factors of eq. 8 are 1."""
Act = tuple[int, str, str | None]
"""A move in short: copy, action, and the other half of its transition: the state before, in the release the copy's action before
(None for its first)."""
PAPER_OMEGA, RELEASE_OMEGA = 0.95, 0.80


class DpepoSettings(GroupSwitches, kw_only=True):
    """Defaults of 004 App. B.2. Raises UsageError naming the field."""

    invalid_penalty: float = 0.0
    state: StateForm = "paper"
    """What a transition starts in: f(s) of 002 B.1 (paper), the true state (exact), or the text that was read (observation). A move
    that changed nothing leaves its copy in the state before."""
    alpha: float = 0.8
    """Factor per earlier identical action in the same copy, in (0, 1]."""
    omega: float | None = None
    """Factor per action repeated within the step. Unset: 0.95 (paper), 0.80 (release)."""
    gamma: float = 0.95
    """Factor per earlier identical transition in the same copy."""
    beta: float = 0.95
    """Factor per other selected copy that has seen the transition."""
    invalid_factor: float | None = None
    """Factor per inadmissible move; unset: none (ALFWorld). ScienceWorld: 0.5."""
    action_reward: bool = True
    """Whether R_action is part of R_step (DAR of 004 Tables 2 and 4). Coefficients of 1 do not leave it out: see above."""
    transition_reward: bool = True
    """Whether R_transition is (DTR). Without both, R_step is 1: grpo."""

    def __post_init__(self) -> None:
        super().__post_init__()
        usual_omega = RELEASE_OMEGA if self.form == "release" else PAPER_OMEGA
        self.omega = usual_omega if self.omega is None else self.omega
        for name, coefficients in (
            ("action_reward", {"alpha": 0.8, "omega": usual_omega}),
            ("transition_reward", {"gamma": 0.95, "beta": 0.95}),
        ):
            on = getattr(self, name)
            require(on or self.form == "paper", name, on, "true where form is release, which has no such variant")
            for coefficient, usual in coefficients.items():
                value = getattr(self, coefficient)
                require(on or value == usual, coefficient, value, f"left alone where {name} is off")
        require(
            self.action_reward or self.transition_reward or self.invalid_factor is None,
            "invalid_factor",
            self.invalid_factor,
            "unset where action_reward and transition_reward are off: there is no R_step to multiply",
        )
        in_range(self, "alpha", "omega", "gamma", "beta", above=0, most=1)
        if self.invalid_factor is not None:
            in_range(self, "invalid_factor", above=0, most=1)


def assign(tree: Tree, settings: DpepoSettings) -> Credit:
    """One StepCredit per row. parts: trajectory (Phi_traj, mean over the row's leaves), step (R_step, or W), penalty."""
    seen = survey(tree, settings)
    scale = scale_for(seen, settings, settings.normalise)
    repeats = step_rewards(tree, seen, settings)
    split = _split_scores(seen) if settings.outcome == "score" and settings.prefix == "merge" else None
    credits = []
    for step, reward in rows(seen, settings.prefix):
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        weight, penalty = repeats[step], seen.penalties[step]
        shares = split[step] if split else _split(reward, settings)
        gain = loss = 0.0
        for part, outcome in shares:
            advantage = part * scale(outcome - penalty)
            if advantage > 0:
                gain += advantage
            else:
                loss += advantage
        parts = {"trajectory": gain + loss, "step": weight, "penalty": penalty}
        credits.append(seen.credited(step, weight * gain + (2.0 - weight) * loss, parts))
    return Credit(task=tree.task.id, method="dpepo", steps=credits)


def _split(reward: float, settings: DpepoSettings) -> list[tuple[float, float]]:
    """The leaves of a row as (share, outcome reward): successes and the others; a single leaf where outcomes are scores."""
    if settings.outcome == "score":
        return [(1.0, reward)]
    share = reward / settings.success_reward
    return [(share, settings.success_reward), (1.0 - share, 0.0)]


def _split_scores(seen: Survey) -> list[list[tuple[float, float]]]:
    """Per step the live leaves below it as (share, outcome reward), by rewards, largest first: in no order of the siblings."""
    counts: list[Counter[float]] = [Counter() for _ in seen.live]
    for step in range(len(seen.parents) - 1, -1, -1):
        if not seen.live[step]:
            continue
        below = counts[step] or Counter({seen.rewards[step]: 1})
        counts[step] = below
        parent = seen.parents[step]
        # An only child's counts are its parent's: a long trajectory is not copied step by step.
        counts[parent] = counts[parent] + below if counts[parent] else below
    return [
        [(count / live, reward) for reward, count in sorted(found.items(), reverse=True)]
        for found, live in zip(counts, seen.live, strict=True)
    ]


class History:
    """What was done in every copy along the path from the first step; undone on the way back."""

    def __init__(self) -> None:
        self._actions: dict[tuple[int, str], int] = {}
        self._transitions: dict[tuple[int, str, str], int] = {}
        self._last: dict[int, list[str]] = {}

    def last(self, copy: int) -> str | None:
        """The copy's latest action."""
        return self._last[copy][-1] if self._last.get(copy) else None

    def actions(self, copy: int, action: str) -> int:
        """How often the copy has done this."""
        return self._actions.get((copy, action), 0)

    def transitions(self, copy: int, action: str, before: str | None) -> int:
        """How often it did so from the same state (release: after the same action)."""
        return 0 if before is None else self._transitions.get((copy, before, action), 0)

    def enter(self, acts: Sequence[Act]) -> None:
        for copy, action, before in acts:
            self._actions[copy, action] = self._actions.get((copy, action), 0) + 1
            self._last.setdefault(copy, []).append(action)
            if before is not None:
                transition = (copy, before, action)
                self._transitions[transition] = self._transitions.get(transition, 0) + 1

    def leave(self, acts: Sequence[Act]) -> None:
        for copy, action, before in acts:
            self._actions[copy, action] -= 1
            self._last[copy].pop()
            if before is not None:
                self._transitions[copy, before, action] -= 1


def step_rewards(tree: Tree, seen: Survey, settings: DpepoSettings) -> list[float]:
    """R_step, or the release's W, of every step that counts."""
    release, steps = settings.form == "release", tree.steps
    if not (settings.action_reward or settings.transition_reward):
        return [PLAIN] * len(steps)
    states = standing_states(tree, settings.state)
    history, found = History(), [NO_ACTION] * len(steps)
    done: list[list[Act]] = [[] for _ in steps]
    for visit in visits(seen):
        if visit < 0:
            history.leave(done[~visit])
            continue
        acts, c_width, refused = _acts(steps[visit], states[visit], history, release)
        if acts:
            found[visit] = _weight(acts, c_width, refused, history, settings)
        done[visit] = acts
        history.enter(acts)
    return found


def _acts(step: Step, states: dict[int, str], history: History, release: bool) -> tuple[list[Act], int, int]:
    """What the step did in copies that are there, C_width, and how many were inadmissible. A step in one environment acts in copy
    1. `states`: where each copy stands."""
    if not step.moves:
        if step.action is None or step.validity is Validity.MALFORMED:
            return [], 0, 0
        before = history.last(1) if release else states[1]
        return [(1, step.action, before)], 0, int(step.validity is Validity.INADMISSIBLE)
    there = [move for move in step.moves if move.validity is not Validity.MALFORMED]
    refused = sum([move.validity is Validity.INADMISSIBLE for move in there])
    if release:
        named = [move.action for move in step.moves if move.action.strip() != "look"]
        acts: list[Act] = [(move.copy, move.action, history.last(move.copy)) for move in there]
    else:
        named = [move.action for move in there]
        acts = [(move.copy, move.action, states[move.copy]) for move in there]
    return acts, len(named) - len(set(named)), refused


def _m_width(act: Act, acts: Sequence[Act], history: History, release: bool) -> int:
    """M_width of one act of a step."""
    copy, action, before = act
    found = 0
    if before is not None and len(acts) > 1:
        for other, *same in acts:
            if other != copy:
                times = history.transitions(other, action, before) + (same == [action, before])
                found += times if release else times > 0
    return found


def _weight(acts: Sequence[Act], c_width: int, refused: int, history: History, settings: DpepoSettings) -> float:
    """Eq. 3-5, or W, from the counts before this step."""
    release, omega = settings.form == "release", settings.omega or 1.0
    depth = transitions = width = 0.0
    for act in acts:
        copy, action, before = act
        depth += settings.alpha ** history.actions(copy, action)
        transitions += settings.gamma ** history.transitions(copy, action, before)
        width += settings.beta ** _m_width(act, acts, history, release)
    count, factor = len(acts), settings.invalid_factor
    charged = 1.0 if factor is None else factor**refused
    if release:
        terms = [omega**c_width, (depth + transitions + width) / 3 / count]
        terms += [] if factor is None else [charged]
        return sum(terms) / len(terms)
    r_action = depth / count + omega**c_width
    r_transition = (transitions + width) / count
    if not settings.transition_reward:
        return charged * r_action
    if not settings.action_reward:
        return charged * r_transition
    return charged * (r_action + r_transition) / 2


def explain(tree: Tree, settings: DpepoSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    about, scale = told(seen, settings.prefix, row), scale_for(seen, settings, settings.normalise)
    _explain_repeats(sheet, tree, seen, settings, about.step)
    row_outcome(sheet, tree, seen, about, settings)
    group = leaf_group(sheet, seen, about, settings.form, settings.over, settings.prefix)
    summands = []
    for name, reward in _kinds(sheet, seen, about, settings):
        sheet.line(f"x_{name}", f"{reward} - p", f"score of those that {name}")
        how, source = settings.normalise, f"004 eq. 7, {GRPO}"
        value = sheet.compare(f"phi_{name}", f"x_{name}", group, scale, how, "their Phi_traj", source)
        factor, what = ("R_step", "more gain") if value > 0 else ("2 - R_step", "less loss")
        sheet.line(f"factor_{name}", factor, f"{what} for what is new", "004 eq. 8")
        summands.append(f"{name} / leaves * factor_{name} * phi_{name}")
    sheet.line(end_line(seen), " + ".join(summands), "mean over its leaves", "004 eq. 9")
    return charge(sheet, seen, about.step)


def _kinds(sheet: Sheet, seen: Survey, about: Told, settings: DpepoSettings) -> list[tuple[str, str]]:
    """What kinds of leaves the row has, each a number that counts them, and the formula of their outcome reward."""
    if settings.outcome == "success":
        lost = sheet.line("lost", "leaves - won", "of its leaves that did not succeed")
        kinds = [("won", "success_reward", lost < len(about.ends)), ("lost", "0", lost > 0)]
        return [(name, reward) for name, reward, some in kinds if some]
    counts = Counter(seen.rewards[end] for end in about.ends)
    found = []
    for number, reward in enumerate(sorted(counts, reverse=True), 1):
        sheet.given(f"scored_{number}", counts[reward], "of its leaves with one score")
        sheet.given(f"R_{number}", reward, "outcome reward of these: success_reward times their score")
        found.append((f"scored_{number}", f"R_{number}"))
    return found


def _explain_repeats(sheet: Sheet, tree: Tree, seen: Survey, settings: DpepoSettings, step: int) -> None:
    """The number R_step (W in the release), from the counts along the path."""
    if not (settings.action_reward or settings.transition_reward):
        sheet.given("R_step", PLAIN, "neither reward is part of it (action_reward, transition_reward)")
        return
    release, history = settings.form == "release", History()
    states = standing_states(tree, settings.state)
    *before, last = seen.path(step)
    for earlier in before:
        history.enter(_acts(tree.steps[earlier], states[earlier], history, release)[0])
    acts, c_width, refused = _acts(tree.steps[last], states[last], history, release)
    if not acts:
        sheet.given("R_step", NO_ACTION, "a step without a readable action")
        return
    depth = [history.actions(copy, action) for copy, action, _ in acts]
    transitions = [history.transitions(*act) for act in acts]
    width = [_m_width(act, acts, history, release) for act in acts]
    for name, base, counts, what in (
        ("depth", settings.alpha, depth, "alpha ** C_depth of every copy, C_depth being earlier identical actions"),
        ("transitions", settings.gamma, transitions, "gamma ** M_depth, M_depth being earlier identical transitions"),
        ("width", settings.beta, width, "beta ** M_width, M_width being other copies that have seen the transition"),
    ):
        members = [(act[0], base**count, 1.0) for act, count in zip(acts, counts, strict=True)]
        listed = ", ".join(map(str, counts[:8])) + (", ..." if len(counts) > 8 else "")
        sheet.group(name, members, set(), f"{what}: {listed}", of="copy")
    sheet.given("omega", settings.omega or 1.0, "setting")
    sheet.given("C_width", c_width, "actions of this step that repeat another of it")
    charged = settings.invalid_factor is not None
    if settings.invalid_factor is not None:
        sheet.given("invalid_factor", settings.invalid_factor, "setting")
        sheet.given("refused", refused, "inadmissible moves")
        sheet.line("charge", "invalid_factor ** refused", "for inadmissible moves")
    if release:
        terms = "omega ** C_width + (mean_depth + mean_transitions + mean_width) / 3"
        sheet.line("R_step", f"({terms} + charge) / 3" if charged else f"({terms}) / 2", "W of the release")
        return
    sheet.line("R_action", "mean_depth + omega ** C_width", "new actions", "004 eq. 3")
    sheet.line("R_transition", "mean_transitions + mean_width", "new transitions", "004 eq. 4")
    part, what = "(R_action + R_transition) / 2", "in (0, 2]: both"
    if not settings.transition_reward:
        part, what = "R_action", "in (0, 2]: new actions alone (transition_reward is off)"
    elif not settings.action_reward:
        part, what = "R_transition", "in (0, 2]: new transitions alone (action_reward is off)"
    sheet.line("R_step", f"charge * {part}" if charged else part, what, "004 eq. 5")
