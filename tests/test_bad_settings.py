"""Models, settings and names that are wrong: refused in one line, with the nearest name, and nothing is written."""

import json
import os
from pathlib import Path

import pytest
from agentcli.policies.load import load_tokenizer
from bad_input_runs import (
    ADAPTER,
    ANNOTATE,
    CREDIT,
    MODEL,
    PANEL,
    ROLLOUT,
    RUN,
    SFT,
    SFT_ON,
    START,
    TOKENIZER,
    TRAIN,
    WEIGHTS,
    Case,
    Damage,
    check,
    contents,
    edit,
    folder,
    folder_at,
    parameters,
    quietly,
    remove,
    set_in,
    without_a_tensor,
    write,
)
from refusal import refused

__all__ = ["folder"]

BOMB = "\n".join(
    [
        "environment:\n  options:\n    a0: &a0 [x]",
        *(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 4)),
    ]
)
"""Aliases of aliases: with ten such lines, 10^10 values."""
PICTURED = (*ROLLOUT, "--set", "environment.options.pictures=true", "--set")

MODELS: list[Case] = [
    (f"{what}, {words[0]}", damage, words, code, said)
    for what, damage, code, said in [
        ("truncated weights", edit(WEIGHTS, lambda data: data[:-100]), 3, ("model.safetensors: damaged",)),
        ("corrupt weights", edit(WEIGHTS, lambda data: data[:9] + b"\xff" + data[10:]), 3, (": damaged",)),
        ("no tokenizer", remove(f"{START}/tokenizer_config.json"), 3, ("tokenizer_config.json: no such file", "copy")),
        ("an empty tokenizer", write(TOKENIZER), 3, (START, "no tokenizer could be loaded", "--model")),
        ("a foreign tokenizer", write(TOKENIZER, '{"a": 1}'), 3, (START, "no tokenizer could be loaded")),
    ]
    for words in [
        ROLLOUT,
        (*TRAIN, "--model", START),
        ("eval", "--split", "test", "--model", START, "-c", "toy.yaml", "-o", "new"),
        RUN,
        SFT_ON,
    ]
] + [
    ("greedy", None, (*RUN, "--temperature", "0"), 2, ("policy.temperature: 0", "--temperature above 0")),
    ("greedy, dry run", None, (*RUN, "--temperature", "0", "--dry-run"), 2, ("policy.temperature: 0",)),
    ("no directory", None, ("rollout", "-c", "toy.yaml", "--model", "./none"), 4, ("no directory ./none", "--model")),
    ("no directory, sft", None, (*SFT[:4], "--model", "./none", "-o", "new"), 4, ("no directory ./none",)),
    ("no reference", None, (*TRAIN, "--set", "train.reference=./none"), 4, ("train.reference: no directory ./none",)),
    (
        "no reference, dpo",
        None,
        (*TRAIN, "--set", "train.objective=dpo", "--set", "train.beta=0", "--set", "train.reference=./none"),
        4,
        ("train.reference: no directory ./none",),
    ),
    (
        "thoughts of a server",
        None,
        (
            "rollout",
            "-c",
            "toy.yaml",
            "--policy",
            "openai",
            "--base-url",
            "http://127.0.0.1:9/v1",
            "--set",
            "prompt.style=chat",
            "--set",
            "prompt.keep_thinking=true",
        ),
        2,
        ("prompt.keep_thinking: true",),
    ),
    (
        "no tokenizer, overwriting",
        remove(f"{START}/tokenizer_config.json"),
        ("rollout", *MODEL, "-o", "runs/x", "--overwrite"),
        3,
        ("tokenizer_config.json: no such file",),
    ),
    (
        "truncated, overwriting",
        edit(WEIGHTS, lambda data: data[:-9]),
        (*RUN[:-1], "runs/loop", "--overwrite"),
        3,
        (": damaged",),
    ),
    (
        "a hub id",
        None,
        ("rollout", "-c", "toy.yaml", "--model", "no/model"),
        4,
        ("policy.model: ", "no/model", "--model"),
    ),
    ("a file", None, ("rollout", "-c", "toy.yaml", "--model", "toy.yaml"), 2, ("toy.yaml is a file",)),
    (
        "a run",
        None,
        ("rollout", "-c", "toy.yaml", "--model", "runs/sft"),
        3,
        ("policy.model runs/sft: no configuration",),
    ),
    ("no weights", remove(WEIGHTS), ROLLOUT, 3, ("no causal LM could be loaded", "model.safetensors")),
    ("empty weights", write(WEIGHTS), ROLLOUT, 3, ("model.safetensors: damaged", "again")),
    ("weights a folder", folder_at(WEIGHTS), ROLLOUT, 3, ("model.safetensors",)),
    ("weights, dry run", edit(WEIGHTS, lambda data: data[:-9]), (*ROLLOUT, "--dry-run"), 3, (": damaged",)),
    ("no directory, dry run", None, ("rollout", "--model", "./none", "--dry-run"), 4, ("no directory ./none",)),
    ("empty config", write(f"{START}/config.json"), ROLLOUT, 3, (START, "config.json")),
    ("config of no model", write(f"{START}/config.json", "{}"), ROLLOUT, 3, (START, "model_type")),
    (
        "other shapes",
        set_in(f"{START}/config.json", -1, "intermediate_size", 64),
        ROLLOUT,
        3,
        ("weights are not those of its config.json", "mlp.down_proj.weight is [32, 32], should be [32, 64]"),
    ),
    (
        "a missing weight",
        without_a_tensor(WEIGHTS),
        ROLLOUT,
        3,
        ("weights are not those of its config.json", "model.norm.weight is missing (1 such)"),
    ),
    (
        "a missing adapter weight",
        without_a_tensor(f"{ADAPTER}/adapter_model.safetensors"),
        (*ROLLOUT, "--adapter", ADAPTER),
        3,
        (f"policy.adapter {ADAPTER}: no adapter could be loaded", "missing adapter keys"),
    ),
    ("a small vocabulary", set_in(f"{START}/config.json", -1, "vocab_size", 9), SFT_ON, 3, ("vocab_size of 9",)),
    ("no chat template", remove(f"{START}/chat_template.jinja"), ROLLOUT, 2, ("no chat template",)),
    ("a bad chat template", write(f"{START}/chat_template.jinja", "{% for %}"), ROLLOUT, 3, ("no chat template",)),
    ("adapter nowhere", None, (*ROLLOUT, "--adapter", "./none"), 4, ("policy.adapter: no directory", "--adapter")),
    ("adapter a model", None, (*ROLLOUT, "--adapter", START), 3, ("policy.adapter", "adapter_config.json")),
    (
        "truncated adapter",
        edit(f"{ADAPTER}/adapter_model.safetensors", lambda data: data[:-50]),
        (*ROLLOUT, "--adapter", ADAPTER),
        3,
        ("adapter_model.safetensors: damaged",),
    ),
    (
        "adapter without a base",
        write(f"{ADAPTER}/adapter_config.json", "{}"),
        (*ROLLOUT[:3], "--model", ADAPTER, "-o", "new"),
        3,
        ("adapter_config.json: base_model_name_or_path", "again"),
    ),
    ("adapter beside the model", None, (*TRAIN, "--set", "policy.adapter=x"), 2, ("policy.adapter x", "--model")),
    ("no weights to train", None, ("run", "--preset", "./toy.yaml", "--policy", "expert"), 2, ("expert", "--model")),
    ("a served model to train", None, (*RUN, "--policy", "openai"), 2, ("loads itself, not openai", "--model")),
]
SETTINGS: list[Case] = [
    (f"{text!r}, {words[0]}", write("bad.yaml", text), (*words, "-c", "bad.yaml"), 2, ("bad.yaml", *said))
    for text, said in [
        ("rollout: {leavs: 3}", ("rollout.leavs", "did you mean rollout.leaves?")),
        ('evaluation: {label: "a\\ud800b"}', ("evaluation.label", r"a\ud800b")),
        ('environment: {panel: "a\\0b"}', ("environment.panel", r"a\x00b")),
        ('environment: {where: {"k\\ud800": [x]}}', ("environment.where", r"k\ud800")),
        ("rolout: {leaves: 3}", ("rolout", "did you mean rollout?")),
        ("rollout: 3", ("rollout: expected object, got int",)),
        ("rollout: {leaves: many}", ("rollout.leaves: expected int, got str",)),
        ("seed: 1\nseed: 2", (":2: key 'seed' is there twice",)),
        ("seed: [", (":",)),
        ("- seed", ("expected settings",)),
        ("seed: !!python/name:os.system x", (":1: could not determine a constructor",)),
        ("environment:\n  options: &a {x: *a}", (":2: *a", "in its place")),
        (BOMB, (":4: *a0", "in its place")),
        ("environment: {options: {1: 2}}", ("environment.options: one of its names",)),
        (b"seed: 1\nx: \xff\xfe", (":2: not UTF-8 (byte 3)", "save it as UTF-8")),
    ]
    for words in [ROLLOUT, ("assign-credit", "runs/x", "--overwrite"), ("env", "check")]
    if words == ROLLOUT or text == "rollout: {leavs: 3}"
] + [
    (
        f"{name} {words[0]}",
        lambda name=name, value=value: os.environ.update({name: value}),  # type: ignore[misc]
        words,
        2,
        (f"{name}: ", said),
    )
    for name, value, said in [
        ("AGENTCLI_ROLLOUT__LEAVS", "3", "did you mean rollout.leaves?"),
        ("AGENTCLI_ROLOUT__LEAVES", "3", "did you mean rollout?"),
        ("AGENTCLI_POLICY__TEMP", "3", "did you mean policy.temperature?"),
        ("AGENTCLI_ROLLOUT", "3", "rollout: expected object"),
        ("AGENTCLI_SEED", "[}", "the value is not YAML"),
        ("AGENTCLI_NOTHING", "1", "there are seed, environment"),
    ]
    for words in [ROLLOUT, ("train", "runs/x", "-o", "new")]
]
NAMES: list[Case] = [
    ("--set key", None, (*ROLLOUT, "--set", "rollout.leavs=3"), 2, ("rollout.leavs", "did you mean rollout.leaves?")),
    ("--set type", None, (*TRAIN, "--set", "train.clip=wide"), 2, ("train.clip: expected float, got str",)),
    ("--set without value", None, (*ROLLOUT, "--set", "rollout.leaves"), 2, ("write path=value",)),
    ("--set and option", None, (*ROLLOUT, "--leaves", "2", "--set", "rollout.leaves=3"), 2, ("the same thing",)),
    ("option type", None, (*ROLLOUT, "--leaves", "many"), 2, ("--leaves many: expected a whole number",)),
    ("world option", None, (*ROLLOUT, "--set", "environment.options.tasks=x"), 2, ("environment.options.tasks: ",)),
    (
        "world option name",
        None,
        (*ROLLOUT, "--set", "environment.options.tusks=3"),
        2,
        ("environment.options", "tusks"),
    ),
    ("method", None, (*ROLLOUT, "--method", "sparc"), 2, ("rollout.method", "did you mean spark?")),
    ("credit method", None, (*CREDIT, "--method", "grop"), 2, ("credit.method", "did you mean grpo?")),
    ("credit switch", None, (*CREDIT, "--set", "credit.overr=steps"), 2, ("credit.overr", "did you mean over?")),
    (
        "run without a critic",
        None,
        (*RUN, "--set", "credit.method=ppo"),
        2,
        ("credit.method ppo", "train.objective=ppo"),
    ),
    (
        "run without a critic, dry",
        None,
        (*RUN, "--set", "credit.method=ppo", "--dry-run"),
        2,
        ("credit.method ppo", "policy-gradient", "rollout.critic=DIR"),
    ),
    ("run's credit method", None, (*RUN, "--set", "credit.method=grop"), 2, ("credit.method", "did you mean grpo?")),
    ("credit file", None, (*TRAIN, "--credit", "spark"), 3, ("spark.jsonl: no such file", "--method spark")),
    ("world", None, (*ROLLOUT, "--env", "alfwrld"), 2, ("environment.name", "did you mean alfworld?")),
    ("world to check", None, ("env", "check", "alfwrld"), 2, ("environment.name", "did you mean alfworld?")),
    ("world's module", None, (*ROLLOUT, "--env", "no_world:X"), 2, ("environment.name", "no_world")),
    ("world's class", None, (*ROLLOUT, "--env", "toy_world:X"), 2, ("environment.name", "toy_world has no X")),
    ("world's data", None, ("demos", "--data", "runs", "-o", "new"), 3, ("json_2.1.1",)),
    ("policy", None, (*ROLLOUT, "--policy", "expret"), 2, ("policy.kind", "did you mean expert?")),
    ("demos policy", None, ("demos", "-c", "toy.yaml", "--policy", "nobody"), 2, ("policy.kind", "'nobody'")),
    ("preset", None, ("rollout", "--preset", "quikstart"), 2, ("no preset 'quikstart'; did you mean quickstart?",)),
    ("run's preset", None, ("run", "--preset", "quikstart"), 2, ("no preset 'quikstart'; did you mean quickstart?",)),
    ("preset file", None, ("run", "--preset", "./none.yaml"), 2, ("none.yaml: cannot be read",)),
    ("preset to show", None, ("preset", "show", "quikstart"), 2, ("did you mean quickstart?",)),
    ("preset to copy", None, ("preset", "copy", "quikstart"), 2, ("did you mean quickstart?",)),
    ("split", None, (*ROLLOUT, "--split", "trian"), 2, ("--split trian: ", "did you mean train?")),
    *((f"{name} split", None, (name, "runs/x", "--split", "no"), 2, ("--split no",)) for name in ("eval", "pass-at-k")),
    ("vote's split", None, ("test-time-branch", "runs/x", "--split", "no"), 2, ("--split no",)),
    ("env split", None, ("env", "panel", "-c", "toy.yaml", "--split", "no"), 2, ("--split no",)),
    ("where", None, (*ROLLOUT, "--where", "kind=none"), 2, ("is left by --where kind=none",)),
    ("where's key", None, (*ROLLOUT, "--where", "size=1"), 2, ("--where size", "it has kind, split, length")),
    ("tracker", None, (*RUN, "--tracker", "wandv"), 2, ("--tracker wandv", "tensorboard, wandb, trackio, mlflow")),
    ("device", None, (*ROLLOUT, "--device", "gpu"), 2, ("policy.device: no device 'gpu'",)),
    ("dtype", None, (*ROLLOUT, "--dtype", "fp8"), 2, ("policy.dtype: no dtype 'fp8'",)),
    ("style", None, (*ROLLOUT, "--set", "prompt.style=odd"), 2, ("prompt.style: no style 'odd'",)),
    (
        "branch",
        None,
        (*ROLLOUT, "--method", "spark", "--roots", "1", "--branch", "odd"),
        2,
        ("rollout.branch is 'odd'",),
    ),
    ("schedule", None, (*SFT, "--set", "sft.schedule=odd"), 2, ("sft.schedule: no schedule 'odd'",)),
    (
        "label",
        None,
        ("eval", "runs/x", "--split", "test", "--label", "../x"),
        2,
        ("evaluation.label '../x'", "--label"),
    ),
    ("schema", None, ("schema", "tre"), 2, ("no schema 'tre'; did you mean tree?",)),
    ("kind of file", None, ("validate", "--kind", "tre", "toy.yaml"), 2, ("no schema 'tre'; did you mean tree?",)),
]
EFFECTLESS: list[Case] = [
    ("roots of chain", None, (*ROLLOUT, "--roots", "2"), 2, ("--roots 2: rollout.roots", "--method")),
    ("model of expert", None, (*ROLLOUT, "--policy", "expert"), 2, ("--model has no effect with --policy expert",)),
    ("base-url", None, (*ROLLOUT, "--base-url", "http://x/v1"), 2, ("--base-url has no effect", "--policy openai")),
    ("split of a panel", None, (*PANEL, "--split", "test"), 2, ("--split has no effect with the panel file",)),
    ("count of annotate", None, (*ANNOTATE, "--count", "3"), 2, ("--count has no effect with --annotate",)),
    (
        "credit of dpo",
        None,
        (*TRAIN, "--set", "train.objective=dpo", "--credit", "grpo"),
        2,
        ("--credit has no effect",),
    ),
    ("resume without -o", None, ("rollout", *MODEL, "--resume"), 2, ("--resume needs -o DIR",)),
    ("more roots than leaves", None, (*ROLLOUT, "--method", "spark", "--roots", "9"), 2, ("rollout.roots is 9",)),
    (
        "pictures in a text",
        None,
        (*PICTURED, "prompt.style=compact", "--method", "dpepo"),
        2,
        ("prompt.style: compact", "toy", "pictures"),
    ),
    ("pictures for a model", None, (*PICTURED, "prompt.style=full"), 2, ("policy.kind", "pictures", "--policy")),
    ("k above n", None, ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "3"), 2, ("1 <= k <= n",)),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("damage", "words", "code", "said"), parameters(model=MODELS, settings=SETTINGS, name=NAMES, effect=EFFECTLESS)
)
def test_it_is_refused_in_one_line_and_nothing_is_written(
    damage: Damage | None, words: tuple[str, ...], code: int, said: tuple[str, ...]
) -> None:
    check(damage, words, code, said)


