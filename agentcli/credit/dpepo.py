"""dpepo: grpo, each step weighed by how little its actions repeat others, in one
environment and across them (004 section 3).

One response acts in several copies of the environment (Step.moves). E' are the copies
it selected, a transition is (state, action):

    C_depth(i)  earlier identical actions in copy i          C_width     actions of this
                step that repeat another of it
    M_depth(i)  earlier identical transitions in copy i      M_width(i)  other selected
                copies that have seen the transition,
                                                                         earlier or in
                                                                         this same step
    R_action     = mean_i alpha^C_depth(i) + omega^C_width                    (eq. 3)
    R_transition = mean_i gamma^M_depth(i) + mean_i beta^M_width(i)           (eq. 4)
    R_step       = (R_action + R_transition) / 2, in (0, 2]                   (eq. 5);
                 0.5 without a readable action
    A = R_step * Phi_traj if Phi_traj > 0 else (2 - R_step) * Phi_traj        (eq. 8-9)

Phi_traj is grpo's advantage (eq. 7), the outcome being a success as soon as any copy's
is. A shared step takes the mean of A over its leaves. `invalid_factor` f multiplies
R_step by f^(inadmissible moves) (004 App. B.2). A step in one environment is one move.

The ablations of 004 Tables 2 and 4 leave a reward out: R_step is then the other one,
still in (0, 2]; without both, A = Phi_traj. Coefficients of 1 are not that ablation:
they make every term 1, R_step 2 and the factor of all failures 0.

`form: release` is in release/dpepo.py.
"""

from collections import Counter
from collections.abc import Sequence

from agentcli.credit.common import GroupSwitches, in_range, require, unassigned
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Survey, rows, scale_for, survey_of
from agentcli.credit.release import dpepo as release
from agentcli.credit.repeats import (
    NO_ACTION,
    Act,
    Actions,
    Form,
    PastActs,
    factors,
    weights,
)
from agentcli.credit.states import StateForm, standing_states
from agentcli.credit.terms import GRPO, outcome_evidence, row_leaves
from agentcli.records.types import Credit, Step, Tree, Validity

WITHOUT = {
    "scale": "a step's weight is not normalised",
    "similarity": "a transition is one state and one action",
}
PLAIN = 1.0
"""R_step where neither reward is part of it: both factors of eq. 8 are 1."""
PAPER_OMEGA, RELEASE_OMEGA = 0.95, 0.80
EQUATIONS = (
    Equation("C_width", None, "actions of this step that repeat another of it"),
    Equation("refused", None, "inadmissible moves"),
    Equation(
        "leaves",
        None,
        "leaves below it that did not error, whose outcomes the row holds",
    ),
    Equation("penalty", None, "penalty, of an invalid step only"),
)
"""What the numbers are. The equations of a row depend on its settings and outcomes: see
`evidence`.
"""


class DpepoSettings(GroupSwitches, kw_only=True):
    """Defaults of 004 App. B.2. Raises UsageError naming the field."""

    invalid_penalty: float = 0.0
    state: StateForm = "paper"
    """What a transition starts in: f(s) of 002 B.1 (paper), the true state (exact), or
    the text that was read (observation). A move that changed nothing leaves its copy in
    the state before.
    """
    alpha: float = 0.8
    """Factor per earlier identical action in the same copy, in (0, 1]."""
    omega: float | None = None
    """Factor per action repeated within the step. Unset: 0.95 (paper), 0.80 (release).
    """
    gamma: float = 0.95
    """Factor per earlier identical transition in the same copy."""
    beta: float = 0.95
    """Factor per other selected copy that has seen the transition."""
    invalid_factor: float | None = None
    """Factor per inadmissible move; unset: none. 004 takes 0.5 in one of its two worlds
    (App. B.2).
    """
    action_reward: bool = True
    """Whether R_action is part of R_step (DAR of 004 Tables 2 and 4). Coefficients of 1
    do not leave it out: see above.
    """
    transition_reward: bool = True
    """Whether R_transition is (DTR). Without both, R_step is 1: grpo."""

    def __post_init__(self) -> None:
        super().__post_init__()
        usual_omega = RELEASE_OMEGA if self.form == "release" else PAPER_OMEGA
        self.omega = usual_omega if self.omega is None else self.omega
        self._require_coefficients(
            "action_reward", {"alpha": 0.8, "omega": usual_omega}
        )
        self._require_coefficients("transition_reward", {"gamma": 0.95, "beta": 0.95})
        rewarded = (
            self.action_reward or self.transition_reward or self.invalid_factor is None
        )
        unset = (
            "unset where action_reward and transition_reward are off: there is no "
            "R_step to multiply"
        )
        require(rewarded, "invalid_factor", self.invalid_factor, unset)
        in_range(self, "alpha", "omega", "gamma", "beta", above=0, most=1)
        if self.invalid_factor is not None:
            in_range(self, "invalid_factor", above=0, most=1)

    def _require_coefficients(self, reward: str, usual: dict[str, float]) -> None:
        """A reward that is left out leaves its coefficients alone, and the release
        leaves none out.
        """
        on = getattr(self, reward)
        require(
            on or self.form == "paper",
            reward,
            on,
            "true where form is release, which has no such variant",
        )
        for coefficient, value in usual.items():
            given = getattr(self, coefficient)
            require(
                on or given == value,
                coefficient,
                given,
                f"left alone where {reward} is off",
            )


