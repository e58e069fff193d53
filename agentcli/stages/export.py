"""export: the contents of a run, in files that other tools read.

parquet has one row per step (records/step_rows.py). messages and preferences are JSON
Lines (records/chats.py), one response per row, with the prompt that the policy got.
conversations has one trajectory per row, with its reward, its group, and the reward
and credit of every step.
model is the checkpoint as a plain model, with an adapter merged into its base. card is
the model card that `push` uploads with it.

Trees are streamed, and a file appears under its name only when it is complete.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from os.path import relpath
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec

from agentcli.errors import DataError, UsageError, word_of
from agentcli.evaluation.episodes import score_of
from agentcli.prompts.protocol import Message
from agentcli.prompts.recorded import message_of, turns_before, whole_text
from agentcli.records.chats import (
    ChatTurn,
    Conversation,
    Images,
    Preference,
    PromptCompletion,
    Tools,
    answered,
    asked,
)
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed, replacing, rewriting, write_atomic
from agentcli.records.pictures import PictureCheck, folder_beside, picture_file
from agentcli.records.runs import RunDirectory
from agentcli.records.step_rows import StepRow, advantages, step_rows
from agentcli.records.trees import paths, read_with_credit
from agentcli.records.types import Credit, Outcome, Step, Tree
from agentcli.registry import nearest
from agentcli.reports.show.trees import trees_file
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.push import model_card
from agentcli.stages.trees import checked_trees, count_trees, note_lost_trees
from agentcli.training.demonstrations import left_out
from agentcli.training.steps import PairCounts, read_pairs

ROWS_PER_GROUP = 1000
"""Rows of a Parquet file that are kept in memory."""


@dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """One file that is ready to be written."""

    run: Path
    form: str
    out: Path
    evaluation: str | None = None
    """Label of the evaluation whose trees are used; None: the run's own trees."""
    credit: str | None = None
    """Credit method whose advantages are written; None: the only one there is."""
    everything: bool = False
    """Whether messages include failed trajectories."""
    pairs: int = 8
    """Most pairs of trajectories that preferences take from one tree."""
    dtype: str = "float32"
    """Data type of a model's weights."""

    @property
    def streams(self) -> bool:
        """Whether it reads trees one at a time."""
        return self.form not in ("model", "card")

    @property
    def trees(self) -> Path:
        """The trees to read. Raises DataError."""
        return trees_file(self.run, self.evaluation)

    @property
    def credit_file(self) -> Path | None:
        """The credit to read; None without credit.

        Raises DataError, and UsageError if there is more than one and none is named.
        """
        if self.evaluation is not None:
            return None
        run = RunDirectory(self.run)
        if self.credit is None and not run.credit_files:
            return None
        return run.existing_credit(self.credit)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the model that the run trained. Raises DataError."""
        checkpoint = RunDirectory(self.run).checkpoint
        if not checkpoint.is_dir():
            raise DataError(
                f"{checkpoint}: no such directory; train a model with: agentcli train "
                f"{word_of(self.run)}"
            )
        return checkpoint

    @property
    def choices(self) -> dict[str, Any]:
        """The form and the options that it uses, for --dry-run."""
        names = FORMS[self.form].options
        return {"to": self.form, **{name: getattr(self, name) for name in names}}

    def inputs(self) -> dict[str, Path | None]:
        """What is read, by name. Raises DataError if it does not exist."""
        if self.form == "model":
            return {"model": self.checkpoint}
        if self.form == "card":
            return {"manifest": RunDirectory(self.run).manifest_path}
        if "credit" in FORMS[self.form].options:
            return {"trees": self.trees, "credit": self.credit_file}
        return {"trees": self.trees}

    def counts(self) -> dict[str, int]:
        """The number of trees. Raises DataError for damaged ones."""
        return {"trees": count_trees(self.trees)} if self.streams else {}


class ExportForm(msgspec.Struct, frozen=True, kw_only=True):
    """One form of export."""

    file: str
    """The name of its file in RUN/export."""
    options: tuple[str, ...]
    """The fields of the plan that it uses."""
    write: Callable[[ExportPlan, Progress], dict[str, int]]
    """Writes the file and returns the counts."""


def plan(run: Path, form: str | None, out: Path | None, **options: Any) -> ExportPlan:
    """Plans an export of `run`; `options` are fields of the plan, None if not typed.

    Raises UsageError for an unknown form, and for an option that the form does not use;
    DataError if there is nothing to read.
    """
    if form is None:
        raise UsageError(f"name a form with --to: {', '.join(FORMS)}")
    if form not in FORMS:
        raise UsageError(f"--to {form}: no such form; {nearest(form, FORMS)}")
    chosen = {}
    for name, value in options.items():
        if value is None or value is False:
            continue
        chosen[name] = value
        if name not in FORMS[form].options:
            option = "all" if name == "everything" else name
            raise UsageError(f"--{option} has no effect with --to {form}; leave it out")
    if {"evaluation", "credit"} <= chosen.keys():
        raise UsageError("--credit has no effect here; evaluations have no credit")
    out = out or run / "export" / FORMS[form].file
    if form == "model" and out.is_dir() and not (out / "config.json").is_file():
        # The whole folder would be replaced.
        raise UsageError(f"{out} is a folder that holds no model; name a new one")
    if form != "model" and out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it with -o FILE")
    _refuse_other_ending(out, form)
    export_plan = ExportPlan(run=run, form=form, out=out, **chosen)
    for source in export_plan.inputs().values():
        if source is not None and out.exists() and out.samefile(source):
            raise UsageError(f"{out} is what is read; name another file with -o FILE")
    return export_plan


def _refuse_other_ending(out: Path, form: str) -> None:
    """Raises UsageError for a name that says another kind of file. Folders have any."""
    ending = Path(FORMS[form].file).suffix
    others = {Path(one.file).suffix for one in FORMS.values()} - {ending}
    wrong = out.suffix not in ("", ending) if ending else out.suffix in others
    if wrong:
        raise UsageError(f"{out}: --to {form} writes {ending or 'a folder'}; rename it")


def perform(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    """Writes the file and returns the counts.

    Raises DataError for damaged inputs, and if the file would be empty.
    """
    if plan.streams:
        progress.start(Standing(f"export {plan.form}", None))
    counts = FORMS[plan.form].write(plan, progress)
    progress.stop()
    if plan.streams and plan.evaluation is None:
        note_lost_trees(plan.trees, counts["trees"], progress)
    credit = plan.inputs().get("credit")
    fault = credit and RunDirectory(plan.run).other_trees(credit)
    if fault:
        progress.note(f"warning: {credit}: {fault}")
    return counts


def _table(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = pyarrow.schema(_columns())
    counts = Counter({"trees": 0, "rows": 0})
    rows: list[dict[str, Any]] = []
    with replacing(plan.out) as file, ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        for line, tree, credit in _trees_with_credit(plan):
            steps = step_rows(line, tree, credit)
            rows += [msgspec.structs.asdict(row) for row in steps]
            counts.update(trees=1, rows=len(steps))
            progress.advance()
            # Parquet is written in groups, so only one of them has to be in memory.
            if len(rows) >= ROWS_PER_GROUP:
                flush()
        flush()
    return dict(counts)


def _columns() -> list[tuple[str, Any]]:
    """The columns of StepRow and their Arrow types."""
    import pyarrow

    arrow = {
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
        list: pyarrow.list_(pyarrow.string()),
    }
    columns = []
    for field in msgspec.structs.fields(StepRow):
        kind = get_origin(field.type) or field.type
        # A column that may be empty is annotated as `T | None`, with T first.
        if kind is UnionType:
            kind = get_args(field.type)[0]
        columns.append((field.name, arrow[kind]))
    return columns


def _trees_with_credit(plan: ExportPlan) -> Iterator[tuple[int, Tree, Credit | None]]:
    trees = plan.trees
    credit = plan.credit_file
    if credit is None:
        for line, tree in checked_trees(trees):
            yield line, tree, None
        return
    for (line, tree), (_, tree_credit) in read_with_credit(trees, credit):
        yield line, tree, tree_credit


def _messages(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    counts = Counter({"trees": 0, "rows": 0})
    pictures = PictureCheck(folder_beside(plan.trees))
    with rewriting(plan.out) as writer:
        for line, tree in checked_trees(plan.trees):
            counts["trees"] += 1
            solving = _solving_steps(tree)
            for step in tree.steps:
                reason = left_out(step)
                if not plan.everything and step.id not in solving:
                    reason = "unsuccessful"
                if reason is not None:
                    counts[reason] += 1
                    continue
                counts["rows"] += 1
                row = PromptCompletion(
                    prompt=_asked(tree, step),
                    completion=answered(step.response),
                    tools=_tools(tree, step),
                    images=_images(plan, step, pictures),
                    task=tree.task.id,
                    tree=line,
                    step=step.id,
                )
                writer.write(row)
            progress.advance()
        if not counts["rows"]:
            raise DataError(
                f"{plan.trees}: no step of a successful trajectory is fit for "
                "imitation; take the others too with --all"
            )
    return dict(counts)


def _conversations(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    counts = Counter({"trees": 0, "rows": 0})
    groups: set[str] = set()
    with rewriting(plan.out) as writer:
        for _, tree, credit in _trees_with_credit(plan):
            assigned = None if credit is None else advantages(credit)
            group = _new_group(tree.task.id, groups)
            for steps in paths(tree):
                row = _conversation(tree, steps, assigned)
                if group != tree.task.id:
                    row.group, row.task = group, tree.task.id
                writer.write(row)
                counts["rows"] += 1
            counts["trees"] += 1
            progress.advance()
    return dict(counts)


def _new_group(task: str, groups: set[str]) -> str:
    """A name for a tree's trajectories that no earlier tree has, added to `groups`."""
    names = chain([task], (f"{task} #{number}" for number in count(2)))
    group = next(name for name in names if name not in groups)
    groups.add(group)
    return group


