"""export: each form holds what the run holds, and the tools it is made for take it as it is."""

import json
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest
import torch
from agentcli import assign, read_trees, to_frame
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.files import RecordWriter, read_records
from agentcli.records.step_rows import advantages
from agentcli.records.training_settings import LoraSettings, TinySettings
from agentcli.records.trees import paths
from agentcli.records.types import Outcome, Step, Tree, Validity
from agentcli.reports.standing import Progress
from agentcli.stages.export import perform, plan
from agentcli.training.loop.checkpoints import load_trainable, save_checkpoint
from command_line import agentcli
from credit_trees import move
from datasets import load_dataset
from drawn import square
from grown_runs import roll, toy
from refusal import refused
from staged import assign_credit
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

SMALL = TinySettings(hidden=16, layers=1, heads=2, kv_heads=1, intermediate=24)


def export(run: Path, form: str, **options: object) -> Path:
    export_plan = plan(run, form, None, **options)
    perform(export_plan, Progress())
    return export_plan.out


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def rewrite(run: Path, trees: list[Tree]) -> None:
    with RecordWriter(run / "trees.jsonl") as writer:
        for tree in trees:
            writer.write(tree)


def model_for(run: Path, folder: Path) -> Path:
    """A small model that knows the words of the trees."""
    texts = [text for tree in read_trees(run) for step in tree.steps for text in (step.prompt, step.response)]
    tokenizer = make_tokenizer(texts, [])
    save_checkpoint(make_model(SMALL, tokenizer, 0), tokenizer, folder)
    return folder


@pytest.mark.parametrize("credit", [None, "grpo"])
def test_a_table_is_the_frame_of_the_trees(run: Path, credit: str | None) -> None:
    trees = read_trees(run)
    frame = to_frame(trees if credit is None else assign(trees, credit))
    if credit is not None:
        assign_credit(msgspec.structs.replace(toy("spark"), credit={"method": credit}), run)
    table = pyarrow.parquet.read_table(export(run, "parquet"))
    assert table.column_names == list(frame.columns)
    assert len(table) == len(frame)
    assert table.column("advantage").to_pylist() == [None if value != value else value for value in frame.advantage]
    for name in ("tree", "trajectory", "step", "prompt", "action", "outcome", "reward"):
        assert table.column(name).to_pylist() == frame[name].astype(object).where(frame[name].notna(), None).to_list()
    loaded = load_dataset("parquet", data_files=str(run / "export/steps.parquet"), split="train")
    assert len(loaded) == len(frame)


def test_conversations_carry_the_reward_and_the_credit_of_every_step(run: Path) -> None:
    trees = list(read_trees(run))
    assert all("advantages" not in row for row in lines(export(run, "conversations")))
    (run / "export/conversations.jsonl").unlink()
    assign_credit(msgspec.structs.replace(toy("spark"), credit={"method": "grpo"}), run)
    rows = lines(export(run, "conversations", credit="grpo"))
    ways = [(credited, way) for credited in assign(trees, "grpo") for way in paths(credited.tree)]
    assert len(rows) == len(ways)
    for row, (credited, way) in zip(rows, ways, strict=True):
        by_step = advantages(credited.credit)
        assert row["advantages"] == [by_step[step.id] for step in way]
        assert row["rewards"] == [step.reward for step in way]
    assert any(one for row in rows for one in row["advantages"])


def test_a_table_says_where_a_prompt_continues_a_conversation(run: Path) -> None:
    tree = next(iter(read_trees(run)))
    for step in tree.steps:
        step.continues = msgspec.UNSET if step.parent is None else "sampled"
    rewrite(run, [tree])
    table = pyarrow.parquet.read_table(export(run, "parquet"))
    assert table.column("continues").to_pylist() == [None if step.parent is None else "sampled" for step in tree.steps]


def test_a_table_has_the_count_of_a_server_that_names_no_token_ids(run: Path) -> None:
    tree = next(iter(read_trees(run)))
    for step in tree.steps:
        step.token_ids, step.logprobs, step.generated_tokens = [], [], step.id + 3
    rewrite(run, [tree])
    table = pyarrow.parquet.read_table(export(run, "parquet"))
    assert table.column("tokens").to_pylist() == [step.id + 3 for step in tree.steps]


SCHEMAS = '[{"type":"function","function":{"name":"peek","description":"Looks."}}]'


