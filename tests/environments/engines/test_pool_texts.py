"""What a world says at too great a length: the call fails, and the next one is played as if nothing had been."""

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from pools import tasks_of, toy, with_pool
from refusal import refusal
from wordy_world import WORDS

SETTING = "environment.most_text_bytes"


def wordy(place: str, most_text_bytes: int = 2**20) -> EnvironmentSettings:
    return EnvironmentSettings(name="wordy_world:WordyWorld", options={"place": place}, most_text_bytes=most_text_bytes)


@pytest.mark.parametrize("place", ["text", "actions", "state", "canonical", "instruction", "plan"])
def test_a_long_text_is_the_fault_of_its_call(place: str) -> None:
    settings = wordy(place)
    task = tasks_of(toy())[0]

    async def play(pool: EnginePool) -> None:
        with refusal(4, names=task.id, remedy=f"--set {SETTING}=N") as caught:
            state = await pool.start(task)
            if place == "plan":
                await pool.plan(state)
            await pool.step(state, "look")
        assert len(str(caught.value)) < 1000
        if place != "instruction":
            assert (await pool.step(state, "go east")).observation.text.startswith("You go east.")

    with_pool(settings, play)


def test_a_long_error_is_cut() -> None:
    async def play(pool: EnginePool) -> None:
        state = await pool.start(tasks_of(toy())[0])
        with pytest.raises(EngineError, match="ValueError: and so on") as caught:
            await pool.step(state, "look")
        assert len(str(caught.value)) < 5000

    with_pool(wordy("error"), play)


def test_who_allows_it_gets_it() -> None:
    async def play(pool: EnginePool) -> str:
        state = await pool.start(tasks_of(toy())[0])
        return (await pool.step(state, "look")).observation.text

    assert with_pool(wordy("text", most_text_bytes=3 * 10**6), play) == WORDS
