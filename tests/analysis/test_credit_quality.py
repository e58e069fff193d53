"""The quality of credit: closed forms, exact means over all trees, and measured figures that agree with both."""

import asyncio
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from agentcli.analysis.credit_quality import (
    TOO_FEW,
    QualityJob,
    closed_form,
    enumerated,
    fill,
    grpo_factor,
    measure,
    perform,
    plan,
)
from agentcli.analysis.policy_gradients import (
    Logits,
    MeasuredArm,
    Pushes,
    appraise,
    arm_of,
    environment_of,
    estimates,
    figures,
    objective_gradient,
)
from agentcli.analysis.tabular import Field, TabularPolicy
from agentcli.records.credit_quality import CreditQuality, Estimate, MeasuredMethod, QualityCell, TunnelChoice, Tunnels
from agentcli.records.files import read_json, write_json
from agentcli.records.trees import validate_tree
from agentcli.records.types import Tree
from agentcli.reports.credit_quality import distance, markdown
from agentcli.reports.standing import Progress
from agentcli.worlds.tunnel.exact import Row, policy_at, solve
from agentcli.worlds.tunnel.rules import Spot
from command_line import agentcli
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from refusal import refused

REINFORCE = MeasuredMethod(credit={"method": "rloo", "form": "release", "over": "trajectories"}, rollout={"leaves": 1})
GROWN_AS = ("spark", "arpo", "carl", "dpepo")
"""Methods with trees of their own, which depend on the policy's replies alone."""


def small(**options: object) -> TunnelChoice:
    values = {"decisions": 2, "doors": 2, "forced": 0, **options}
    steps = int(values["decisions"]) * (int(values["forced"]) + 1)  # type: ignore[call-overload]
    return TunnelChoice(options=values, max_steps=steps)


class Small:
    """A tunnel of one game, with arms that are made by their names."""

    def __init__(self, seed: int = 0, leaves: int = 3, roots: int = 1, **options: object) -> None:
        self.choice = small(**options)
        self.field = Field(environment_of(self.choice, "tunnel"), 0.7, 0.5, seed)
        self.game = self.field.game(0)
        self.exact = self.field.exact(self.game)
        self.logits = Logits(self.field, [self.game])
        self._rollout = {"leaves": leaves, "roots": roots, "copies": 2}

    def arm(self, name: str, method: MeasuredMethod | None = None, **credit: object) -> MeasuredArm:
        grows = {"method": name} if name in GROWN_AS else {}
        method = method or MeasuredMethod(credit=credit, rollout=grows)
        study = Tunnels(
            title="t", groups=4, update=1, rollout=self._rollout, tunnels={"t": self.choice}, methods={name: method}
        )
        return arm_of(study, name, self.choice)

    def truth(self, arm: MeasuredArm) -> Row:
        return self.logits.vector(objective_gradient(arm, self.exact))

    def mean(self, arm: MeasuredArm) -> Row:
        """The exact mean of the estimator."""
        mean = asyncio.run(enumerated(self.field, arm, self.logits, self.game))
        assert mean is not None
        return mean

    def tree(self, arm: MeasuredArm, index: int = 0) -> Tree:
        tree = asyncio.run(self.field.grow(arm.rollout, index, TabularPolicy(self.field.table)))
        validate_tree(tree)
        return tree


# The exact mean, over all trees that can grow.


@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(2, 3), st.integers(1, 2), st.sampled_from(["on", "end"]))
def test_rloo_and_ppo_with_exact_values_are_unbiased(seed: int, leaves: int, decisions: int, wrong: str) -> None:
    place = Small(seed, leaves, decisions=decisions, wrong=wrong)
    for name in ("rloo", "ppo"):
        arm = place.arm(name)._replace(aggregate="token")
        assert place.mean(arm) == pytest.approx(place.truth(arm), abs=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(1, 3))
def test_reinforce_without_a_baseline_is_unbiased(seed: int, doors: int) -> None:
    place = Small(seed, doors=doors + 1, forced=1)
    arm = place.arm("reinforce", REINFORCE)
    assert place.mean(arm) == pytest.approx(place.truth(arm), abs=1e-12)