def assign(tree: Tree, settings: DpepoSettings) -> Credit:
    """One StepCredit per row. parts: trajectory (Phi_traj, mean over the row's leaves),
    step (R_step, or W), penalty.
    """
    survey = survey_of(tree, settings)
    scale = scale_for(survey, settings, settings.normalise)
    repeats = step_rewards(tree, survey, settings)
    graded = settings.outcome == "score" and settings.prefix == "merge"
    score_shares = _score_shares(survey) if graded else None
    credits = []
    for step, reward in rows(survey, settings.prefix):
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        weight = repeats[step]
        penalty = survey.penalties[step]
        gain = loss = 0.0
        for share, outcome in (
            score_shares[step] if score_shares else _shares(reward, settings)
        ):
            advantage = share * scale(outcome - penalty)
            if advantage > 0:
                gain += advantage
            else:
                loss += advantage
        parts = {"trajectory": gain + loss, "step": weight, "penalty": penalty}
        credits.append(
            survey.credited(step, weight * gain + (2.0 - weight) * loss, parts)
        )
    return Credit(task=tree.task.id, method="dpepo", steps=credits)


def _shares(reward: float, settings: DpepoSettings) -> list[tuple[float, float]]:
    """The leaves of a row as (share, outcome reward): successes and the others; a
    single leaf where outcomes are scores.
    """
    if settings.outcome == "score":
        return [(1.0, reward)]
    share = reward / settings.success_reward
    return [(share, settings.success_reward), (1.0 - share, 0.0)]


def _score_shares(survey: Survey) -> list[list[tuple[float, float]]]:
    """Per step the live leaves below it as (share, outcome reward), by rewards, largest
    first: in no order of the siblings.
    """
    counts: list[Counter[float]] = [Counter() for _ in survey.live]
    for step in range(len(survey.parents) - 1, -1, -1):
        if not survey.live[step]:
            continue
        below = counts[step] or Counter({survey.rewards[step]: 1})
        counts[step] = below
        parent = survey.parents[step]
        # An only child's counts are its parent's: a long trajectory is not copied step
        # by step.
        counts[parent] = counts[parent] + below if counts[parent] else below
    shares = []
    for rewards, leaves in zip(counts, survey.live, strict=True):
        shares.append(
            [
                (count / leaves, reward)
                for reward, count in sorted(rewards.items(), reverse=True)
            ]
        )
    return shares


def step_rewards(tree: Tree, survey: Survey, settings: DpepoSettings) -> list[float]:
    """R_step, or the release's W, of every step that counts."""
    if not (settings.action_reward or settings.transition_reward):
        return [PLAIN] * len(tree.steps)
    states = standing_states(tree, settings.state)
    return weights(tree.steps, survey, states, _form(settings), settings)


def read(step: Step, states: dict[int, str], history: PastActs) -> Actions:
    """What the step did; a step in one environment acts in copy 1. `states`: where each
    copy stands.
    """
    if not step.moves:
        if step.action is None or step.validity is Validity.MALFORMED:
            return Actions([], 0, 0)
        return Actions(
            [(1, step.action, states[1])],
            0,
            int(step.validity is Validity.INADMISSIBLE),
        )
    there = [move for move in step.moves if move.validity is not Validity.MALFORMED]
    acts: list[Act] = [(move.copy, move.action, states[move.copy]) for move in there]
    refused = sum([move.validity is Validity.INADMISSIBLE for move in there])
    return Actions(acts, len(there) - len({move.action for move in there}), refused)


def width(act: Act, acts: Sequence[Act], history: PastActs) -> int:
    """M_width: the other selected copies that have seen the transition, earlier or in
    this same step.
    """
    copy, action, before = act
    copies = 0
    for other, other_action, other_before in acts:
        if other != copy:
            same = (other_action, other_before) == (action, before)
            copies += same or history.transitions(other, action, before) > 0
    return copies


def weigh(actions: Actions, history: PastActs, settings: DpepoSettings) -> float:
    """Eq. 3-5, from the counts before this step."""
    omega = settings.omega or 1.0
    count = len(actions.acts)
    depth, transitions, widths = factors(actions.acts, width, history, settings)
    charged = 1.0
    if settings.invalid_factor is not None:
        charged = settings.invalid_factor**actions.refused
    r_action = depth / count + omega**actions.repeated
    r_transition = (transitions + widths) / count
    if not settings.transition_reward:
        return charged * r_action
    if not settings.action_reward:
        return charged * r_transition
    return charged * (r_action + r_transition) / 2