def _conversation(
    tree: Tree, steps: list[Step], assigned: dict[int, float | None] | None
) -> Conversation:
    """A trajectory: the instruction, then what was observed and answered in turn.

    A conversation that grew has its own system message in the place of the instruction.
    Raises DataError for steps in several copies of the environment.
    """
    if any(step.moves for step in steps):
        raise DataError(
            f"task {shown(tree.task.id)}: its steps act in several copies of the "
            "environment, which no conversation can say; take --to messages"
        )
    turns = []
    opening = steps[0].system or ""
    # Some worlds repeat the instruction in their first observation.
    if not opening and tree.instruction not in steps[0].observation:
        opening = tree.instruction
    if opening:
        turns.append(ChatTurn(role="system", content=opening))
    for step in steps:
        turns += asked(step.observation, role=step.role or "user")
        turns += answered(step.response)
    last = steps[-1]
    errored = last.outcome is Outcome.ERRORED
    if last.next_observation:
        turns += asked(last.next_observation)
    states = [*(step.state for step in steps), last.next_state]
    canonical = [*(step.canonical for step in steps), last.next_canonical]
    by_step: list[float | None] | msgspec.UnsetType = msgspec.UNSET
    if assigned is not None:
        by_step = [assigned.get(step.id) for step in steps]
    return Conversation(
        messages=turns,
        tools=_tools(tree, steps[0]),
        reward=score_of(steps),
        success=last.outcome is Outcome.SUCCESS,
        truncated=last.outcome is Outcome.TRUNCATED,
        error=last.error or ("errored" if errored else None),
        group=tree.task.id,
        instruction=tree.instruction,
        kind=tree.task.kind,
        steps=[step.id for step in steps],
        rewards=[step.reward for step in steps],
        advantages=by_step,
        states=states if all(states) else msgspec.UNSET,
        canonical=canonical if any(canonical) else msgspec.UNSET,
        actions=[step.action for step in steps],
        validity=[step.validity for step in steps],
        tags=[step.tag for step in steps],
        looked=[step.looked for step in steps],
    )