@settings(max_examples=15)
@given(st.integers(0, 99), st.integers(2, 4))
def test_the_mean_of_grpo_is_the_gradient_times_a_binomial_mean(seed: int, leaves: int) -> None:
    """Enumerated, and by the closed form."""
    place = Small(seed, leaves)
    arm = place.arm("grpo")
    factors = closed_form(place.field, arm, [place.game])
    assert factors is not None
    assert place.mean(arm) == pytest.approx(factors[place.game] * place.truth(arm), abs=1e-9)


def test_the_factor_of_two_trajectories_by_hand() -> None:
    """One of two succeeds with 2 p (1 - p); then s = 1 / sqrt 2 and each A is 1 / sqrt 2 in size: a factor of 1 / sqrt 2."""
    assert grpo_factor(2, 0.3) == pytest.approx(math.sqrt(0.5), abs=1e-5)
    # With ever more trajectories, s is the outcomes' own deviation.
    assert grpo_factor(400, 0.3) == pytest.approx(1 / math.sqrt(0.3 * 0.7), rel=0.01)
    # Where all or none succeed it is the limit: one of eight is otherwise, 8 (1 - p) 7 / (64 s (1 - p)).
    assert grpo_factor(8, 1.0) == grpo_factor(8, 0.0) == pytest.approx(7 / math.sqrt(8), abs=1e-5)


def test_the_step_term_of_gigpo_and_rewardflow_doubles_grpo_at_a_single_decision() -> None:
    """All trajectories leave one state, and the better of two ends is the same by outcome, by return and by distance."""
    place = Small(leaves=3, decisions=1)
    grpo = place.mean(place.arm("grpo"))
    for name in ("gigpo", "rewardflow"):
        assert place.mean(place.arm(name)) == pytest.approx(2 * grpo, rel=1e-4)


def door_odds(place: Small) -> list[Row]:
    """The policy at both decisions, and which door is right comes first."""
    views = [place.game.view(Spot(passage)) for passage in (0, 1)]
    return [policy_at(place.field.table, view, 2) for view in views]


