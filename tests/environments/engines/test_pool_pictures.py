"""Pictures that no policy could use: the step fails, and the next task is played as if nothing had been."""

import pytest
from agentcli.environments.engines.pool import EnginePool
from drawn import square
from pools import tasks_of, toy, with_pool
from refusal import refused


@pytest.mark.parametrize("fault", ["text", "jpeg", "truncated", "altered", "wide", "bomb", "large", "many"])
def test_a_bad_picture_is_the_fault_of_its_step(fault: str) -> None:
    settings = toy(pictures=True, picture_fault=fault)

    async def play(pool: EnginePool) -> None:
        state = await pool.start(tasks_of(settings)[0])
        await pool.step(state, "go east")

    refused(lambda: with_pool(settings, play), code=4, names=("train/0", "step 1", "picture"))


def test_the_others_come_through_a_pipe_unchanged() -> None:
    settings = toy(pictures=True)

    async def play(pool: EnginePool) -> list[bytes]:
        state = await pool.start(tasks_of(settings)[0])
        after = await pool.step(state, "go east")
        return [picture.png for moment in (state, after) for picture in moment.observation.pictures]

    assert with_pool(settings, play) == [square(0), square(1)]