def test_a_conversation_with_tools_is_exported_with_its_schemas_and_roles(run: Path) -> None:
    tree = next(iter(read_trees(run)))
    for step in tree.steps:
        begins = step.parent is None
        step.continues = msgspec.UNSET if begins else "sampled"
        step.role = msgspec.UNSET if begins else "tool"
        step.system, step.tools = ("Be brief.", SCHEMAS) if begins else (msgspec.UNSET, msgspec.UNSET)
    rewrite(run, [tree])
    table = pyarrow.parquet.read_table(export(run, "parquet")).to_pylist()
    assert [(row["role"], row["system"], row["tools"]) for row in table] == [
        ("user", "Be brief.", SCHEMAS) if step.parent is None else ("tool", None, None) for step in tree.steps
    ]
    rows = lines(export(run, "messages", everything=True))
    assert all(row["tools"] == json.loads(SCHEMAS) for row in rows)
    depths = {row["step"]: [turn["role"] for turn in row["prompt"]] for row in rows}
    assert all(roles == ["system", "user", *["assistant", "tool"] * (len(roles) // 2 - 1)] for roles in depths.values())
    assert max(map(len, depths.values())) > 2
    for row in lines(export(run, "conversations")):
        roles = [turn["role"] for turn in row["messages"]]
        assert roles[:3] == ["system", "user", "assistant"]
        assert set(roles[3:-1:2]) <= {"tool"}
        assert row["messages"][0]["content"] == "Be brief."
        assert row["tools"] == json.loads(SCHEMAS)


def test_messages_are_the_steps_that_led_to_success(run: Path) -> None:
    trees = list(read_trees(run))
    trees[0].steps[0].mask = "noise"
    for step in trees[1].steps:
        step.validity = Validity.MALFORMED
    rewrite(run, trees)
    rows = lines(export(run, "messages"))
    solving = {
        (line, step.id)
        for line, tree in enumerate(trees, 1)
        for step in tree.steps
        if step.mask is None and step.validity is Validity.VALID and outcomes_below(tree, step) & {Outcome.SUCCESS}
    }
    assert {(row["tree"], row["step"]) for row in rows} == solving
    for row in rows:
        step = trees[row["tree"] - 1].steps[row["step"]]
        assert row["prompt"] == [{"role": "user", "content": step.prompt}]
        assert row["completion"] == [{"role": "assistant", "content": step.response}]
    (run / "export/messages.jsonl").unlink()
    everything = lines(export(run, "messages", everything=True))
    assert len(everything) > len(rows)


def outcomes_below(tree: Tree, step: Step) -> set[Outcome | None]:
    """How the trajectories through a step ended."""
    below = {step.id}
    for other in tree.steps:
        if other.parent in below:
            below.add(other.id)
    return {tree.steps[number].outcome for number in below} - {None}


def test_preferences_are_two_answers_to_one_prompt_and_the_chosen_one_led_to_success(run: Path) -> None:
    trees = list(read_trees(run))
    rows = lines(export(run, "preferences"))
    assert rows
    for row in rows:
        tree = trees[row["tree"] - 1]
        chosen, rejected = tree.steps[row["chosen_step"]], tree.steps[row["rejected_step"]]
        assert row["prompt"] == [{"role": "user", "content": chosen.prompt}]
        assert chosen.prompt == rejected.prompt
        assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (chosen.response, rejected.response)
        assert chosen.response != rejected.response
        assert Outcome.SUCCESS in outcomes_below(tree, chosen)
    texts = [(str(row["prompt"]), str(row["chosen"]), str(row["rejected"])) for row in rows]
    assert len(set(texts)) == len(texts)
    (run / "export/preferences.jsonl").unlink()
    assert len(lines(export(run, "preferences", pairs=1))) <= len(rows)


def test_the_same_answers_in_two_conversations_are_two_preferences(run: Path) -> None:
    tree = next(iter(read_trees(run)))
    ends = {2: Outcome.SUCCESS, 3: Outcome.FAILURE, 4: Outcome.SUCCESS, 5: Outcome.FAILURE}
    steps = []
    for number, (parent, response) in enumerate(
        [(None, "left"), (None, "right"), (0, "yes"), (0, "no"), (1, "yes"), (1, "no")]
    ):
        step = msgspec.structs.replace(tree.steps[0], id=number, parent=parent, prompt="And now?", response=response)
        step = msgspec.structs.replace(
            step, token_ids=[], logprobs=[], outcome=ends.get(number), validity=Validity.VALID
        )
        step.continues = msgspec.UNSET if parent is None else "exact"
        steps.append(step)
    rewrite(run, [msgspec.structs.replace(tree, steps=steps, roots=None)])
    rows = lines(export(run, "preferences"))
    fork = [[turn["content"] for turn in row["prompt"]] for row in rows if row["chosen"][0]["content"] == "yes"]
    assert sorted(fork) == [["And now?", "left", "And now?"], ["And now?", "right", "And now?"]]


@pytest.mark.slow
def test_trl_trains_on_the_files_as_they_are(run: Path, tmp_path: Path) -> None:
    model = str(model_for(run, tmp_path / "small"))
    shared = {
        "output_dir": str(tmp_path / "out"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    for form, trainer, config in (
        ("messages", SFTTrainer, SFTConfig),
        ("preferences", DPOTrainer, DPOConfig),
    ):
        rows = load_dataset("json", data_files=str(export(run, form)), split="train")
        result = trainer(model=model, args=config(**shared), train_dataset=rows).train()
        assert result.global_step == 1
        assert result.training_loss > 0


def test_validate_knows_the_exported_chats(run: Path) -> None:
    for form in ("messages", "preferences"):
        file = export(run, form)
        assert agentcli("validate", str(file)).code == 0
    checked = agentcli("validate", str(run), "--json").stdout
    assert {"prompt-completion", "preference"} <= {json.loads(line)["kind"] for line in checked.splitlines()}


def test_an_adapter_is_merged_into_a_model_with_the_same_logits(run: Path, tmp_path: Path) -> None:
    base = model_for(run, tmp_path / "base")
    tokenizer = load_tokenizer(str(base))
    adapted = load_trainable(str(base), LoraSettings(rank=4))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    save_checkpoint(adapted, tokenizer, run / "checkpoint")
    assert not (run / "checkpoint/README.md").exists()
    out = export(run, "model")
    ids = torch.arange(2, 12)[None]
    with torch.no_grad():
        wanted = load_model(str(run / "checkpoint"), device="cpu")(ids).logits
        merged = load_model(str(out), device="cpu")(ids).logits
        plain = load_model(str(base), device="cpu")(ids).logits
    assert torch.allclose(merged, wanted, atol=1e-5)
    assert not torch.allclose(plain, wanted, atol=1e-2)
    assert load_tokenizer(str(out)).get_vocab() == tokenizer.get_vocab()
    assert not (out / "adapter_config.json").exists()


def test_a_model_is_written_in_the_type_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    model_for(run, run / "checkpoint")
    out = export(run, "model", dtype="bfloat16")
    assert json.loads((out / "config.json").read_text(encoding="utf-8"))["dtype"] == "bfloat16"


def test_a_damaged_line_leaves_no_file_behind(run: Path) -> None:
    with open(run / "trees.jsonl", "a", encoding="utf-8") as file:
        file.write("{}\n")
    for form in ("parquet", "messages", "preferences"):
        refused(lambda form=form: export(run, form), 3, names="trees.jsonl:9")
    assert list((run / "export").iterdir()) == []


def test_trees_without_a_success_are_no_messages_and_no_preferences(run: Path) -> None:
    trees = list(read_records(run / "trees.jsonl", Tree))
    for tree in trees:
        for step in tree.steps:
            step.outcome = step.outcome and Outcome.FAILURE
    rewrite(run, trees)
    refused(lambda: export(run, "messages"), 3, names="trees.jsonl", remedy="--all")
    refused(lambda: export(run, "preferences"), 3, names="trees.jsonl", remedy="--leaves")


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        ((), 2, "--to", "parquet"),
        (("--to", "mesages"), 2, "mesages", "messages"),
        (("--to", "messages", "--pairs", "2"), 2, "--pairs", "leave it out"),
        (("--to", "parquet", "--all"), 2, "--all", "leave it out"),
        (("--to", "preferences", "--pairs", "0"), 2, "--pairs 0", "1"),
        (("--to", "parquet", "--evaluation", "L0", "--credit", "grpo"), 2, "--credit", ""),
        (("--to", "parquet", "--evaluation", "L0"), 3, "L0.jsonl", "evaluation.trees"),
        (("--to", "parquet", "--credit", "grpo"), 3, "grpo.jsonl", "assign-credit"),
        (("--to", "model"), 3, "checkpoint", "agentcli train"),
        (("--to", "card"), 3, "manifest.json", "agentcli train"),
        (("--to", "model", "-o", "."), 2, ".", "new one"),
        (("--to", "messages", "-o", ".", "--overwrite"), 2, "is a folder", "-o FILE"),
        (("--to", "messages", "-o", "other.jsonl"), 2, "other.jsonl", "--overwrite"),
        (("--to", "messages", "-o", "trees.jsonl", "--overwrite"), 2, "trees.jsonl", "-o"),
        (("--to", "messages", "-o", "steps.parquet"), 2, "steps.parquet", ".jsonl"),
        (("--to", "parquet", "-o", "steps.jsonl"), 2, "steps.jsonl", ".parquet"),
        (("--to", "parquet", "-o", "steps.csv"), 2, "steps.csv", ".parquet"),
        (("--to", "model", "-o", "model.md"), 2, "model.md", "a folder"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    words: tuple[str, ...], code: int, names: str, remedy: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    Path("other.jsonl").touch()
    before = (run / "trees.jsonl").read_bytes()
    refused(agentcli("export", ".", *words), code, names=names, remedy=remedy)
    assert (run / "trees.jsonl").read_bytes() == before


def test_steps_in_several_copies_are_no_conversation(run: Path) -> None:
    trees = list(read_trees(run))
    trees[0].steps[0].moves = [move(1, "go")]
    trees[0].steps[0].action = None
    rewrite(run, trees)
    refused(lambda: export(run, "conversations"), 3, names="several copies", remedy="--to messages")
    assert not (run / "export/conversations.jsonl").exists()


@pytest.mark.parametrize("form", ["parquet", "conversations"])
def test_of_several_credit_files_one_has_to_be_named(form: str, run: Path) -> None:
    for method in ("grpo", "rloo"):
        assign_credit(msgspec.structs.replace(toy("spark"), credit={"method": method}), run)
    refused(agentcli("export", str(run), "--to", form), 2, names="grpo, rloo", remedy="--credit NAME")
    assert agentcli("export", str(run), "--to", form, "--credit", "rloo").code == 0


def test_the_command_names_the_file_and_counts(run: Path) -> None:
    answer = agentcli("export", str(run), "--to", "parquet", "--json")
    written = json.loads(answer.stdout)
    assert written["out"] == str(run / "export/steps.parquet")
    assert written["counts"] == {"trees": 8, "rows": len(to_frame(read_trees(run)))}
    assert Path(written["out"]).is_file()


@pytest.mark.parametrize("place", ["export/messages.jsonl", "elsewhere.jsonl"])
def test_chats_name_the_files_of_their_pictures(tmp_path: Path, place: str) -> None:
    settings = toy(tasks=3, options={"pictures": True}, kind="expert")
    roll(settings, tmp_path)
    out = tmp_path / place
    export_plan = plan(tmp_path, "messages", out)
    perform(export_plan, Progress())
    (tree, *_) = read_trees(tmp_path)
    row = lines(out)[0]
    (text, picture) = row["prompt"][0]["content"]
    assert (text, picture) == ({"type": "text", "text": tree.steps[0].prompt}, {"type": "image"})
    (image,) = row["images"]
    assert (out.parent / image).read_bytes() == square(0)
    assert len(row["images"]) == 1


@pytest.mark.parametrize("lost", [True, False])
def test_chats_with_a_broken_picture_are_refused(tmp_path: Path, lost: bool) -> None:
    roll(toy(tasks=1, options={"pictures": True}), tmp_path)
    (tree, *_) = read_trees(tmp_path)
    (name,) = tree.steps[0].pictures
    picture = tmp_path / "pictures" / f"{name}.png"
    picture.unlink() if lost else picture.write_bytes(b"x")
    refused(lambda: export(tmp_path, "messages", everything=True), 3, f"{name}.png")


def test_prompts_that_differ_in_pictures_alone_are_no_pair(tmp_path: Path) -> None:
    roll(toy(tasks=1, options={"pictures": True}), tmp_path)
    (tree,) = read_trees(tmp_path)
    step = msgspec.structs.replace(tree.steps[0], outcome=Outcome.SUCCESS, response="one")
    seen = {"prompt": step.prompt, "response": "other", "outcome": Outcome.FAILURE, "id": 1}
    for pictures, pairs in ((step.pictures, 1), (("0" * 64,), 0)):
        other = msgspec.structs.replace(step, pictures=pictures, **seen)
        rewrite(tmp_path, [msgspec.structs.replace(tree, steps=[step, other])])
        export_plan = plan(tmp_path, "preferences", None)
        if pairs:
            assert perform(export_plan, Progress())["rows"] == pairs
        else:
            refused(lambda made=export_plan: perform(made, Progress()), code=3, names="trees.jsonl")


def test_a_table_names_pictures(tmp_path: Path) -> None:
    roll(toy(tasks=1, options={"pictures": True}), tmp_path)
    (tree,) = read_trees(tmp_path)
    column = pyarrow.parquet.read_table(export(tmp_path, "parquet"))["pictures"].to_pylist()
    assert column == [list(step.pictures) for step in tree.steps]
