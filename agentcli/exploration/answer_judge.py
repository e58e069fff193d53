"""A model judges whether an answer is equivalent to the known one (CARL App. C.4).

Exact match and F1 compare only words. With `rollout.answer_judge`, a model is asked as
soon as an episode ends with an answer, in rollouts and in evaluations. Its verdict
becomes the outcome, and the world's reward is kept. So one evaluation gives both
metrics of CARL: F1 as the score, and LLM-as-Judge as the success.

The model is asked here and not by the world, whose engines are processes without access
to policies. Its tokens are charged like those of every further model. If it fails or
its reply cannot be read, the leaf is errored and does not count as a wrong answer.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from agentcli.environments.protocol import Exam, Examining, World
from agentcli.policies.protocol import Reply
from agentcli.prompts.protocol import Message
from agentcli.prompts.tagged import unfenced
from agentcli.records.faults import UNREADABLE, fault_in, one_line
from agentcli.records.types import Outcome, Step, Task

Ask = Callable[[Message, int], Awaitable[Reply | str]]
"""Asks the judge; the number of the question makes the seed (Actor.ask)."""
SETTING = "answer_judge"
ATTEMPTS = 3
"""How often the judge is asked before an unreadable verdict is an error."""
ENDS = (Outcome.SUCCESS, Outcome.FAILURE)

MESSAGE = """\
You are an evaluation assistant. Please determine if the predicted answer is \
equivalent to the labeled answer.

Question: {question}

Labeled Answer: {references}

Predicted Answer: {answer}

Did the model give an answer **equivalent** to the labeled answer? Please respond with \
"Correct" if they are equivalent, or "Incorrect" if they are not equivalent.

The output should in the following json format:

```json
{{
 "rationale": <your rationale>,
 "judgement": "Correct" or "Incorrect"
}}
```{problem}"""
"""CARL Figure 6."""


class Judgement(msgspec.Struct, forbid_unknown_fields=True):
    """The only accepted form of the judge's reply."""

    rationale: str
    judgement: Literal["Correct", "Incorrect"]


def exam_at(world: World, task: Task, step: Step) -> Exam | None:
    """What the judge is asked about a step; None if the step is not an answer."""
    # A trajectory that was cut off, or that broke, gave no answer.
    if step.action is None or step.outcome not in ENDS:
        return None
    return world.exam(task, step.action) if isinstance(world, Examining) else None


async def judge_end(
    world: World, task: Task, step: Step, ask: Ask
) -> Judgement | str | None:
    """Puts the judge's verdict in the place of an answer's outcome.

    Until there is one, the step has no outcome: at a deadline its trajectory is
    unfinished. Returns the judgement, or why there is none; None if the step is not an
    answer, or `ask` has arranged for an errored leaf.
    """
    exam = exam_at(world, task, step)
    if exam is None:
        return None
    outcome, step.outcome = step.outcome, None
    judged = await judge_answer(ask, exam)
    step.outcome = outcome
    if isinstance(judged, Judgement):
        is_right = judged.judgement == "Correct"
        step.outcome = Outcome.SUCCESS if is_right else Outcome.FAILURE
    return judged


async def judge_answer(ask: Ask, exam: Exam) -> Judgement | str | None:
    """The judgement of an answer, or why there is none.

    None if the judge itself failed: `ask` has then arranged for an errored leaf.
    """
    problem = ""
    for attempt in range(ATTEMPTS):
        reply = await ask(exam_message(exam, problem), attempt)
        if isinstance(reply, str):
            return None
        judgement = read_judgement(reply.text)
        if isinstance(judgement, Judgement):
            return judgement
        problem = judgement
    return f"rollout.{SETTING}: {problem} ({ATTEMPTS} attempts)"


def exam_message(exam: Exam, problem: str = "") -> Message:
    """The message that asks for a judgement; `problem` is what was wrong last time.

    Every text is put on one line, so that an answer cannot imitate other parts of the
    message.
    """
    refused = f"\n\nYour last reply was refused: {problem}" if problem else ""
    text = MESSAGE.format(
        question=one_line(exam.question),
        references=" or ".join(map(one_line, exam.references)),
        answer=one_line(exam.answer),
        problem=refused,
    )
    return Message((text,))


def read_judgement(text: str) -> Judgement | str:
    """The judgement that a reply holds, or what is wrong with it.

    A code fence around the JSON is removed; anything else is refused.
    """
    data = unfenced(text).encode()
    try:
        return msgspec.json.decode(data, type=Judgement)
    except UNREADABLE as error:
        return fault_in(error, data) if data else "an empty reply"