def rights(place: Small) -> list[int]:
    return [place.game.actions(Spot(n)).index(f"open {place.game.right[n]}") for n in (0, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_the_bias_of_carl_under_its_own_forking_by_hand(seed: int) -> None:
    """One trajectory and one fork, where the sampled door was the more surprising. Written down from Algorithm 1 and eq. 10-13."""
    place = Small(seed, leaves=2)
    odds, right = door_odds(place), rights(place)
    expected = [np.zeros(2), np.zeros(2)]

    def add(decision: int, doors: tuple[int, int], returns: tuple[int, int], chance: float) -> None:
        mean = sum(returns) / 2
        for door, earned in zip(doors, returns, strict=True):
            expected[decision] += chance * (earned - mean) * (np.eye(2)[door] - odds[decision])

    for first, second in itertools.product(range(2), repeat=2):
        chance = odds[0][first] * odds[1][second]
        won = int([first, second] == right)
        if -round(math.log(odds[0][first]), 6) >= -round(math.log(odds[1][second]), 6):
            for other, last in itertools.product(range(2), repeat=2):
                again = int([other, last] == right)
                add(0, (first, other), (won, again), chance * odds[0][other] * odds[1][last])
        else:
            for last in range(2):
                add(1, (second, last), (won, int([first, last] == right)), chance * odds[1][last])
    # Two rows are trained in each tree, whose game takes two steps.
    by_hand = place.logits.vector({place.game.view(Spot(n)): expected[n] for n in (0, 1)})
    assert place.mean(place.arm("carl")) == pytest.approx(by_hand, abs=1e-9)


def test_carl_is_biased_where_its_forks_depend_on_what_was_sampled_and_not_where_they_cannot() -> None:
    def bias(place: Small) -> float:
        arm = place.arm("carl")
        mean, truth = place.mean(arm), place.truth(arm)
        return 1 - float(mean @ truth) ** 2 / float((mean @ mean) * (truth @ truth))

    assert bias(Small(leaves=3)) > 1e-3
    # A single decision: every fork is at the root.
    assert bias(Small(leaves=3, decisions=1)) == pytest.approx(0, abs=1e-9)


# Groups.


def test_a_group_without_spread_teaches_grpo_nothing() -> None:
    place = Small()
    arm = place.arm("grpo")
    seen = Counter()
    for index in range(40):
        tree = place.tree(arm, index)
        outcomes = {step.outcome for step in tree.steps if step.outcome}
        push, weight = place.logits.push(tree, arm.assign(tree, arm.switches), "step")
        seen[len(outcomes)] += 1
        assert bool(np.any(push)) == (len(outcomes) == 2)
        assert weight == pytest.approx(3)
    assert min(seen[1], seen[2]) > 3


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_gigpo_where_all_states_are_unique_is_grpo(index: int) -> None:
    place = Small(leaves=3)
    grpo, gigpo = place.arm("grpo"), place.arm("gigpo")
    tree = place.tree(gigpo, index)
    shared = [row.parts["step"] for row in gigpo.assign(tree, gigpo.switches).steps]
    for step in tree.steps:
        step.canonical = f"state {step.id}"
    rows = gigpo.assign(tree, gigpo.switches).steps
    assert [row.parts["step"] for row in rows] == [0.0] * len(rows)
    assert [row.advantage for row in rows] == [row.advantage for row in grpo.assign(tree, grpo.switches).steps]
    outcomes = {step.outcome for step in tree.steps if step.outcome}
    assert any(shared) == (len(outcomes) == 2)


@pytest.mark.parametrize("name", ["grpo", "spark", "carl", "dpepo"])
def test_a_push_is_the_gradient_of_the_weighed_log_probabilities(name: str) -> None:
    """By central differences of sum w A log pi, with the log-probabilities that the policy itself reports for its tree."""
    place = Small(leaves=4, roots=2, forced=1)
    arm = place.arm(name)
    trees = (place.tree(arm, index) for index in range(50))
    tree = next(tree for tree in trees if len({step.outcome for step in tree.steps if step.outcome}) > 1)
    credit = arm.assign(tree, arm.switches)
    push, _ = place.logits.push(tree, credit, "token")
    assert np.any(push)

    def surrogate() -> float:
        total = 0.0
        for row in credit.steps:
            step = tree.steps[row.step]
            for move in step.moves or [step]:
                odds = policy_at(place.field.table, move.canonical or "", len(move.admissible))
                total += (row.advantage or 0.0) * math.log(odds[move.admissible.index(move.action or "")])
        return total

    for step in tree.steps:
        logprob = sum(
            math.log(
                policy_at(place.field.table, m.canonical or "", len(m.admissible))[m.admissible.index(m.action or "")]
            )
            for m in step.moves or [step]
        )
        assert step.logprobs == pytest.approx([logprob], abs=1e-6)
    slopes = {}
    for view, row in place.exact.gradient.items():
        slopes[view] = np.zeros(len(row))
        for number in range(len(row)):
            ends = []
            for shift in (1e-5, -1e-5):
                place.field.table[view][number] += shift
                ends.append(surrogate())
                place.field.table[view][number] -= shift
            slopes[view][number] = (ends[0] - ends[1]) / 2e-5
    assert push == pytest.approx(place.logits.vector(slopes), abs=1e-6)


def test_the_critic_and_the_process_reward_model_know_the_exact_values() -> None:
    place = Small(forced=1, leaves=4)
    tree = place.tree(place.arm("ppo"))
    appraise(tree, place.game, place.exact)
    for step in tree.steps:
        assert step.score is not UNSET
        if step.parent is None:
            assert step.value == pytest.approx(place.exact.value)
        if step.outcome is not None:
            assert step.score == pytest.approx(float(step.outcome == "success"))
        else:
            after = next(one for one in tree.steps if one.parent == step.id)
            assert step.score == pytest.approx(after.value)


def test_the_gradient_of_several_copies_is_that_of_the_best_one() -> None:
    """d/dx of 1 - (1 - p)^K, by central differences in a logit."""
    place = Small()
    arm = place.arm("dpepo")
    view = place.game.view(Spot())

    def wins(shift: float) -> float:
        row = place.field.table[view] + np.array([shift, 0.0])
        success = solve(place.game, {**place.field.table, view: row}, 2).success
        return 1 - (1 - success) ** arm.copies

    slope = (wins(1e-5) - wins(-1e-5)) / 2e-5
    assert objective_gradient(arm, place.exact)[view][0] == pytest.approx(slope, abs=1e-8)


# Figures and their errors.


def drawn(rng: np.random.Generator, mean: Row, truth: Row, noise: float, groups: int = 160) -> Pushes:
    sums = mean + noise * rng.standard_normal((groups, len(mean)))
    return Pushes(sums, np.ones(groups), np.tile(truth, (groups, 1)), 1.0)


@pytest.mark.parametrize("off", [0.0, 0.6])
def test_figures_are_unbiased_and_their_errors_are_true(off: float) -> None:
    """Of a mean 2 J + off across it: scale 2, bias (off / 2)^2, variance of all directions over 4."""
    rng = np.random.default_rng(3)
    truth = np.array([1.0, 0.0, 0.0, 0.0])
    mean = np.array([2.0, off, 0.0, 0.0])
    wanted = {"scale": 2.0, "bias": (off / 2) ** 2, "variance": 4 * 1.5**2 / 4}
    found = [estimates(drawn(rng, mean, truth, 1.5), 8) for _ in range(150)]
    for name, value in wanted.items():
        gaps = np.array([one[name].value - value for one in found])
        errors = np.array([one[name].error for one in found])
        assert abs(gaps.mean()) < 4 * gaps.std() / math.sqrt(len(gaps)), name
        # The median: a jackknife's errors have a long tail.
        assert 0.7 < float(np.median(errors)) / gaps.std() < 1.4, name


def test_a_ratio_has_the_variance_of_its_rest() -> None:
    """Groups that are all alike but for their size: the mean over rows is the same in each, and has no variance."""
    sizes = np.random.default_rng(0).integers(1, 9, 64).astype(float)
    truth = np.array([1.0, -1.0])
    pushes = Pushes(np.outer(sizes, truth), sizes, np.tile(truth, (64, 1)), 3.0)
    scale, bias, variance, _ = figures(pushes)
    assert (scale, bias, variance) == pytest.approx((3.0, 0.0, 0.0), abs=1e-12)


# The study.

STUDY = """\
title: Quality of credit
groups: 64
update: 8
rollout: {leaves: 3, roots: 1, copies: 2}
tunnels:
  small: {about: two doors, options: {decisions: 2, doors: 2, forced: 0}, max_steps: 2}
  graded: {options: {decisions: 2, doors: 2, forced: 0, reward: graded}, max_steps: 2, credit: {outcome: score}}
methods:
  grpo: {}
  rloo: {}
  carl: {rollout: {method: carl}}
  dpepo: {rollout: {method: dpepo, leaves: 2}}
  rare-tool: {rollout: {method: rare-tool}}
"""


@pytest.fixture
def file(empty_folder: Path) -> Path:
    path = Path("q.yaml")
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_measured_figures_agree_with_theory(file: Path) -> None:
    made = plan(file, Path("out"))
    cells = [cell for job in made.jobs for cell in measure(made.study, job)]
    compared = {(cell.tunnel, cell.method): distance(cell) for cell in cells if cell.foretold is not None}
    assert {name for _, name in compared} == {"grpo", "rloo", "carl", "dpepo"}
    assert ("graded", "rloo") in compared
    assert max(compared.values()) < 3.5
    reasons = {(cell.tunnel, cell.method): cell.unmeasured for cell in cells if cell.unmeasured}
    assert set(reasons) == {("small", "rare-tool"), ("graded", "rare-tool"), ("graded", "dpepo")}
    assert "Toolbox" in str(reasons["small", "rare-tool"])


def test_a_gradient_of_nothing_is_said_to_be_none(file: Path) -> None:
    """One step of time is not enough for two doors: no game is won."""
    file.write_text(STUDY.replace("max_steps: 2}", "max_steps: 1}", 1), encoding="utf-8")
    (cell,) = measure(plan(file, Path("out")).study, QualityJob("small", ("grpo",), 0))
    assert "gradient is 0" in str(cell.unmeasured)


def test_figures_that_rest_on_a_single_update_are_not_given(file: Path) -> None:
    """Of four updates one has an advantage: without it nothing can be divided by the scale."""
    cell = QualityCell(tunnel="t", method="grpo", seed=0)
    sums = np.zeros((4, 2))
    sums[1] = 1.0
    fill(cell, Pushes(sums, np.ones(4), np.ones((4, 2)), 1.0), 1, None)
    assert (cell.unmeasured, cell.scale, cell.cosine) == (TOO_FEW, None, None)
    sums[2] = 1.0
    fill(cell, Pushes(sums, np.ones(4), np.ones((4, 2)), 1.0), 1, None)
    assert cell.scale is not None


def test_a_damaged_cell_is_measured_again(file: Path) -> None:
    made = plan(file, Path("out"), only=["grpo"])
    job = made.jobs[0]
    damaged = made.file(job.tunnel, "grpo", job.seed)
    damaged.parent.mkdir(parents=True)
    write_json(damaged, measure(made.study, job)[0])
    assert job not in made.left()
    damaged.write_text(damaged.read_text(encoding="utf-8")[:50], encoding="utf-8")
    assert job in made.left()


def test_the_command_goes_on_and_writes_the_same_bytes(file: Path) -> None:
    words = ("study", "q.yaml", "-o", "out", "--only", "grpo,rare-tool", "-q")
    assert agentcli(*words).code == 0
    results = Path("out/credit-quality.json"), Path("out/credit-quality.md")
    before = [path.read_bytes() for path in results]
    table = before[1].decode()
    assert "closed form" in table
    assert "not measured: rare-tool in small, graded" in table
    cells = sorted(Path("out/cells").iterdir())
    kept = cells[1].stat().st_mtime_ns
    cells[0].unlink()
    assert json.loads(agentcli(*words[:-1], "--dry-run", "--json").stdout)["counts"]["cells left"] == 1
    assert agentcli(*words).code == 0
    assert [path.read_bytes() for path in results] == before
    assert cells[1].stat().st_mtime_ns == kept


def test_other_settings_are_another_cell(file: Path) -> None:
    before = plan(file, Path("out"))
    file.write_text(STUDY.replace("grpo: {}", "grpo: {credit: {normalise: mean}}"), encoding="utf-8")
    after = plan(file, Path("out"))
    assert before.file("small", "grpo", 0) != after.file("small", "grpo", 0)
    assert before.file("small", "rloo", 0) == after.file("small", "rloo", 0)
    assert before.file("small", "rloo", 0) != before.file("small", "rloo", 1)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("groups: 64", "groups: 24", ("q.yaml", "groups")),
        ("doors: 2, forced: 0}", "dors: 2}", ("q.yaml", "tunnels.small.options.dors", "doors")),
        ("doors: 2, forced: 0}", "doors: 2, games: {train: 0}}", ("q.yaml", "tunnels.small.options.games.train")),
        ("title: ", 'title: "a\\nb" #', ("q.yaml", "one line")),
        ("  grpo: {}", "  grpo: {credit: {gama: 1}}", ("q.yaml", "methods.grpo", "credit.gama")),
        ("method: carl}", "method: karl}", ("q.yaml", "methods.carl", "karl", "carl")),
        ("method: carl}", "method: carl, roots: 9}", ("q.yaml", "methods.carl", "rollout.roots")),
        ("method: carl}", "method: carl, budget: steps=9}", ("q.yaml", "methods.carl.rollout.budget", "by itself")),
        ("  rloo: {}", "  rlo: {}", ("q.yaml", "methods.rlo", "rloo")),
    ],
)
def test_a_bad_file_is_refused_by_its_field(file: Path, before: str, after: str, names: tuple[str, ...]) -> None:
    assert before in STUDY
    file.write_text(STUDY.replace(before, after, 1), encoding="utf-8")
    refused(lambda: plan(file, Path("out")), 2, names)
    assert not Path("out").exists()


