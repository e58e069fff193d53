"""A method of another package that asks a judge: its settings, its notes, its credit, its refusals, and what becomes of errors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.errors import PolicyError
from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.protocol import Message
from agentcli.prompts.tagged import write_tagged
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings, PolicySettings, PromptSettings, Settings
from agentcli.records.training_settings import TinySettings
from agentcli.records.trees import path, validate_tree
from agentcli.records.types import Credit, Outcome, StopReason, Tree
from agentcli.stages.backend import LocalBackend
from command_line import agentcli, succeeded, trees_of
from installed import install
from refusal import refusal, refused
from scripted import Audited, SeededPolicy
from toy_world import ToyWorld
from word_trees import TASK
from word_world import WordEngines, WordWorld

POINTS = {
    "agentcli.exploration": {"judged": "judged"},
    "agentcli.credit": {"judged": "judged_credit"},
    "agentcli.policies": {"closing": "test_judge:closing"},
}
PRESET = """
environment: {name: "toy_world:ToyWorld", max_steps: 8, options: {tasks: 4}}
prompt: {style: compact}
policy: {kind: random}
rollout: {method: judged, leaves: 3}
"""
ROLLOUT = ("rollout", "--preset", "./toy.yaml", "-q")
JUDGE = ("--set", "rollout.judge.kind=random")


class ClosingPolicy(SeededPolicy):
    """Says when it is closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


def closing(settings: Settings, world: Any, pool: Any, model: str | None) -> ClosingPolicy:
    """ClosingPolicy as an installed package offers it."""
    return ClosingPolicy()


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a preset, while the package is installed."""
    install(empty_folder / "package", monkeypatch, POINTS)
    (empty_folder / "toy.yaml").write_text(PRESET, encoding="utf-8")


def roll(out: str, *words: str) -> bytes:
    """The trees of a rollout that must end well."""
    succeeded(*ROLLOUT, *words, "-o", out)
    return Path(out, "trees.jsonl").read_bytes()


def test_what_the_judge_noted_is_what_credit_reads() -> None:
    roll("x", *JUDGE)
    succeeded("assign-credit", "x", "--method", "judged", "--set", "credit.scale=3", "-q")
    credits = list(read_records(Path("x/credit/judged.jsonl"), Credit))
    advantages = set()
    for tree, credit in zip(trees_of("x"), credits, strict=True):
        validate_tree(tree)
        for step, row in zip(tree.steps, credit.steps, strict=True):
            verdict = step.notes["verdict"]
            assert isinstance(verdict, str)
            assert (str(step.action) in verdict) == bool(step.notes["agrees"])
            assert row.advantage == 3 * float(step.notes["agrees"])
            advantages.add(row.advantage)
    assert advantages == {0.0, 3.0}


def test_one_seed_means_the_same_bytes_at_any_concurrency_and_after_an_interruption() -> None:
    whole = roll("one", *JUDGE, "--concurrency", "1")
    assert roll("four", *JUDGE, "--concurrency", "4") == whole
    Path("four/trees.jsonl").write_bytes(whole[:-2000])
    assert roll("four", *JUDGE, "--resume") == whole
    assert roll("other", *JUDGE, "--seed", "1") != whole


def test_the_judge_draws_by_a_seed_of_its_own() -> None:
    """The policy's draws stay those of a rollout without a judge, and the judge's are others."""
    roll("judged", *JUDGE)
    roll("alone", "--method", "chain")
    actions = [[step.action for step in tree.steps] for tree in trees_of("judged")]
    assert actions == [[step.action for step in tree.steps] for tree in trees_of("alone")]
    agreements = [step.notes["agrees"] for tree in trees_of("judged") for step in tree.steps]
    assert set(agreements) == {0.0, 1.0}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A model made from scratch."""
    directory = tmp_path / "model"
    texts = ["What would you do? You wake up. This is room 0.", write_tagged("explore", "try", "go east")]
    tokenizer = make_tokenizer(texts, ToyWorld(EnvironmentSettings()).vocabulary())
    shape = TinySettings(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=32)
    make_model(shape, tokenizer, 1).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def test_a_model_judges_and_its_tokens_are_charged(tiny: Path) -> None:
    judge = ("--set", f"rollout.judge={{model: {tiny}, max_tokens: 5, temperature: 1.0}}", "--tasks", "2")
    whole = roll("x", *judge)
    for tree in trees_of("x"):
        assert not any(step.token_ids for step in tree.steps), "the policy draws at random and generates nothing"
        assert len(tree.steps) <= tree.ledger.generated_tokens <= 5 * len(tree.steps)
        assert tree.ledger.prompt_tokens > tree.ledger.generated_tokens
    assert roll("y", *judge, "--concurrency", "1") == whole
    manifest = json.loads(Path("x/manifest.json").read_text(encoding="utf-8"))
    assert str(tiny / "model.safetensors") in manifest["stages"]["rollout"]["inputs"]
    plan = json.loads(agentcli(*ROLLOUT, *judge, "--dry-run", "--json", "-o", "z").stdout)
    assert plan["inputs"]["rollout.judge"] == str(tiny)


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        (["rollout.judge.kind=randm"], 2, "rollout.judge.kind", "random"),
        (["rollout.judge.temperature=1"], 2, "rollout.judge.model", "--set rollout.judge.model="),
        (["rollout.judge.model=./none"], 4, ["rollout.judge.model", "./none"], "--set rollout.judge.model="),
        (["rollout.judge.kind=openai"], 2, "rollout.judge.endpoint.base_url", "--set rollout.judge.endpoint.base_url="),
        (["rollout.judge.knd=random"], 2, "rollout.judge.knd", "rollout.judge.kind"),
        (["rollout.juge.kind=random"], 2, "rollout.juge", "rollout.judge"),
        (["rollout.judge.kind=random", "rollout.method=chain"], 2, "rollout.judge", "--method judged"),
    ],
)
def test_what_cannot_be_opened_is_refused_by_the_plan(
    words: list[str], code: int, names: list[str], remedy: str
) -> None:
    sets = [word for assignment in words for word in ("--set", assignment)]
    refused(agentcli(*ROLLOUT, *sets, "-o", "x", "--dry-run"), code, names, remedy)
    refused(agentcli(*ROLLOUT, *sets, "-o", "x"), code, names, remedy)
    assert not Path("x").exists()


