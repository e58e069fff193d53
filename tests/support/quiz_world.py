"""A quiz with two tools, for tests of methods that choose tools: which letter has the box?

`peek[box]` and `weigh[box]` both tell; `answer[LETTER]` ends the episode. Its name is `quiz_world:QuizWorld`.
"""

from collections.abc import Mapping

from agentcli.environments.protocol import Card, Observation, Start, Verdict
from agentcli.records.calls import read_call
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

LETTERS = "ABC"


class QuizEngine:
    """One question at a time: an Engine that judges."""

    def start(self, task: Task) -> Start:
        self._right = LETTERS[int(task.id.partition("/")[2]) % len(LETTERS)]
        self._past: tuple[str, ...] = ()
        return Start(instruction="Which box is full: A, B or C?", observation=self._observe("Nothing is known."))

    def step(self, action: str) -> Observation:
        call = read_call(action)
        self._past = (*self._past, action)
        if call is None:
            return self._observe("No such action.", accepted=False)
        if call.name == "answer":
            right = call.argument == self._right
            return self._observe("Done.", reward=float(right), end="success" if right else "failure")
        if call.name in QuizWorld.tools:
            return self._observe(f"It is {self._right}.")
        return self._observe("You think." if call.name == "cot" else "No such tool.", accepted=call.name == "cot")

    def plan(self) -> list[str]:
        looked = [] if self._known else ["peek[the boxes]"]
        return [*looked, f"answer[{self._right}]"]

    @property
    def _known(self) -> bool:
        return any(action.startswith(("peek", "weigh")) for action in self._past)

    def judge(self, argument: str) -> Verdict:
        known = any(action.startswith(("peek", "weigh")) for action in self._past)
        return Verdict(
            scores={"peek": 9.0, "weigh": 7.0, "cot": 9.5 if known else 2.0}, process_ok=argument != "nonsense"
        )

    def _observe(self, text: str, accepted: bool = True, reward: float = 0.0, end: str | None = None) -> Observation:
        return Observation(
            text=text,
            actions=("peek[the boxes]", "weigh[nonsense]", "cot[hm]", *(f"answer[{letter}]" for letter in LETTERS)),
            state="|".join((self._right, *self._past)),
            accepted=accepted,
            reward=reward,
            end=end,
        )


class QuizWorld:
    """A World that is a Toolbox."""

    card = Card(
        name="quiz", role="You answer questions.", splits=("train", "test"), evaluation_split="test", dialect="tools"
    )
    tools: Mapping[str, str] = {"peek": "looks into a box", "weigh": "says how heavy a box is"}

    def __init__(self, settings: EnvironmentSettings) -> None:
        pass

    def tasks(self, split: str) -> list[Task]:
        return [Task(id=f"{split}/{index}", world="quiz", split=split, kind=LETTERS[index % 3]) for index in range(6)]

    def engine(self) -> QuizEngine:
        return QuizEngine()