def test_a_shared_setting_that_a_method_replaces_is_not_read_for_it(file: Path) -> None:
    """prefix: null is one of grpo's values, and none of ppo's."""
    shared = STUDY.replace("credit: {outcome: score}", "credit: {prefix: null}")
    file.write_text(shared + "  ppo: {credit: {prefix: merge}}\n", encoding="utf-8")
    assert "ppo" in plan(file, Path("out")).methods


def test_a_size_and_a_method_that_are_not_there_are_refused(file: Path) -> None:
    refused(agentcli("study", "q.yaml", "--size", "paper"), 2, ("--size", "paper"))
    refused(agentcli("study", "q.yaml", "--only", "carle"), 2, ("--only", "carle", "carl"))


def test_the_shipped_study_measures_all_methods_in_twelve_tunnels() -> None:
    made = plan(Path(__file__).parents[2] / "studies/credit-quality.yaml", Path("out"))
    assert len(made.study.tunnels) == 12
    credits = {arm_of(made.study, name, made.study.tunnels["plain"]).credit for name in made.methods}
    assert len(credits) == 14


def test_a_folder_that_cannot_be_is_refused_before_anything_is_measured(file: Path) -> None:
    Path("taken").write_text("", encoding="utf-8")
    refused(lambda: perform(plan(file, Path("taken")), 1, Progress()), 1, ("taken", "-o DIR"))