def test_a_fault_while_opening_names_the_setting() -> None:
    sets = ["rollout.judge.kind=openai", "rollout.judge.endpoint.base_url=nowhere"]
    words = [word for assignment in sets for word in ("--set", assignment)]
    refused(agentcli(*ROLLOUT, *words, "-o", "x"), 2, ["rollout.judge", "nowhere"])


def test_a_resume_refuses_another_judge_and_allows_another_speed() -> None:
    roll("x", *JUDGE)
    resume = (*ROLLOUT, *JUDGE, "--resume", "-o", "x", "--set")
    refused(agentcli(*resume, "rollout.judge.temperature=0.9"), 2, "rollout.judge.temperature")
    assert agentcli(*resume, "rollout.judge.batch_rows=2").code == 0


def judged(**values: Any) -> Settings:
    from judged import JudgedRollout

    return Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=4),
        prompt=PromptSettings(style="compact"),
        rollout=JudgedRollout(method="judged", judge=PolicySettings(kind="closing"), **values),
    )


def test_a_loop_opens_the_judge_once_and_closes_it() -> None:
    async def open_twice() -> ClosingPolicy:
        settings = judged()
        world = make_world(settings.environment)
        backend = LocalBackend(EnginePool(settings.environment))
        models = await backend.further_models(settings, world)
        assert await backend.further_models(settings, world) is models
        (judge,) = models.values()
        assert isinstance(judge, ClosingPolicy)
        assert judge.closed == 0
        await backend.aclose()
        return judge

    assert asyncio.run(open_twice()).closed == 1


