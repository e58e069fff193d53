"""What a training starts from, and where it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentcli.records.training_settings import SftSettings, TrainSettings
from agentcli.training.loop.trackers import Tracked
from agentcli.training.loop.trainer import OnUpdate

AnySettings = TypeVar("AnySettings", bound=TrainSettings | SftSettings)


@dataclass(frozen=True)
class Job(Generic[AnySettings]):
    """The starting point of a training, its settings, and its output paths.

    The same job on the same data gives the same bits on one machine with the same
    number of threads, even if it is stopped and resumed. Under torchrun every process
    has the job, and the first one writes.
    """

    model: str
    """Directory or hub id that training starts from."""
    out: Path
    """Checkpoint or adapter directory to write."""
    settings: AnySettings
    seed: int
    metrics: Path
    """metrics.jsonl."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Values for the chat template (policy.chat_template_kwargs)."""
    reference: str | None = None
    """Model directory of the reference; None means what the objective says."""
    critic: str | None = None
    """Directory of the critic to continue, or of a model to make one from, if the
    objective trains a critic.
    """
    critic_out: Path | None = None
    """Directory where the critic is written."""
    optimizer_in: Path | None = None
    """A safetensors file with the moments to continue with."""
    optimizer_out: Path | None = None
    progress: OnUpdate | None = None
    ready: Callable[[], None] | None = None
    """Called when everything is read and checked, before anything is written."""
    snapshot: Path | None = None
    """Folder of the snapshot, written every settings.save_every_updates updates. If it
    contains one, the training resumes from it. The caller deletes it at the end.
    """
    resumes: bool = True
    """False: it starts anew, whatever snapshot is there."""
    tracked: Tracked | None = None
    """What trackers get besides metrics; None without trackers."""
