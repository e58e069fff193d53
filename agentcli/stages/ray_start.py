"""Starts Ray or joins a cluster, with token authentication switched on.

Without it, anyone who can reach Ray can run code. A Ray on this machine gets a secret
token that is valid until the command ends.
"""

import logging
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcli.errors import MissingError, UsageError
from agentcli.records.scratch import ScratchFolder
from agentcli.records.settings import ClusterSettings

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_FILE = "RAY_AUTH_TOKEN_PATH"
HOME_TOKEN = Path("~/.ray/auth_token")
STORE_BYTES = 256_000_000
"""Memory for trees in transit; Ray would reserve a third of the machine's."""


def check_cluster(cluster: ClusterSettings) -> None:
    """Refuses a cluster setting with which no tree could grow, before anything starts.

    Raises UsageError if it is misspelt or points to a cluster without token
    authentication, MissingError without Ray or without a token for a running cluster.
    """
    if cluster.is_local:
        return
    from importlib.util import find_spec

    host, _, port = cluster.on.removeprefix("ray://").rpartition(":")
    is_address = cluster.on.startswith("ray://") and host and port.isdecimal()
    if cluster.on != "ray" and not is_address:
        raise UsageError(
            f"cluster.on: {cluster.on!r} is no place; use local, ray or ray://HOST:PORT"
        )
    if os.environ.get(MODE, "token") != "token":
        raise UsageError(
            f"{MODE}={os.environ[MODE]}: without a token whoever reaches the cluster "
            f"can run code there; type: unset {MODE}"
        )
    if is_address and not _has_token():
        raise MissingError(
            f"cluster.on {cluster.on}: no token; name the file of the cluster's with "
            f"{TOKEN_FILE}=FILE"
        )
    if find_spec("ray") is None:
        raise MissingError("ray is not installed; type: pip install 'agentcli[ray]'")


def _has_token() -> bool:
    if os.environ.get(TOKEN):
        return True
    return Path(os.environ.get(TOKEN_FILE, HOME_TOKEN)).expanduser().is_file()


@contextmanager
def connected(cluster: ClusterSettings) -> Iterator[Any]:
    """The module `ray`, connected for the block only."""
    check_cluster(cluster)
    # Names of its sockets are limited to 107 bytes, so the folder needs a short path.
    with ScratchFolder(Path("/tmp")) as folder:
        variables = {MODE: "token"}
        if cluster.on == "ray":
            token = Path(folder) / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            variables[TOKEN_FILE] = str(token)
        # Ray reads them when it is imported.
        with _environment(variables):
            import ray

            try:
                if cluster.on == "ray":
                    _start(ray, cluster.workers, folder)
                else:
                    _join(ray, cluster.on)
                yield ray
            finally:
                ray.shutdown()


def _start(ray: Any, workers: int, folder: str) -> None:
    """Starts Ray on this machine. Raises MissingError if it does not start."""
    try:
        ray.init(
            address="local",
            num_cpus=workers,
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    # On a machine that is too busy, Ray raises a bare Exception.
    except Exception as error:
        raise MissingError(
            f"cluster.on ray: Ray does not start here ({' '.join(str(error).split())}); "
            "try again when less is running, or use --on local"
        ) from error


def _join(ray: Any, address: str) -> None:
    """Joins a running cluster. Raises MissingError if it does not answer."""
    # Everything that Ray logs meanwhile is in the error too.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise MissingError(
            f"cluster.on {address}: no cluster could be joined ({reason}); look at the "
            "address and at the token, or start its head with: ray start --head"
        ) from error
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
