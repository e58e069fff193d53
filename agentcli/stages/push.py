"""push: uploads a trained model and its card to the Hugging Face hub in one commit.

The files are those of the checkpoint; the card is generated from the manifests. The
hub's address and the token are those of huggingface_hub (HF_ENDPOINT, HF_TOKEN or `hf
auth login`). The token is never printed.
"""

from dataclasses import dataclass
from pathlib import Path

from agentcli.errors import AgentCliError, DataError, MissingError, UsageError, word_of
from agentcli.policies.load import (
    ADAPTER,
    CONFIG,
    adapter_base,
    check_weights,
    first_line,
    is_adapter,
)
from agentcli.records.regular import is_there, read_regular
from agentcli.records.runs import RunDirectory
from agentcli.stages.model_card import model_card

CARD = "README.md"
REFUSED = (401, 403)
"""The hub's status codes for a token without write access."""


@dataclass(frozen=True, kw_only=True)
class PushPlan:
    """A model that is ready to upload."""

    repo: str
    folder: Path
    """The folder of its files."""
    card: str
    private: bool

    @property
    def files(self) -> list[Path]:
        """The files of the model. The new card replaces an existing one."""
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path for path in files if path.relative_to(self.folder) != Path(CARD)]

    @property
    def names(self) -> list[str]:
        """The names of the files on the hub."""
        names = [path.relative_to(self.folder).as_posix() for path in self.files]
        return [CARD, *names]

    def counts(self) -> dict[str, int]:
        """The amount to upload."""
        sizes = sum(path.stat().st_size for path in self.files)
        return {"files": len(self.names), "bytes": sizes + len(self.card.encode())}


def plan(
    run: Path,
    repo: str,
    *,
    folder: Path | None = None,
    card: Path | None = None,
    private: bool = False,
) -> PushPlan:
    """Plans to upload the model of `run`, or the one in `folder`, to `repo`.

    `card` is a file to use instead of the generated card. Raises UsageError for an
    impossible name, and for an adapter whose base exists only on this machine;
    DataError if there is no model or no training has finished.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(
            f"{repo}: is no name on the hub; write USER/NAME, for instance me/agent"
        ) from error
    folder = folder or RunDirectory(run).checkpoint
    if not folder.is_dir():
        raise DataError(
            f"{folder}: no such directory; train a model with: agentcli train {word_of(run)}"
        )
    # Everything below it is uploaded: it must be a model's.
    if not any(is_there(folder / name) for name in (CONFIG, ADAPTER)):
        raise DataError(f"{folder}: holds no {CONFIG}; name the folder of a model")
    check_weights(str(folder))
    if is_adapter(str(folder)):
        _refuse_local_base(folder, run, repo)
    text = model_card(run, repo, folder) if card is None else _read_card(card)
    return PushPlan(repo=repo, folder=folder, card=text, private=private)


def _refuse_local_base(folder: Path, run: Path, repo: str) -> None:
    base = str(adapter_base(str(folder)))
    if Path(base).is_absolute() or Path(base).exists():
        raise UsageError(
            f"{folder / ADAPTER}: base_model_name_or_path: {base} is a folder of this "
            f"machine; merge it with: agentcli export {word_of(run)} --to model && "
            f"agentcli push {word_of(run)} {repo} --folder "
            f"{word_of(run / 'export/model')}"
        )


def _read_card(card: Path) -> str:
    try:
        return read_regular(card).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{card}: cannot be read as a card ({error})") from error


def perform(plan: PushPlan, *, bars: bool = False) -> str:
    """Creates the repository if needed, commits all files and returns its address.

    `bars` shows the hub's own progress. Raises MissingError without a token with write
    access, and AgentCliError if the hub cannot be reached or refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import disable_progress_bars

    token = get_token()
    if token is None:
        raise MissingError(
            "no token for the hub; log in with `hf auth login`, or set HF_TOKEN"
        )
    if not bars:
        disable_progress_bars()
    api = HfApi(token=token)
    # In one commit, so that nobody downloads half of a model or another's card.
    operations = [CommitOperationAdd(CARD, plan.card.encode())]
    for name, path in zip(plan.names[1:], plan.files, strict=True):
        operations.append(CommitOperationAdd(name, path))
    try:
        place = api.create_repo(plan.repo, private=plan.private, exist_ok=True)
        # Not plan.repo: the hub puts the user's name before a name without one.
        api.create_commit(
            place.repo_id, operations, commit_message="Upload by agentcli push"
        )
    except (HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            raise MissingError(
                f"{plan.repo}: the hub refuses this token ({status}); log in as one "
                "who may write there: hf auth login"
            ) from error
        # The client quotes the request's headers in some of its errors.
        reason = first_line(error).replace(token, "***")
        raise AgentCliError(
            f"{plan.repo}: was not uploaded ({reason}); type the same again"
        ) from error
    return str(place)
