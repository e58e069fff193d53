"""dpepo: grpo, with each step weighted by how little it repeats (DPEPO section 3).

One response acts in several copies of the environment (Step.moves). E' is the set of
copies it selected, and a transition is (state, action). repeats.py counts:

    C_depth(i)  earlier identical actions in copy i
    C_width     actions of this step that repeat another action of this step
    M_depth(i)  earlier identical transitions in copy i
    M_width(i)  other selected copies that made the transition, earlier or in this step

    R_action     = mean_i alpha^C_depth + omega^C_width                        (eq. 3)
    R_transition = mean_i gamma^M_depth + mean_i beta^M_width                  (eq. 4)
    R_step       = (R_action + R_transition) / 2, in (0, 2]                    (eq. 5)
                   (0.5 for a step without a readable action)
    A = R_step * Phi_traj if Phi_traj > 0 else (2 - R_step) * Phi_traj         (eq. 8-9)

Phi_traj is grpo's advantage (eq. 7); the trajectory succeeds as soon as one copy does.
A shared step gets the mean of A over its leaves. `invalid_factor` f multiplies R_step
by f^(inadmissible moves) (DPEPO App. B.2). A step in a single environment is one move.

The ablations of DPEPO Tables 2 and 4 drop one of the two rewards: R_step is then the
other one, still in (0, 2]. Without both, A = Phi_traj. Setting the coefficients to 1 is
not the same ablation: every term is then 1, R_step is 2, and failures are multiplied
by 0.

`form: release` is in release/dpepo.py.
"""

from collections import Counter
from collections.abc import Sequence

from agentcli.credit.equations import ADVANTAGE, PENALTY, Equation, Evidence, listed
from agentcli.credit.group import Scale
from agentcli.credit.leaves import GRPO, LEAVES, Leaves
from agentcli.credit.registry import with_release
from agentcli.credit.repeats import Act, PastActs, Repeats, power_sum, readable
from agentcli.credit.similarity import require_states
from agentcli.credit.states import StateForm, standing_states
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import GroupSwitches, in_range, require
from agentcli.records.types import Credit, Step, Tree, Validity

PLAIN = 1.0
"""R_step where both rewards are off: both factors of eq. 8 are then 1."""
NO_ACTION = 0.5
"""R_step of a step without a readable action (release; the paper does not say)."""
PAPER_OMEGA, RELEASE_OMEGA = 0.95, 0.80
OutcomeShare = tuple[float, float]
"""A share of a row's leaves, and the outcome reward of those leaves."""


