"""Episodes of evaluations, small enough to count by hand."""

from collections.abc import Mapping

from agentcli.records.types import Episode, Ledger, Outcome

OUTCOMES = {"+": Outcome.SUCCESS, "-": Outcome.TRUNCATED, "!": Outcome.ERRORED}


def episodes(results: Mapping[str, str], tokens: int = 10, kinds: tuple[str, ...] = ("clean",)) -> list[Episode]:
    """{"t1": "+-"}: a success and a failure of task t1, "!" an error; each of four steps, one repeated and two explored.

    `tokens` are charged for a task, whatever its samples; the tasks are of the `kinds` in turn.
    """
    return [
        Episode(
            task=task,
            kind=kinds[number % len(kinds)],
            sample=sample,
            outcome=OUTCOMES[sign],
            score=float(sign == "+"),
            steps=4,
            moves=4,
            tokens=5,
            repetitive_steps=1,
            explore_steps=2,
            malformed_steps=0,
            inadmissible_steps=0,
            ledger=Ledger(generated_tokens=tokens, steps=4 * len(signs)) if sample == 0 else None,
        )
        for number, (task, signs) in enumerate(results.items())
        for sample, sign in enumerate(signs)
    ]