def test_perform_returns_cells_in_the_order_of_the_file(file: Path) -> None:
    quality = perform(plan(file, Path("out"), only=["rloo", "carl"], seeds="1,0"), 2, Progress())
    assert [(cell.tunnel, cell.method, cell.seed) for cell in quality.cells] == [
        (tunnel, method, seed) for tunnel in ("small", "graded") for method in ("rloo", "carl") for seed in (1, 0)
    ]
    assert markdown(quality).startswith("# Quality of credit")


TURNED = """
title: Turned
groups: 64
seeds: 0-1
rollout: {leaves: 4}
knobs:
  doors: {about: more doors, options: {decisions: 1, forced: 0}, max_steps: 1, values: [2, 4]}
  skill: {options: {decisions: 1, doors: 2, forced: 0}, max_steps: 1, values: [0, 1.5]}
methods: {rloo: {}, grpo: {}}
"""


def test_a_knob_is_a_tunnel_for_each_value(file: Path) -> None:
    written = (
        TURNED[: TURNED.index("knobs:")]
        + "tunnels: {doors-4: {options: {decisions: 1, doors: 4, forced: 0}, max_steps: 1}}\n"
    )
    file.write_text(written + "methods: {rloo: {}, grpo: {}}\n", encoding="utf-8")
    alone = perform(plan(file, Path("alone")), 1, Progress())
    file.write_text(TURNED, encoding="utf-8")
    quality = perform(plan(file, Path("out")), 1, Progress())
    assert [cell for cell in quality.cells if cell.tunnel == "doors-4"] == alone.cells
    wins = {cell.tunnel: cell.success for cell in quality.cells if cell.seed == 0}
    assert wins["doors-2"] > wins["doors-4"]
    assert wins["skill-1.5"] > wins["skill-0"]