class DpepoSettings(GroupSwitches, kw_only=True):
    """Settings of dpepo, with the defaults of DPEPO App. B.2."""

    invalid_penalty: float = 0.0
    state: StateForm = "paper"
    """The state that a transition starts in: f(s) of RewardFlow B.1 (paper), the true
    state (exact), or the text that the agent read (observation). A move that changed
    nothing leaves its copy in the previous state.
    """
    alpha: float = 0.8
    """Factor per earlier identical action in the same copy, in (0, 1]."""
    omega: float | None = None
    """Factor per action repeated within the step, in (0, 1]. Unset: 0.95 (paper), 0.80
    (release).
    """
    gamma: float = 0.95
    """Factor per earlier identical transition in the same copy, in (0, 1]."""
    beta: float = 0.95
    """Factor per other selected copy that made the same transition, in (0, 1]."""
    invalid_factor: float | None = None
    """Factor per inadmissible move, in (0, 1]; unset: no factor. DPEPO uses 0.5 in one
    of its two worlds (App. B.2).
    """
    action_reward: bool = True
    """Whether R_step includes R_action, which rewards new actions (DAR of DPEPO Tables
    2 and 4). Setting alpha and omega to 1 does not turn it off.
    """
    transition_reward: bool = True
    """Whether R_step includes R_transition, which rewards new transitions (DTR). With
    both rewards off, R_step is 1: plain grpo.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        usual_omega = RELEASE_OMEGA if self.form == "release" else PAPER_OMEGA
        if self.omega is None:
            self.omega = usual_omega
        self._require_coefficients("action_reward", alpha=0.8, omega=usual_omega)
        self._require_coefficients("transition_reward", gamma=0.95, beta=0.95)
        require(
            self.rewarded or self.invalid_factor is None,
            "invalid_factor",
            self.invalid_factor,
            "unset where action_reward and transition_reward are off: there is no "
            "R_step to multiply",
        )
        require(
            self.reads_states or self.state == "paper",
            "state",
            self.state,
            "left alone where form is release or transition_reward is off: no state is "
            "compared",
        )
        in_range(self, "alpha", "omega", "gamma", "beta", positive=True, most=1)
        if self.invalid_factor is not None:
            in_range(self, "invalid_factor", positive=True, most=1)

    @property
    def rewarded(self) -> bool:
        """Whether at least one of the two rewards is on."""
        return self.action_reward or self.transition_reward

    @property
    def reads_states(self) -> bool:
        """Whether states are compared; the release compares pairs of actions."""
        return self.form == "paper" and self.transition_reward

    def _require_coefficients(self, reward: str, **usual: float) -> None:
        """Requires that the coefficients of a reward that is off are left alone."""
        on = getattr(self, reward)
        require(
            on or self.form == "paper",
            reward,
            on,
            "true where form is release, which has no such variant",
        )
        # As everywhere, a setting that cannot take effect is refused and not ignored.
        for coefficient, value in usual.items():
            given = getattr(self, coefficient)
            wanted = f"left alone where {reward} is off"
            require(on or given == value, coefficient, given, wanted)


class Repetition:
    """What a step repeats, and its R_step, as the paper defines them."""

    def before(
        self, copy: int, states: dict[int, str], history: PastActs
    ) -> str | None:
        """What a copy's transition starts from: the state that it is in."""
        return states[copy]

    def within(self, step: Step, acts: Sequence[Act]) -> int:
        """C_width of a step."""
        # Three equal actions are two repetitions: the first of them is new.
        return len(acts) - len({action for _, action, _ in acts})

    def width(self, act: Act, acts: Sequence[Act], history: PastActs) -> int:
        """M_width: the number of other selected copies that made the transition."""
        copy, action, before = act
        copies = 0
        for other, other_action, other_before in acts:
            # "Other selected environments": copies that do not act in this step do not
            # count.
            if other != copy:
                same = (other_action, other_before) == (action, before)
                copies += same or history.transitions(other, action, before) > 0
        return copies

    def repeats(
        self, step: Step, states: dict[int, str], history: PastActs
    ) -> tuple[list[Act], Repeats | None]:
        """The readable acts of a step, and what they repeat; None without any.

        `states` has the state of each copy, and `history` ends before the step.
        """
        acts: list[Act] = []
        validities = []
        for copy, move in readable(step):
            before = self.before(copy, states, history)
            acts.append((copy, move.action or "", before))
            validities.append(move.validity)
        if not acts:
            return acts, None
        return acts, Repeats(
            copies=[copy for copy, _, _ in acts],
            depth=[history.actions(copy, action) for copy, action, _ in acts],
            transitions=[history.transitions(*act) for act in acts],
            widths=[self.width(act, acts, history) for act in acts],
            within=self.within(step, acts),
            inadmissible=validities.count(Validity.INADMISSIBLE),
        )

    def weigh(self, repeats: Repeats | None, settings: DpepoSettings) -> float:
        """R_step, times invalid_factor for every inadmissible move."""
        if not settings.rewarded:
            return PLAIN
        if repeats is None:
            return NO_ACTION
        count = len(repeats.depth)
        omega = settings.omega or 1.0
        depth = power_sum(settings.alpha, repeats.depth)
        transitions = power_sum(settings.gamma, repeats.transitions)
        widths = power_sum(settings.beta, repeats.widths)
        r_action = depth / count + omega**repeats.within  # DPEPO eq. 3
        r_transition = (transitions + widths) / count  # DPEPO eq. 4
        # App. B.2 gives the factor only; that it multiplies R_step is our reading.
        charged = 1.0
        if settings.invalid_factor is not None:
            charged = settings.invalid_factor**repeats.inadmissible
        if not settings.transition_reward:
            return charged * r_action
        if not settings.action_reward:
            return charged * r_transition
        return charged * (r_action + r_transition) / 2  # DPEPO eq. 5

    def equations(self, settings: DpepoSettings) -> tuple[Equation, ...]:
        """The equations that define R_step."""
        table = []
        if settings.action_reward:
            formula = "mean_depth + omega ** C_width"
            table.append(Equation("R_action", formula, "new actions", "DPEPO eq. 3"))
        if settings.transition_reward:
            formula = "mean_transitions + mean_width"
            words = "new transitions"
            table.append(Equation("R_transition", formula, words, "DPEPO eq. 4"))
        formula = "(R_action + R_transition) / 2"
        words = "R_step, in (0, 2]"
        if len(table) == 1:
            formula = table[0].name
            words = "R_step, in (0, 2]: the other reward is off"
        if settings.invalid_factor is not None:
            formula = f"invalid_factor ** inadmissible * {formula}"
        return (*table, Equation("step", formula, words, "DPEPO eq. 5"))


