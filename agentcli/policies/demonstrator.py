"""A demonstrator with deliberate faults: bad habits, noise and stray moves.

It wraps another policy. Habits (forget, overlook) change what a searching expert does
and are imitated: they leave room for reinforcement learning to improve. Noise and stray
moves are executed but have Reply.mask, so that nothing learns to make them; they create
histories from which a policy must learn to recover. Everything is determined by the
request's seeds.
"""

import random
from itertools import pairwise

import msgspec

from agentcli.environments.protocol import Brief, Context, Tutor, World, world_as
from agentcli.errors import UsageError
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.policies.searcher import Searcher
from agentcli.prompts.protocol import Answer
from agentcli.records.files import derive_seed
from agentcli.records.settings import REFUTED, DemosSettings

FAULTS = {"stray": ("think", "try this"), "noise": ("explore", "try anything")}
"""The reasoning tag and the sentence that accompany the action, by mask."""

HABITS = ("forget", "overlook", "wander")
"""The fields of `demos` that are habits of an expert."""


def refuse_habits(settings: DemosSettings) -> None:
    """Raises UsageError if habits are set; only the searching expert has them."""
    if settings.forget or settings.overlook:
        raise UsageError(
            "demos.forget and demos.overlook are habits of the searching expert; "
            f"{settings.policy} has none; add --set demos.forget=0 --set "
            "demos.overlook=0, or choose --policy search"
        )
    if settings.explore != DemosSettings().explore:
        raise UsageError(
            "demos.explore: only the searching expert tags its searches; leave it out, "
            "or choose --policy search"
        )


class Demonstrator:
    """The policy `inner` with the faults of `settings`.

    Raises UsageError for habits that `inner` does not have.
    """

    def __init__(self, inner: Policy, world: World, settings: DemosSettings) -> None:
        if isinstance(inner, Searcher):
            self._habits = habits_of(
                world_as(world, Tutor, "--policy", "search"), settings
            )
        else:
            refuse_habits(settings)
        if settings.explore == REFUTED and not world.card.exploring:
            raise UsageError(
                f"demos.explore: {REFUTED}: {world.card.name} has no moves that look "
                "somewhere; give chances, for instance demos.explore=[0.2]"
            )
        self.seconds = 0.0
        self._inner = inner
        self._settings = settings
        self._vocabulary: list[str] = []
        """Names of objects, including those of other rooms."""
        if settings.stray:
            brief = world_as(world, Brief, "demos.stray", str(settings.stray))
            self._vocabulary = brief.vocabulary()

    async def respond(self, request: Request) -> Reply:
        """The reply for one step. With several copies, one acting copy is at fault.

        Errors of the wrapped policy are passed on.
        """
        # A stream of its own: whether a fault is drawn says nothing about what the
        # wrapped policy draws from the same seed.
        rng = random.Random(derive_seed(request.seed, "demonstrator"))
        chance = rng.random()
        if chance >= self._settings.stray + self._settings.noise:
            return await self._sound(request)
        fault = "stray" if chance < self._settings.stray else "noise"
        moment = request.moment
        sound: Reply | None = None
        copy = 1
        actions: dict[int, str] = {}
        if moment.numbered:
            # All other copies act as they would without the fault.
            sound = await self._sound(request)
            actions.update(request.form.read(sound.text, moment).actions)
            copy = rng.choice(sorted(actions)) if actions else moment.open[0]
        action = self._faulty(fault, moment.copies[copy - 1], rng)
        if action is None:
            return sound or await self._sound(request)
        tag, sentence = FAULTS[fault]
        actions[copy] = action
        text = request.form.write(Answer(tag, sentence, actions), moment)
        return Reply(text=text, mask=fault)

    async def close(self) -> None:
        await self._inner.close()

    def _faulty(self, fault: str, context: Context, rng: random.Random) -> str | None:
        """The action that replaces the correct one; None if there is none."""
        if not context.admissible:
            return None
        if fault == "stray":
            return stray_action(context, self._vocabulary, rng)
        return rng.choice(context.admissible)

    async def _sound(self, request: Request) -> Reply:
        """The reply of the wrapped policy, with the habits of this episode."""
        if isinstance(self._inner, Searcher):
            explore = self._settings.explore
            reply = self._inner.respond_with(request, self._habits, explore)
        else:
            reply = await self._inner.respond(request)
        self.seconds = self._inner.seconds
        return reply


def habits_of(tutor: Tutor, settings: DemosSettings) -> msgspec.Struct:
    """The expert's habits as set in `demos`.

    Raises UsageError if a habit is set that this expert does not have.
    """
    defaults = DemosSettings()
    habits = {}
    for name in HABITS:
        value = getattr(settings, name)
        if name in tutor.habits.__struct_fields__:
            habits[name] = value
        elif value != getattr(defaults, name):
            raise UsageError(
                f"demos.{name}: the searching expert of this world has no such habit; "
                "leave it out"
            )
    return tutor.habits(**habits)


def stray_action(
    context: Context,
    vocabulary: list[str],
    rng: random.Random,
) -> str | None:
    """An inadmissible action that a confused agent might try; None if there is none.

    It is the latest or any earlier action that is no longer possible (e.g. going to
    where the agent already is), or one with an object of another room. Available kinds
    are equally likely.
    """
    tried = dict.fromkeys(context.actions)  # each once, in order
    past = [action for action in tried if action and action not in context.admissible]
    kinds = [past[-1:], past, _foreign(context, vocabulary, rng)]
    possible = [kind for kind in kinds if kind]
    return rng.choice(rng.choice(possible)) if possible else None


def _foreign(context: Context, vocabulary: list[str], rng: random.Random) -> list[str]:
    """At most one action: an admissible one with an object never mentioned here."""
    known = set(vocabulary)
    named = []
    for action in context.admissible:
        named += [(action, thing) for thing in _things(action, known)]
    texts = (context.instruction, *context.observations, *context.admissible)
    episode = "\n".join(texts)
    strange = [thing for thing in vocabulary if thing not in episode]
    if not named or not strange:
        return []
    action, thing = rng.choice(named)
    changed = action.replace(thing, rng.choice(strange))
    return [] if changed in context.admissible else [changed]


def _things(action: str, known: set[str]) -> list[str]:
    """The objects with names of one or two words in an action, in order."""
    words = action.split()
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return [thing for thing in (*pairs, *words) if thing in known]
