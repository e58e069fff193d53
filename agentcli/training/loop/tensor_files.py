"""Writes safetensors files atomically: a killed process leaves only complete files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from agentcli.errors import WriteError
from agentcli.records.files import part_of, writing
from agentcli.records.regular import require_regular


@contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Turns errors of the block into WriteError if `path` cannot be written."""
    try:
        with writing(path):
            yield
    except SafetensorError as error:  # its name for an OSError, without errno
        raise WriteError(
            f"{path}: cannot be written ({error}); free some and go on with --resume"
        ) from error


def write_tensors(
    path: Path,
    tensors: dict[str, Tensor],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes tensors from any device to a temporary file, which then replaces `path`.

    Raises WriteError if it cannot be written; `path` is then unchanged.
    """
    temporary = part_of(path)
    with writing_tensors(path):
        require_regular(temporary)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            local = {
                name: value.detach().cpu().contiguous()
                for name, value in tensors.items()
            }
            save_file(local, temporary, metadata)
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