def test_over_a_knob_each_method_is_compared_with_the_first_one(file: Path) -> None:
    file.write_text(TURNED, encoding="utf-8")
    assert agentcli("study", "q.yaml", "-o", "out", "-q").code == 0
    quality = read_json(Path("out/credit-quality.json"), CreditQuality)
    assert [(one.panel, one.arm) for one in quality.differences] == [
        (place, "grpo") for place in ("doors-2", "doors-4", "skill-0", "skill-1.5")
    ]
    by_cell = {(cell.tunnel, cell.method, cell.seed): cell.cosine_at(512) for cell in quality.cells}
    for one in quality.differences:
        gains = [by_cell[one.panel, "grpo", seed] - by_cell[one.panel, "rloo", seed] for seed in one.seeds]  # type: ignore[operator]
        assert one.gain == pytest.approx(sum(gains) / len(gains))
    table = Path("out/credit-quality.md").read_text(encoding="utf-8")
    assert "doors: more doors; cosine of an update of 512 steps: rloo's, and what the others add" in table
    assert "p: exact signed-rank test" in table
    assert "- z: " not in table
    assert Path("out/credit-map.svg").read_text(encoding="utf-8").count("doors") > 0


def test_over_a_knob_the_reference_is_measured_with_the_chosen_methods(file: Path) -> None:
    file.write_text(TURNED.replace("grpo: {}}", "grpo: {}, gigpo: {}}"), encoding="utf-8")
    assert agentcli("study", "q.yaml", "-o", "out", "--only", "gigpo", "-q").code == 0
    quality = read_json(Path("out/credit-quality.json"), CreditQuality)
    assert {cell.method for cell in quality.cells} == {"rloo", "gigpo"}
    assert {one.arm for one in quality.differences} == {"gigpo"}


def test_the_cosine_at_a_number_of_steps_has_a_closed_form() -> None:
    """Three groups of 4 steps: the mean is off by a bias of 1 and a third of the variance of 6."""
    figure = {"error": 0.0}
    cell = QualityCell(tunnel="t", method="grpo", seed=0, steps=4.0)
    assert cell.cosine_at(12) is None
    cell.scale = Estimate(value=2.0, **figure)
    cell.bias, cell.variance = Estimate(value=1.0, **figure), Estimate(value=6.0, **figure)
    assert cell.cosine_at(12) == pytest.approx(0.5)
    # Six groups of two updated responses each: a sixth of the variance.
    cell.responses = 2.0
    assert cell.cosine_at(12, "responses") == pytest.approx(3**-0.5)
    cell.scale = Estimate(value=-0.1, **figure)
    assert cell.cosine_at(12, "responses") == pytest.approx(-(3**-0.5)), "it points away"