@with_release
def assign(
    tree: Tree,
    settings: DpepoSettings,
    leaves_of: type[Leaves] = Leaves,
    repetition_of: type[Repetition] = Repetition,
) -> Credit:
    """Returns one StepCredit per row; raises DataError for state keys that it lacks.

    parts: trajectory (Phi_traj, mean over the row's leaves), step (R_step, or the
    release's W), penalty.
    """
    survey = survey_of(tree, settings)
    if settings.reads_states:
        require_states(survey, "dpepo")
    leaves = leaves_of(survey, settings, settings.normalise)
    scale = leaves.scale
    repetition = repetition_of()
    repeats = step_repeats(survey, settings, repetition)
    # R_step depends on the path to a step, not on its leaves: a shared step has one.
    weights = [repetition.weigh(one, settings) for one in repeats]
    # With success there are two outcomes, whose shares follow from the mean reward.
    # Scores can be anything, so the leaves of each score are counted.
    by_score = settings.outcome == "score" and settings.prefix == "merge"
    shares_by_step = _score_shares(survey) if by_score else None

    def advantage(step: int, reward: float) -> AdvantageParts:
        weight = weights[step]
        penalty = survey.penalties[step]
        shares = _shares(reward, settings)
        if shares_by_step is not None:
            shares = shares_by_step[step]
        gain = 0.0
        loss = 0.0
        # Eq. 8 has two cases by the sign of Phi_traj. A shared step has leaves of both
        # signs, so each is weighed by its own case and then averaged.
        for share, outcome in shares:
            phi = share * scale(outcome - penalty)  # DPEPO eq. 7
            if phi > 0:
                gain += phi
            else:
                loss += phi
        parts = {
            "trajectory": gain + loss,
            "step": weight,
            "penalty": penalty,
        }
        return weight * gain + (2.0 - weight) * loss, parts  # DPEPO eq. 8-9

    def facts(row: int, step: int, reward: float) -> Evidence:
        evidence = leaves.facts(row, step)
        table = [*EQUATIONS]
        if _add_repeats(evidence, repeats[step], settings):
            table += repetition.equations(settings)
        outcomes = [survey.rewards[end] for end in leaves.ends_of(row, step)]
        table += _add_outcomes(evidence, outcomes, scale, survey.penalties[step])
        evidence.equations = table
        return evidence

    rows = survey.rows(settings.prefix)
    return survey.credit("dpepo", rows, advantage, facts=facts)


def step_repeats(
    survey: Survey, settings: DpepoSettings, repetition: Repetition
) -> list[Repeats | None]:
    """What every step repeats, by step id.

    None for a step without a readable action or without a live leaf, and for all where
    repeats are not rewarded.
    """
    steps = survey.tree.steps
    repeats: list[Repeats | None] = [None] * len(steps)
    if not settings.rewarded:
        return repeats
    states = standing_states(survey.tree, settings.state)
    history = PastActs()
    acts: list[list[Act]] = [[] for _ in steps]
    for visit in survey.visits():
        # Everything below has been seen: what the step did is history for its siblings
        # no longer.
        if visit < 0:
            history.leave(acts[~visit])
            continue
        counted = repetition.repeats(steps[visit], states[visit], history)
        acts[visit], repeats[visit] = counted
        history.enter(acts[visit])
    return repeats