def _asked(tree: Tree, step: Step) -> list[ChatTurn]:
    """What the policy was asked in a step, with what was said before it."""
    chats: list[ChatTurn] = []
    opening = _opening(tree, step)
    if opening.system:
        chats.append(ChatTurn(role="system", content=opening.system))
    for turn in turns_before(tree, step):
        chats += asked(turn.message.text, role=turn.message.role)
        chats += answered(turn.response)
    role = step.role or "user"
    return [*chats, *asked(step.prompt, len(step.pictures or ()), role)]


def _tools(tree: Tree, step: Step) -> Tools:
    """The schemas of the tools that the conversation of a step began with."""
    schemas = _opening(tree, step).tools
    return msgspec.json.decode(schemas) if schemas else msgspec.UNSET


def _opening(tree: Tree, step: Step) -> Message:
    """The message that the conversation of a step began with."""
    while step.continues and step.parent is not None:
        step = tree.steps[step.parent]
    return message_of(step)


def _images(plan: ExportPlan, step: Step, pictures: PictureCheck) -> Images:
    """The files of the pictures that the policy saw, relative to the export folder.

    Raises DataError for a damaged one.
    """
    if not step.pictures:
        return msgspec.UNSET
    pictures.refuse_damaged(step.pictures)
    folder = Path(relpath(pictures.folder, plan.out.parent))
    return [str(picture_file(folder, name)) for name in step.pictures]


