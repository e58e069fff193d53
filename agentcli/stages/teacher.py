"""A policy as teacher: it writes reasoning for existing steps (SPARK App. B.4).

Each step is annotated separately, from what the agent knew. A step without a usable
answer is masked.
"""

import asyncio
from pathlib import Path

import msgspec

from agentcli.environments.protocol import Context, Picture, World
from agentcli.policies.protocol import Policy, Request, reply_within
from agentcli.prompts.annotate import Annotation
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Dialect, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.files import derive_seed
from agentcli.records.pictures import read_picture
from agentcli.records.settings import Settings
from agentcli.records.trees import path
from agentcli.records.types import Ledger, Outcome, Step, StopReason, Tree, Validity

ASKS = 3
"""How often the teacher is asked before a step is given up."""
NOT_ANNOTATED = "not annotated"
"""The mask of a step for which the teacher gave no usable answer."""


class Teacher:
    """Annotates trees with the answers of a policy.

    `pictures` is the folder with the pictures of the trees.
    """

    def __init__(
        self,
        policy: Policy,
        world: World,
        settings: Settings,
        pictures: Path,
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._pictures = pictures
        self._agent = make_dialect(settings.prompt, world)
        """The dialect in which the annotated steps are written."""
        self._full = Full(settings.prompt, world)
        """The dialect in which the teacher is asked."""
        self.unusable: str | None = None
        """One of the unusable answers for which a step was given up."""

    async def annotate(self, tree: Tree, key: str) -> Tree:
        """Annotates all steps of a tree, with seeds derived from `key`.

        The teacher's tokens are added to the tree's ledger. Raises PolicyError if the
        teacher could not be asked.
        """
        ledger = Ledger()
        jobs = (self._step(tree, step, key, ledger) for step in tree.steps)
        steps = await asyncio.gather(*jobs, return_exceptions=True)
        for step in steps:
            if isinstance(step, BaseException):
                raise step
        return msgspec.structs.replace(
            tree,
            steps=steps,
            ledger=tree.ledger + ledger,
        )

    async def _step(
        self,
        tree: Tree,
        step: Step,
        key: str,
        ledger: Ledger,
    ) -> Step:
        if not imitable(step):
            return step
        moment = Moment(copies=(_context(tree, step, self._pictures),))
        action = step.action or ""
        prompt = step.prompt or self._agent.ask(moment).text
        problem = None
        for ask in range(ASKS):
            dialect = Annotation(self._full, action, problem)
            seed = derive_seed(
                self._settings.seed,
                "annotate",
                key,
                step.id,
                ask,
            )
            request = self._request(dialect, moment, seed)
            most_bytes = self._settings.environment.most_text_bytes
            reply = await reply_within(most_bytes, self._policy, request)
            # A server reports the number of tokens, but not the tokens.
            ledger.generated_tokens += len(reply.token_ids) or reply.generated_tokens
            ledger.prompt_tokens += reply.prompt_tokens
            answer = dialect.read(reply.text, moment)
            problem = answer.problem
            if answer.tag is not None and answer.reasoning is not None:
                reasoning = " ".join(answer.reasoning.split())
                written = Answer(answer.tag, reasoning, {1: action})
                response = self._agent.write(written)
                return msgspec.structs.replace(
                    without_tokens(step),
                    prompt=prompt,
                    response=response,
                    tag=answer.tag,
                    mask=None,
                )
        if self.unusable is None:
            self.unusable = reply.text
        return msgspec.structs.replace(step, prompt=prompt, mask=NOT_ANNOTATED)

    def _request(self, dialect: Dialect, moment: Moment, seed: int) -> Request:
        policy = self._settings.policy
        return Request(
            message=dialect.ask(moment),
            moment=moment,
            states=(),
            form=dialect,
            seed=seed,
            episode_seed=seed,
            temperature=policy.temperature,
            max_tokens=policy.max_tokens,
        )


def without_tokens(step: Step) -> Step:
    """A step without the sampled tokens of its earlier response."""
    return msgspec.structs.replace(
        step,
        token_ids=[],
        generated_tokens=msgspec.UNSET,
        logprobs=[],
        temperature=1.0,
        logprob_temperature=1.0,
        stop=StopReason.NONE,
    )


def imitable(step: Step) -> bool:
    """Whether `sft` would imitate a step, or would if the teacher had annotated it."""
    return (
        step.validity is Validity.VALID
        and step.action is not None
        and step.outcome is not Outcome.ERRORED
        and step.mask in (None, NOT_ANNOTATED)
    )


def _context(tree: Tree, step: Step, folder: Path) -> Context:
    """What the agent knew before `step`."""
    way = path(tree, step)
    pictures = [Picture(read_picture(folder, name)) for name in step.pictures or ()]
    return Context(
        task=tree.task,
        instruction=tree.instruction,
        observations=tuple(before.observation for before in way),
        actions=tuple(before.action or "" for before in way[:-1]),
        admissible=tuple(step.admissible),
        pictures=tuple(pictures),
    )
