"""Counts over sampled trees, and warnings for the user.

Counts are always recorded in the manifest. A warning is given if a number could be
misunderstood: a success of 0.00 says nothing about a policy whose responses were all
cut off.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentcli.environments.protocol import WORLD_FAILED
from agentcli.errors import SHORTEN, AgentCliError
from agentcli.evaluation.episodes import episodes
from agentcli.prompts.registry import dialect_name
from agentcli.records.faults import one_line, shown
from agentcli.records.files import read_records
from agentcli.records.settings import Settings
from agentcli.records.siblings import (
    Branching,
    Siblings,
    median_depth,
    shares_by_depth,
)
from agentcli.records.types import (
    Episode,
    Ledger,
    Outcome,
    Step,
    StopReason,
    Tree,
    Validity,
)

UNTRAINED = "training leaves them out"
EARLY = 0.9
"""Share of the forks after the first step from which on a warning says so."""
FEWEST_FORKS = 10
"""Forks from which on their share says something."""
EXCERPT = 160
"""Most characters of a response in a warning."""


class Tally:
    """Counts and ledger over trees.

    `responses` are the steps without an error; a step in several copies of the
    environment counts once. `malformed_responses` and `inadmissible_responses` have
    that Validity. `cut_responses` ended at policy.max_tokens, readable or not.
    `overlong` trajectories failed because a prompt was longer than
    policy.max_prompt_tokens (rollout.overlong).
    """

    def __init__(self) -> None:
        self.elsewhere = 0
        """Leaves of the stage without errors, in trees that were dropped."""
        names = (
            "trees",
            "leaves",
            *map(str, Outcome),
            "responses",
            "malformed_responses",
            "cut_responses",
            "inadmissible_responses",
            "overlong",
        )
        self.counts = dict.fromkeys(names, 0)
        self.ledger = Ledger()
        self.temperatures: dict[str, float] = {}
        """The temperatures of a policy that is a model.

        Its responses are sampled from softmax(logits / `temperature`). Any
        log-probabilities refer to the distribution at `logprob_temperature`.
        """
        self._error = ""
        """The first error of a leaf."""
        self._of_world = 0
        """Errored leaves whose error came from the world."""
        self._malformed_and_cut = 0
        self._explore = 0
        self._continued = 0
        """Steps that continue a conversation."""
        self._fresh = 0
        """Steps after others that continue none."""
        self._branching = Branching()
        self._first_malformed: dict[bool, str] = {}
        """The first malformed response, by whether it was cut off."""

    def add(self, tree: Tree) -> None:
        """Counts one tree."""
        self.counts["trees"] += 1
        for step in tree.steps:
            self._continued += bool(step.continues)
            self._fresh += step.parent is not None and not step.continues
            if step.outcome is Outcome.ERRORED:
                fault = step.error or ""
                self._error = self._error or fault
                self._of_world += WORLD_FAILED in fault
            if step.outcome is not None:
                self.counts["leaves"] += 1
                self.counts[step.outcome.value] += 1
            if step.stop is StopReason.OVERLONG:
                self.counts["overlong"] += 1
            # A step with an error says nothing about the policy's responses.
            elif step.error is None:
                self._add_response(step)
        self.ledger += tree.ledger
        self._branching.add(tree.steps)

    def statistics(self) -> dict[str, Any]:
        """Entries for the manifest.

        explore: share of the responses that reason in <explore>, the paper's trigger.
        siblings: number of steps that have a sibling, and the share of distinct actions
        among them: in total, at the initial state, and at forks. None if there are
        none. forks_by_depth: share of the forks at depth 1, 2, ... fork_depth: their
        median depth, if there are any. restarts: steps before which a conversation
        began anew (prompt.restart), where there are conversations.
        """
        siblings = Siblings(self.ledger.siblings, self.ledger.distinct_siblings)
        by_depth = shares_by_depth(self._branching.forks)
        statistics: dict[str, Any] = {
            "explore": self._explore / max(1, self.counts["responses"]),
            "siblings": {
                "steps": siblings.steps,
                "distinct": siblings.share,
                "distinct_at_start": self._branching.at_start.share,
                "distinct_of_forks": self._branching.of_forks.share,
            },
            "forks_by_depth": by_depth,
        }
        median = median_depth(by_depth)
        if median is not None:
            statistics["fork_depth"] = median
        if self._continued:
            statistics["restarts"] = self._fresh
        return statistics

    def _add_response(self, step: Step) -> None:
        # A policy that is no model leaves NONE, and its temperature means nothing.
        if step.stop is not StopReason.NONE:
            self.temperatures["temperature"] = step.temperature
        if step.logprobs:
            self.temperatures["logprob_temperature"] = step.logprob_temperature
        malformed = step.validity is Validity.MALFORMED
        cut = step.stop is StopReason.LENGTH
        self.counts["responses"] += 1
        self._explore += step.tag == "explore"
        self.counts["malformed_responses"] += malformed
        self.counts["cut_responses"] += cut
        self.counts["inadmissible_responses"] += step.validity is Validity.INADMISSIBLE
        if malformed:
            self._malformed_and_cut += cut
            self._first_malformed.setdefault(cut, step.response)

    def warnings(self, settings: Settings) -> Iterator[str]:
        """One line each on malformed responses and on prompts that are too long.

        Malformed responses are reported if they are more than half.
        """
        malformed = self.counts["malformed_responses"]
        responses = self.counts["responses"]
        # Below half it is a matter of training; above, most likely of the form or the
        # limit.
        if 2 * malformed > responses:
            share = malformed / responses
            yield (
                f"warning: {malformed} of {responses} responses ({share:.0%}) held no "
                f"readable action{self._cause(settings)}"
            )
        overlong = self.counts["overlong"]
        if overlong:
            limit = settings.policy.max_prompt_tokens
            yield (
                f"warning: {overlong} of {self.counts['leaves']} trajectories failed "
                f"because a prompt was longer than policy.max_prompt_tokens={limit} "
                f"(rollout.overlong): raise it, or {SHORTEN}"
            )

    def misplaced_forks(self, settings: Settings) -> Iterator[str]:
        """Warnings if trees branch at <explore> but no response used it, or too early.

        Roots already vary the first step. If nearly all forks vary the second, no later
        decision is ever compared.
        """
        branch = getattr(settings.rollout, "branch", None)
        forks = self._branching.forks
        if forks.total() >= FEWEST_FORKS and forks[1] >= EARLY * forks.total():
            # Without figures, so that a loop says it once.
            line = (
                "warning: nine of ten forks or more are right after the first step, so "
                "that later steps have hardly any siblings"
            )
            if branch == "explore":
                line += "; choose another --branch (fixed:P, entropy)"
            yield line
        triggered = branch == "explore"
        if triggered and self.counts["responses"] and not self._explore:
            yield (
                "warning: no response said <explore>, where "
                f"{settings.rollout.method} branches (rollout.branch=explore); choose "
                "another --branch, or let a teacher annotate what the policy imitates "
                "(demos --annotate)"
            )

    def judge_errors(
        self,
        settings: Settings,
        place: Path,
        note: Callable[[str], None],
        remedy: str | None = None,
    ) -> None:
        """Reports errored leaves; `remedy` says what happens to them if they are few.

        Raises AgentCliError naming `place` if there are more than the settings allow.
        """
        errored = self.counts["errored"]
        if not errored:
            return
        leaves = self.counts["leaves"] + self.elsewhere
        errors = f"{errored} of {leaves} leaves errored, first {shown(one_line(self._error))}"
        limit = settings.rollout.most_errored
        if not may_pass(settings, errored, leaves):
            raise AgentCliError(
                f"{place}: {errors}; that is more than rollout.most_errored={limit:g}: "
                f"{self._remedy()}"
            )
        note(f"warning: {errors}; {remedy or self._remedy()}")

    def _remedy(self) -> str:
        """What to do about errored leaves: most errors of a world would repeat."""
        if 2 * self._of_world > self.counts["errored"]:
            return (
                "it is the world that fails, and would again; look for the fault with: "
                "agentcli env check"
            )
        return "--resume does them again"

    def _cause(self, settings: Settings) -> str:
        """The likely reason why responses could not be read, and what to do.

        Either most were cut off, or the model does not know the form.
        """
        cut = self._malformed_and_cut
        mostly_cut = 2 * cut > self.counts["malformed_responses"]
        first = excerpt(self._first_malformed[mostly_cut])
        if mostly_cut:
            limit = settings.policy.max_tokens
            return (
                f", {cut} of them cut at policy.max_tokens={limit}: begin again with "
                f"--overwrite --set policy.max_tokens={4 * limit}, or more; the first: "
                f"{first}"
            )
        style = dialect_name(str(settings.prompt.style), settings.rollout.numbered)
        return (
            f": does the model know the form that prompt.style={style} asks for?; the "
            f"first: {first}"
        )


def may_pass(settings: Settings, errored: int, leaves: int) -> bool:
    """Whether no more of the leaves errored than the settings allow."""
    return errored <= settings.rollout.most_errored * leaves


def counted(trees: Path) -> tuple[Tally, list[Episode]]:
    """The counts of a trees file, and its episodes."""
    tally = Tally()
    rows = list[Episode]()
    for tree in read_records(trees, Tree):
        tally.add(tree)
        rows += episodes(tree)
    return tally, rows


def share_of_success(tree: Tree) -> float:
    """Successful leaves divided by leaves."""
    outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
    return outcomes.count(Outcome.SUCCESS) / max(1, len(outcomes))


def excerpt(text: str) -> str:
    """The beginning of a response, on one line."""
    line = shown(one_line(text))
    return f"{line[:EXCERPT]}..." if len(line) > EXCERPT else line