def _solving_steps(tree: Tree) -> set[int]:
    """The steps on successful trajectories."""
    solving: set[int] = set()
    # A parent comes before its children.
    for step in reversed(tree.steps):
        if step.outcome is Outcome.SUCCESS or step.id in solving:
            solving.add(step.id)
            if step.parent is not None:
                solving.add(step.parent)
    return solving


def _preferences(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    counts = Counter({"rows": 0, "alike": 0, "unfit": 0})
    pair_counts = PairCounts()
    pictures = PictureCheck(folder_beside(plan.trees))
    written: set[int] = set()
    with rewriting(plan.out) as writer:
        pairs = read_pairs(plan.trees, plan.pairs, 0, pair_counts, sampled=False)
        for pair in pairs:
            chosen, rejected = pair.chosen[0], pair.rejected[0]
            names = chosen.pictures or ()
            asked_text = whole_text(pair.tree, chosen)
            texts = (asked_text, *names, chosen.response, rejected.response)
            progress.advance()
            # A row has one prompt, so both must have been asked for in the same way.
            if chosen.request != rejected.request or left_out(chosen) is not None:
                counts["unfit"] += 1
            elif chosen.response == rejected.response or derive_seed(*texts) in written:
                counts["alike"] += 1
            else:
                counts["rows"] += 1
                # A number in place of the texts, which together may be larger than the
                # memory.
                written.add(derive_seed(*texts))
                row = Preference(
                    prompt=_asked(pair.tree, chosen),
                    tools=_tools(pair.tree, chosen),
                    chosen=answered(chosen.response),
                    rejected=answered(rejected.response),
                    images=_images(plan, chosen, pictures),
                    task=pair.task,
                    tree=pair.line,
                    chosen_step=chosen.id,
                    rejected_step=rejected.id,
                )
                writer.write(row)
        if not counts["rows"]:
            raise DataError(
                f"{plan.trees}: no preference: no tree has both a success and a "
                "failure; roll out more tasks, or more leaves with --leaves"
            )
    return {"trees": pair_counts.trees, **counts}


def _model(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    from agentcli.policies.load import load_model, load_tokenizer
    from agentcli.policies.sight import beside_weights, load_sight
    from agentcli.training.loop.checkpoints import save_checkpoint

    source = str(plan.checkpoint)
    tokenizer = load_tokenizer(source)
    model = load_model(source, device="cpu", dtype=plan.dtype)
    merges = hasattr(model, "merge_and_unload")
    if merges:
        model = model.merge_and_unload()
    save_checkpoint(model, beside_weights(tokenizer, load_sight(source)), plan.out)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "merged_adapters": int(merges)}


def _card(plan: ExportPlan, progress: Progress) -> dict[str, int]:
    card = model_card(plan.run).encode()
    write_atomic(plan.out, card)
    return {"bytes": len(card)}


FORMS = {
    "parquet": ExportForm(
        file="steps.parquet", options=("evaluation", "credit"), write=_table
    ),
    "messages": ExportForm(
        file="messages.jsonl", options=("evaluation", "everything"), write=_messages
    ),
    "conversations": ExportForm(
        file="conversations.jsonl",
        options=("evaluation", "credit"),
        write=_conversations,
    ),
    "preferences": ExportForm(
        file="preferences.jsonl", options=("evaluation", "pairs"), write=_preferences
    ),
    "model": ExportForm(file="model", options=("dtype",), write=_model),
    "card": ExportForm(file="README.md", options=(), write=_card),
}
"""All export forms."""
