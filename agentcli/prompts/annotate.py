"""The dialect that asks a teacher about one step of a given trajectory (SPARK App. B.4).

SPARK's teacher reviews (observation, action) sequences and "synthesizes missing
reasoning traces, selectively inserting <explore> tags at steps where epistemic
uncertainty logically arises". Its prompt is not published. Here the teacher sees the
full prompt that an agent gets at that step, and the action that was taken. It sees
nothing of later steps, so the reasoning cannot refer to them. The teacher does not
choose the action: it must return the given one unchanged.
"""

from agentcli.prompts.protocol import Answer, Dialect, Message, Moment
from agentcli.prompts.tagged import REASONING_TAGS, one_line

REQUEST = """\
The action at this moment is already decided, only the reasoning is missing. The \
action is:
{action}

Write the reasoning that leads to this very action: one short sentence in the agent's \
own voice, about nothing that it cannot
know yet. Choose <explore> only where it lacks something that it has to find out, or \
where the last result is not what it
expected; otherwise <think>. Answer in the form above, with this action word for \
word."""


class Annotation:
    """Asks for the reasoning behind `action`, in the format of the dialect `agent`.

    `problem` says why the teacher's previous answer could not be used.
    """

    def __init__(self, agent: Dialect, action: str, problem: str | None = None) -> None:
        self.fixed = agent.fixed
        self._agent = agent
        self._action = action
        self._problem = problem

    def ask(self, moment: Moment) -> Message:
        """The agent's message, with the request added after its text."""
        message = self._agent.ask(moment)
        text = message.text + "\n\n" + REQUEST.format(action=self._action)
        if self._problem is not None:
            text += (
                f"\n\nYour answer before this one could not be used: {self._problem}."
            )
        return Message((text, *message.pictures))

    def read(self, response: str, moment: Moment) -> Answer:
        """Tag, reasoning and action of an answer.

        Any action other than the given one is a problem too. If the teacher thinks
        aloud before it answers, the answer is read from the last reasoning tag on.
        """
        answer = self._agent.read(response, moment)
        if answer.problem is not None:
            last = max(response.lower().rfind(f"<{tag}>") for tag in REASONING_TAGS)
            final = self._agent.read(response[max(last, 0) :], moment)
            # The problem of the whole response says more than that of its end.
            if final.problem is not None:
                return answer
            answer = final
        if answer.actions[1] != one_line(self._action):
            return Answer(problem="the action was changed")
        return answer

    def write(self, answer: Answer, moment: Moment) -> str:
        """The response in the agent's format."""
        return self._agent.write(answer, moment)
