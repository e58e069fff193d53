"""FrozenLake of Gymnasium behind OpenEnv's own server: `python openenv_lake.py [MOST_SESSIONS]` prints its port and serves."""

import socket
import sys
from typing import Any

import gymnasium
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State

MAP = ["SFF", "FHF", "FFG"]


class Move(Action):
    move: int


class Tile(Observation):
    tile: int


class Lake(Environment[Move, Tile, State]):
    """One session."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._lake = gymnasium.make("FrozenLake-v1", desc=MAP, is_slippery=False)
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **further: Any) -> Tile:
        tile, _ = self._lake.reset(seed=seed)
        self._steps = 0
        return Tile(tile=int(tile))

    def step(self, action: Move, timeout_s: float | None = None, **further: Any) -> Tile:
        tile, reward, terminated, truncated, _ = self._lake.step(action.move)
        self._steps += 1
        return Tile(tile=int(tile), reward=float(reward), done=terminated or truncated)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="lake", description="A frozen lake.")

    @property
    def state(self) -> State:
        return State(step_count=self._steps)


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    app = create_fastapi_app(Lake, Move, Tile, max_concurrent_envs=most)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])