def test_at_equal_responses_updates_of_forks_alone_count_less(file: Path) -> None:
    """A game of a door and four forced steps: carl forks at the door, and updates nothing else."""
    methods = "methods: {grpo: {}, carl: {rollout: {method: carl, roots: 1, leaves: 4}}}\n"
    written = TURNED[: TURNED.index("knobs:")] + (
        "equal: responses\nbudget: 60\n"
        "knobs: {forced: {options: {decisions: 1, doors: 2}, max_steps: 9, values: [0, 4]}}\n"
    )
    file.write_text(written + methods, encoding="utf-8")
    quality = perform(plan(file, Path("out")), 1, Progress())
    of = {(cell.tunnel, cell.method): cell for cell in quality.cells if cell.seed == 0}
    # With a success and a failure grpo updates every step, and else none.
    assert of["forced-4", "grpo"].responses == pytest.approx(5 * of["forced-0", "grpo"].responses, rel=0.3)
    assert 0 < of["forced-4", "carl"].responses <= 4
    gains = {one.panel: one.gain for one in quality.differences}
    assert gains["forced-4"] > gains["forced-0"]
    assert {one.measure for one in quality.differences} == {"cosine at 60 responses"}
    assert "cosine of an update of 60 responses: grpo's" in markdown(quality)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("values: [2, 4]", "values: [2]", ("q.yaml", "knobs.doors.values")),
        ("  doors: {", "  dors: {", ("q.yaml", "knobs.dors-2.options.dors", "doors")),
        ("values: [2, 4]", "values: [2, many]", ("q.yaml", "knobs.doors.values[1]", "float")),
        ("knobs:", "knob:", ("q.yaml: knob", "knobs")),
        ("values: [2, 4]", "values: [2, 2]", ("q.yaml", "knobs", "twice")),
        ("values: [0, 1.5]", "values: [1, 1.0]", ("q.yaml", "knobs.skill", "twice")),
        ("{leaves: 4}", "{tasks_per_step: 4}", ("q.yaml: rollout.tasks_per_step", "by itself")),
        ("values: [0, 1.5]", "values: [-1, 1.5]", ("q.yaml", "knobs.skill.values[0]", "0")),
        ("values: [2, 4]", "values: [2, 4], rollout: {leavs: 8}", ("q.yaml", "knobs.doors.rollout.leavs", "leaves")),
        ("{leaves: 4}", "{leavs: 4}", ("q.yaml: rollout.leavs", "leaves")),
        ("{leaves: 4}", "{leaves: -4}", ("q.yaml: rollout.leaves",)),
        ("{leaves: 4}", "{method: spark}", ("q.yaml: rollout.method", "methods.NAME")),
        ("values: [2, 4]", "values: [2, 4], rollout: {leaves: -8}", ("q.yaml: knobs.doors.rollout.leaves",)),
        ("values: [2, 4]", "values: [2, 4], credit: {penalty: inner}", ("q.yaml: knobs.doors.credit.penalty", "inner")),
        ("values: [2, 4]", "values: [2, 4], credit: {scal: std}", ("q.yaml", "knobs.doors.credit.scal")),
        ("grpo: {}}", "grpo: {credit: {method: 3}}}", ("q.yaml: methods.grpo: credit.method",)),
        ("knobs:", "tunnels: {doors-4: {}}\nknobs:", ("q.yaml", "knobs", "KNOB-VALUE")),
    ],
)
def test_a_bad_knob_is_refused_by_its_field(file: Path, before: str, after: str, names: tuple[str, ...]) -> None:
    assert before in TURNED
    file.write_text(TURNED.replace(before, after, 1), encoding="utf-8")
    refused(lambda: plan(file, Path("out")), 2, names)


def test_the_shipped_knobs_have_six_settings_each() -> None:
    made = plan(Path(__file__).parents[2] / "studies/what-helps-when.yaml", Path("out"))
    assert [len(knob.values) for knob in made.study.knobs.values()] == [6] * 6
    assert len(made.seeds) == 8