def equations(settings: DpepoSettings) -> tuple[Equation, ...]:
    """From the counts to R_step."""
    table = []
    if settings.action_reward:
        table.append(
            Equation(
                "R_action", "mean_depth + omega ** C_width", "new actions", "004 eq. 3"
            )
        )
    if settings.transition_reward:
        table.append(
            Equation(
                "R_transition",
                "mean_transitions + mean_width",
                "new transitions",
                "004 eq. 4",
            )
        )
    both = "(R_action + R_transition) / 2" if len(table) == 2 else table[0].name
    charged = (
        both
        if settings.invalid_factor is None
        else f"invalid_factor ** refused * {both}"
    )
    what = (
        "R_step, in (0, 2]"
        if len(table) == 2
        else "R_step, in (0, 2]: the other reward is off"
    )
    return (*table, Equation("step", charged, what, "004 eq. 5"))


FORM = Form(read, width, weigh, equations)


def _form(settings: DpepoSettings) -> Form:
    return release.FORM if settings.form == "release" else FORM


def evidence(tree: Tree, settings: DpepoSettings, row: int) -> Evidence:
    """The numbers of one row, and its equations: one Phi_traj for every outcome reward
    among its leaves.
    """
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, settings.prefix, row)
    scale = scale_for(survey, settings, settings.normalise)
    evidence = outcome_evidence(
        tree, survey, settings, step, ends, scale, settings.normalise
    )
    table = [*EQUATIONS, *_add_repeats(evidence, tree, survey, settings, step)]
    summands = []
    counts = Counter(survey.rewards[end] for end in ends)
    for number, (reward, count) in enumerate(sorted(counts.items(), reverse=True), 1):
        evidence.add(f"leaves_{number}", count, "of its leaves with one outcome reward")
        evidence.add(f"reward_{number}", reward, "outcome reward of these")
        gains = scale(reward - survey.penalties[step]) > 0
        source = f"004 eq. 7, {GRPO}"
        score = f"reward_{number} - penalty"
        table.append(
            Equation(
                f"phi_{number}", score, "Phi_traj of these", source, among="leaves"
            )
        )
        factor = "step" if gains else "2 - step"
        what = "more gain for what is new" if gains else "less loss for what is new"
        table.append(Equation(f"factor_{number}", factor, what, "004 eq. 8"))
        summands.append(f"leaves_{number} / leaves * factor_{number} * phi_{number}")
    table.append(
        Equation(ADVANTAGE, " + ".join(summands), "mean over its leaves", "004 eq. 9")
    )
    evidence.equations = table
    return evidence


def _add_repeats(
    evidence: Evidence, tree: Tree, survey: Survey, settings: DpepoSettings, step: int
) -> tuple[Equation, ...]:
    """The counts along the path to the step, and the equations that make R_step of
    them.
    """
    if not (settings.action_reward or settings.transition_reward):
        evidence.add(
            "step",
            PLAIN,
            "neither reward is part of it (action_reward, transition_reward)",
        )
        return ()
    form = _form(settings)
    history = PastActs()
    states = standing_states(tree, settings.state)
    *before, last = survey.path(step)
    for earlier in before:
        history.enter(form.read(tree.steps[earlier], states[earlier], history).acts)
    actions = form.read(tree.steps[last], states[last], history)
    acts = actions.acts
    if not acts:
        evidence.add("step", NO_ACTION, "a step without a readable action")
        return ()
    depth = [history.actions(copy, action) for copy, action, _ in acts]
    transitions = [history.transitions(*act) for act in acts]
    widths = [form.width(act, acts, history) for act in acts]
    _add_copies(
        evidence,
        "depth",
        acts,
        settings.alpha,
        depth,
        "alpha ** earlier identical actions, by copy",
    )
    _add_copies(
        evidence,
        "transitions",
        acts,
        settings.gamma,
        transitions,
        "gamma ** earlier identical transitions",
    )
    _add_copies(
        evidence,
        "width",
        acts,
        settings.beta,
        widths,
        "beta ** other copies that have seen the transition",
    )
    evidence.add("C_width", actions.repeated)
    evidence.add("refused", actions.refused)
    return form.equations(settings)


def _add_copies(
    evidence: Evidence,
    name: str,
    acts: Sequence[Act],
    base: float,
    counts: Sequence[int],
    what: str,
) -> None:
    """One group of the copies, each with its factor base ** count."""
    members = [
        (act[0], base**count, 1.0) for act, count in zip(acts, counts, strict=True)
    ]
    listed = ", ".join(map(str, counts[:8])) + (", ..." if len(counts) > 8 else "")
    evidence.group(name, f"{what}: {listed}", members, set(), of="copy")