def _shares(reward: float, settings: DpepoSettings) -> list[OutcomeShare]:
    """The shares of a row's leaves: those that succeeded and the others."""
    if settings.outcome == "score":
        # A row that is not merged has one leaf.
        return [(1.0, reward)]
    share = reward / settings.success_reward
    return [(share, settings.success_reward), (1.0 - share, 0.0)]


def _score_shares(survey: Survey) -> list[list[OutcomeShare]]:
    """The shares of the live leaves below each step, largest outcome reward first.

    They are sorted so that the order of siblings does not change rounding.
    """
    counts: list[Counter[float]] = [Counter() for _ in survey.live]
    for step in range(len(survey.parents) - 1, -1, -1):
        if not survey.live[step]:
            continue
        below = counts[step] or Counter({survey.rewards[step]: 1})
        counts[step] = below
        parent = survey.parents[step]
        # A parent shares the counts of its only child, so that a long trajectory is not
        # copied step by step.
        counts[parent] = counts[parent] + below if counts[parent] else below
    shares = []
    for rewards, leaves in zip(counts, survey.live, strict=True):
        ordered = sorted(rewards.items(), reverse=True)
        shares.append([(count / leaves, reward) for reward, count in ordered])
    return shares


def _add_repeats(
    evidence: Evidence, repeats: Repeats | None, settings: DpepoSettings
) -> bool:
    """Adds the counts of a step; False where no equation leads from them to R_step."""
    if not settings.rewarded:
        words = "neither reward is part of it (action_reward, transition_reward)"
        evidence.add("step", PLAIN, words)
        return False
    if repeats is None:
        evidence.add("step", NO_ACTION, "a step without a readable action")
        return False
    for name, base, counts, words in (
        ("depth", "alpha", repeats.depth, "earlier identical actions, by copy"),
        ("transitions", "gamma", repeats.transitions, "earlier identical transitions"),
        ("width", "beta", repeats.widths, "other copies that have seen the transition"),
    ):
        factors = [getattr(settings, base) ** count for count in counts]
        weights = [1.0] * len(counts)
        members = list(zip(repeats.copies, factors, weights, strict=True))
        words = f"{base} ** {words}: {listed(counts)}"
        evidence.group(name, words, members, set(), of="copy")
    evidence.add("C_width", repeats.within)
    evidence.add("inadmissible", repeats.inadmissible)
    return True


def _add_outcomes(
    evidence: Evidence, outcomes: list[float], scale: Scale, penalty: float
) -> list[Equation]:
    """The equations of eq. 7-9, with a Phi_traj for each distinct outcome reward."""
    table = []
    summands = []
    counts = Counter(outcomes)
    for number, (reward, count) in enumerate(sorted(counts.items(), reverse=True), 1):
        phi, factor = f"phi_{number}", f"factor_{number}"
        score = f"reward_{number} - penalty"
        source = f"DPEPO eq. 7, {GRPO}"
        evidence.add(f"leaves_{number}", count, "of its leaves with one outcome reward")
        evidence.add(f"reward_{number}", reward, "outcome reward of these")
        table.append(Equation(phi, score, "Phi_traj of these", source, among="leaves"))
        formula, words = "2 - step", "less loss for what is new"
        if scale(reward - penalty) > 0:
            formula, words = "step", "more gain for what is new"
        table.append(Equation(factor, formula, words, "DPEPO eq. 8"))
        summands.append(f"leaves_{number} / leaves * {factor} * {phi}")
    mean = " + ".join(summands)
    table.append(Equation(ADVANTAGE, mean, "mean over its leaves", "DPEPO eq. 9"))
    return table


EQUATIONS = (
    Equation("C_width", None, "actions of this step that repeat another of it"),
    Equation("inadmissible", None, "moves that the world refused"),
    LEAVES,
    PENALTY,
)
"""Only the given numbers. The equations depend on the settings and on the outcomes of a
row: see Repetition.equations and `_add_outcomes`.
"""