@pytest.mark.parametrize("name", ["a\x1b[5mb", "a\u202eb", "a\nb"], ids=["escape", "bidi", "newline"])
@pytest.mark.parametrize(
    "words",
    [
        (*ROLLOUT[:-1],),
        ("view", "runs/x", "-o"),
        ("export", "runs/x", "--to", "messages", "-o"),
        ("env", "panel", "-c", "toy.yaml", "-o"),
        ("eval", "runs/x", "--split", "test", "--label"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_output_gets_a_name_that_a_terminal_does_not_show(words: tuple[str, ...], name: str, folder: Path) -> None:
    ending = ".html" if words[0] == "view" else ""
    before = contents()
    answer = quietly(*words, name + ending)
    line = refused(answer, 2, ascii(name)[1:-1])
    assert line.isprintable()
    assert contents() == before


def test_names_that_were_given_elsewhere_are_shown_with_escapes(folder: Path) -> None:
    odd = Path("runs/a\x1b[5m\u202e")
    Path("runs/x").rename(odd)
    for words in [("validate", str(odd / "trees.jsonl")), ("plot", "runs/loop", "-o", str(Path("p.svg")))]:
        answer = quietly(*words)
        assert answer.code == 0, answer
        assert (answer.stdout + answer.stderr).replace("\n", "").isprintable()


def test_what_a_library_prints_of_a_model_is_not_on_stdout(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = Path(TOKENIZER).with_name("tokenizer.json")
    known = json.loads(tokenizer.read_text(encoding="utf-8"))
    known["added_tokens"][0]["odd\x1b[5m"] = 1
    tokenizer.write_text(json.dumps(known), encoding="utf-8")
    load_tokenizer(START)
    out, err = capfd.readouterr()
    assert out == ""
    assert "odd\\x1b[5m" in err