class RefusingJudge(ClosingPolicy):
    """Breaks where `words` were said last, and answers anything else."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    async def respond(self, request: Request) -> Reply:
        if request.message.text == self._words:
            raise PolicyError("no answer")
        return Reply(text="fine", token_ids=(1, 2), prompt_tokens=3, stop=StopReason.STOP)


def actor_with(judge: Any, settings: Settings, policy: Any = None) -> Actor:
    policy = policy or SeededPolicy(("a", "b"))
    return Actor(TASK, WordEngines(), policy, WordWorld(), settings, 0, {"judge": judge})


def tree_judged_by(judge: Any, at_once: bool = True) -> Tree:
    """Four trajectories of four steps; the judge is asked about every state that was reached."""

    async def grow() -> Tree:
        actor = actor_with(judge, judged())
        root = await actor.start()
        trajectories = [await follow(actor, root, index) for index in range(4)]
        nodes = [node for trajectory in trajectories for node in trajectory[1:]]
        for node in nodes if at_once else reversed(nodes):
            reply = await actor.ask("judge", node, Message((node.moment.text,)))
            actor.note(node, verdict=reply if isinstance(reply, str) else reply.text)
        return actor.tree("judged")

    return asyncio.run(grow())


def test_where_the_judge_breaks_the_leaves_below_are_errored() -> None:
    sound = tree_judged_by(RefusingJudge("nothing"))
    said = sound.steps[1].next_observation
    broken = tree_judged_by(RefusingJudge(said))
    validate_tree(broken)
    errored = 0
    for before, after in zip(sound.steps, broken.steps, strict=True):
        below = any(step.next_observation == said for step in path(sound, before))
        if before.outcome is not None and below:
            errored += 1
            assert after.outcome is Outcome.ERRORED
            assert after.error == "rollout.judge: no answer"
        else:
            assert after.outcome is before.outcome
    assert 0 < errored < 4
    assert broken.ledger.steps == sound.ledger.steps, "what was executed stays charged"
    assert broken.ledger.generated_tokens < sound.ledger.generated_tokens
    assert tree_judged_by(RefusingJudge(said), at_once=False) == broken


def test_a_judge_that_breaks_at_the_initial_state_spoils_all_leaves() -> None:
    async def grow() -> Tree:
        actor = actor_with(RefusingJudge("start"), judged())
        root = await actor.start()
        reply = await actor.ask("judge", root, Message(("start",)))
        assert reply == "rollout.judge: no answer", "the fault comes back in place of a reply"
        for index in range(2):
            await follow(actor, root, index)
        return actor.tree("judged")

    leaves = [step for step in asyncio.run(grow()).steps if step.outcome is not None]
    assert [step.outcome for step in leaves] == [Outcome.ERRORED] * 2


def test_a_judge_that_breaks_about_what_was_left_out_spoils_what_was_chosen() -> None:
    async def grow() -> Tree:
        actor = actor_with(RefusingJudge("rejected"), judged())
        first = await actor.act(await actor.start())
        rejected = await actor.act(first, 1)
        await actor.ask("judge", rejected, Message(("rejected",)))
        actor.keep_only([first, *await follow(actor, first)])
        return actor.tree("judged")

    tree = asyncio.run(grow())
    assert len(tree.steps) == 4
    assert tree.steps[-1].outcome is Outcome.ERRORED


def test_questions_have_seeds_of_their_own() -> None:
    async def ask() -> tuple[Audited, Audited]:
        judge, policy = Audited(SeededPolicy(("a", "b"))), Audited(SeededPolicy(("a", "b")))
        actor = actor_with(judge, judged(), policy)
        root = await actor.start()
        node = await actor.act(root)
        for where, index in ((root, 0), (root, 1), (node, 0)):
            await actor.ask("judge", where, Message(("well?",)), index)
        return judge, policy

    judge, policy = asyncio.run(ask())
    assert len({*judge.seeds, *policy.seeds}) == 4


def test_what_cannot_be_asked_or_noted() -> None:
    async def attempt() -> None:
        actor = actor_with(RefusingJudge(""), judged())
        root = await actor.start()
        with refusal(2, "rollout.critic", "--set rollout.critic.kind="):
            await actor.ask("critic", root, Message(("well?",)))
        with pytest.raises(ValueError, match="initial state"):
            actor.note(root, score=1.0)
        node = await actor.act(root)
        with pytest.raises(ValueError, match="score"):
            actor.note(node, score=float("nan"))
        actor.note(node, score=1, b="x")
        actor.note(node, a="y")
        (step,) = actor.tree("judged").steps
        assert list(step.notes.items()) == [("a", "y"), ("b", "x"), ("score", 1.0)]

    asyncio.run(attempt())
