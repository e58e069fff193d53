"""Bad input through the real command line: the exit code, one line that names the place and what is wrong, and nothing written.

Here: files that are empty, torn, of another version, of something else, or that are not what their name says; output that is there.
Models, settings and names are test_bad_settings.py's, numbers test_bad_numbers.py's; full disks, other writers and endpoints
test_bad_circumstances.py's. How the runs are damaged, and what every refusal must look like, stands in bad_input_runs.py.
"""

import os
from pathlib import Path

import pytest
from bad_input_runs import (
    ANNOTATE,
    BEGUN,
    CREDIT,
    DEMO_TREES,
    DEMOS,
    EPISODES,
    EVAL,
    EXISTING,
    GIVEN,
    MANIFEST,
    OTHER_INPUT,
    OTHER_SETTINGS,
    PANEL,
    RESUMED,
    ROLLOUT,
    RUN,
    SFT,
    START,
    TRAIN,
    TREES,
    Case,
    Damage,
    agentcli,
    check,
    copy,
    edit,
    edit_lines,
    folder,
    folder_at,
    link,
    older,
    parameters,
    remove,
    set_in,
    signed_out,
    torn_at_the_end,
    torn_inside,
    write,
)

__all__ = ["folder"]

EMPTY: list[Case] = [
    ("trees, assign-credit", write(TREES), CREDIT, 3, (TREES, "holds no trees", "agentcli rollout")),
    ("trees, train", write(TREES), TRAIN, 3, (f"{TREES}: holds no trees", "agentcli rollout")),
    ("trees, dry run", write(TREES), (*TRAIN, "--dry-run"), 3, (f"{TREES}: holds no trees",)),
    ("demos, sft", write(DEMO_TREES), SFT, 3, (f"{DEMO_TREES}: holds no trees", "agentcli demos")),
    ("demos, annotate", write(DEMO_TREES), ANNOTATE, 3, (f"{DEMO_TREES}: holds no trees", "agentcli demos")),
    ("credit, train", write(GIVEN), TRAIN, 3, (f"{GIVEN}: ends after 0 records", "assign-credit")),
    ("panel", write("panel.json"), PANEL, 3, ("panel.json: ",)),
    ("panel, eval", write("panel.json"), ("eval", "runs/x", "--panel", "panel.json"), 3, ("panel.json: ",)),
    ("manifest", write(MANIFEST), TRAIN, 3, (f"{MANIFEST}: ",)),
    ("manifest, validate", write(MANIFEST), ("validate", MANIFEST), 3, (f"{MANIFEST}: ",)),
    ("recorded settings", write(BEGUN), RESUMED, 3, (f"{BEGUN}: ",)),
    ("evaluation summary", write("runs/x/evaluation/test.json"), EVAL, 3, ("evaluation/test.json: ",)),
    ("trees, validate", write(TREES), ("validate", TREES), 3, (f"{TREES}: holds no complete record",)),
]
TORN: list[Case] = [
    (f"{Path(path).parts[1]} {Path(path).name}, {words[0]}", edit_lines(path, torn_inside), words, 3, (f"{path}:2: ",))
    for path, words in [
        (TREES, CREDIT),
        (TREES, TRAIN),
        (TREES, RESUMED),
        (TREES, ("validate", TREES)),
        (GIVEN, TRAIN),
        (DEMO_TREES, SFT),
        (DEMO_TREES, DEMOS),
        (DEMO_TREES, ANNOTATE),
        (EPISODES, EVAL),
    ]
]
STALE: list[Case] = [
    (f"{path} {words[0]}", set_in(path, line, "schema_version", 99), words, 3, (place, "schema_version is 99"))
    for path, line, words, place in [
        (TREES, 1, CREDIT, f"{TREES}:2: "),
        (TREES, 1, TRAIN, f"{TREES}:2: "),
        (TREES, 1, RESUMED, f"{TREES}:2: "),
        (DEMO_TREES, 1, SFT, f"{DEMO_TREES}:2: "),
        (GIVEN, 1, TRAIN, f"{GIVEN}:2: "),
        (EPISODES, 1, EVAL, f"{EPISODES}:2: "),
        (MANIFEST, -1, TRAIN, f"{MANIFEST}: "),
        ("panel.json", -1, PANEL, "panel.json: "),
        ("runs/x/metrics.jsonl", 1, ("validate", "runs/x/metrics.jsonl"), "runs/x/metrics.jsonl:2: "),
    ]
]
UNLIKE: list[Case] = [
    (
        "an unknown field",
        edit(TREES, lambda data: data.replace(b'"seed":', b'"sead":', 1)),
        (*CREDIT, "--graph"),
        3,
        (f"{TREES}:1: ", "unknown field `sead`"),
    ),
    ("no panel at all", write("panel.json", "{}"), PANEL, 3, ("panel.json: ", "missing required field `name`")),
    (
        "a step that is none",
        older(set_in(GIVEN, 0, "steps", 0, "step", 999)),
        TRAIN,
        3,
        (f"{GIVEN}:1: steps[0].step: 999",),
    ),
    (
        "another rollout's credit",
        older(copy("runs/loop/iteration_000/credit/grpo.jsonl", GIVEN)),
        TRAIN,
        3,
        (f"{GIVEN}:1: task: is ", "assign-credit"),
    ),
    ("trees gone", edit_lines(TREES, lambda lines: lines[:-1]), TRAIN, 3, (f"{TREES}: ends after 3 records",)),
    ("another order", edit_lines(TREES, lambda lines: lines[::-1]), TRAIN, 3, (f"{GIVEN}:1: task: is ",)),
    ("no credit", remove("runs/x/credit"), TRAIN, 3, ("runs/x/credit: no credit yet", "assign-credit runs/x")),
    ("two credits", copy(GIVEN, "runs/x/credit/rloo.jsonl"), TRAIN, 2, ("holds grpo, rloo", "--credit NAME")),
    (
        "tokens of another model",
        set_in(TREES, 0, "steps", 0, "token_ids", 0, 10**6),
        TRAIN,
        3,
        (f"{TREES}:1: steps[0].token_ids: 1000000", "another model"),
    ),
    (
        "fewer log-probabilities",
        set_in(TREES, 0, "steps", 0, "logprobs", []),
        TRAIN,
        3,
        (f"{TREES}:1: ", "steps[0].logprobs"),
    ),
    (
        "another panel's tree",
        set_in(TREES, 0, "task", "id", "nope/1"),
        RESUMED,
        3,
        (TREES, "nope/1 is not one of panel train's"),
    ),
    (
        "another panel's episode",
        older(set_in(EPISODES, 0, "task", "nope/1")),
        EVAL,
        3,
        (EPISODES, "nope/1 is not one of panel test's"),
    ),
    ("a panel of another world", set_in("panel.json", -1, "world", "alfworld"), PANEL, 3, ("panel.json: world: ",)),
    (
        "a panel without its hash",
        set_in("panel.json", -1, "tasks", []),
        PANEL,
        3,
        ("panel.json: sha256: ", "agentcli env panel"),
    ),
    (
        "inherited settings",
        set_in(MANIFEST, -1, "stages", "train", "settings", "rollout", "leavs", 3),
        CREDIT,
        3,
        ("recorded settings: ", "rollout.leavs", "--preset"),
    ),
    (
        "an inherited model",
        set_in(MANIFEST, -1, "stages", "rollout", "settings", "policy", "oops"),
        (*TRAIN, "-c", "toy.yaml", "--set", "policy.model=null"),
        3,
        ("manifest.json: policy: names no model", "--model DIR|ID"),
    ),
]
PLACES: list[Case] = [
    ("RUN nowhere", None, ("train", "runs/none"), 3, ("runs/none: no such run directory", "agentcli rollout")),
    ("RUN a file", None, ("train", TREES), 3, (f"{TREES}: is a file", "the run directory that it lies in: runs/x")),
    ("RUN without trees", write("toy.yaml", ""), ("assign-credit", "runs"), 3, ("runs/trees.jsonl: no such file",)),
    ("RUN without a model", remove("runs/demos/manifest.json"), ("eval", "runs/demos"), 2, ("no model", "--model")),
    ("RUN a loop", None, ("assign-credit", "runs/loop"), 3, ("a loop was run here", "runs/loop/iteration_000")),
    ("RUN a loop, train", None, ("train", "runs/loop"), 3, ("a loop was run here", "runs/loop/iteration_000")),
    ("RUN a link to nothing", link("d", "none"), ("train", "d"), 3, ("d: no such run directory",)),
    ("RUN a link to itself", link("d", "d"), ("train", "d"), 3, ("d: no such run directory",)),
    ("no RUN, no latest", link("runs/latest", "none"), ("train",), 2, ("no RUN given", "agentcli rollout")),
    ("RUN too long", None, ("train", "x" * 300), 1, ("File name too long",)),
    ("trees a folder", folder_at(TREES), CREDIT, 3, (f"{TREES}: cannot be read (Is a directory)",)),
    ("trees a link to itself", link(TREES, "trees.jsonl"), CREDIT, 3, (f"{TREES}: cannot be read (Too",)),
    ("trees a link, rollout", link(TREES, "none"), (*ROLLOUT[:-1], "runs/x"), 2, (f"{TREES} exists",)),
    ("manifest a folder", folder_at(MANIFEST), TRAIN, 3, (f"{MANIFEST}: cannot be read (Is a directory)",)),
    ("panel a folder", None, (*ROLLOUT, "--panel", "runs"), 3, ("runs: cannot be read (Is a directory)",)),
    ("panel nowhere", None, (*ROLLOUT, "--panel", "none.json"), 3, ("none.json: cannot be read",)),
    ("-c a folder", None, ("rollout", "-c", "runs"), 2, ("runs: cannot be read (Is a directory)",)),
    ("-c a link to itself", link("c.yaml", "c.yaml"), ("rollout", "-c", "c.yaml"), 2, ("c.yaml: cannot be read (Too",)),
    ("runs a file", write("new"), ("rollout", "-c", "toy.yaml", "--policy", "expert", "-o", "new/x"), 2, ("new is a",)),
    ("-o too long", None, (*ROLLOUT[:-1], "x" * 300), 1, ("File name too long",)),
    ("-o nothing", None, (*ROLLOUT[:-1], ""), 2, ("there is an empty word after -o",)),
    ("--out= nothing", None, (*ROLLOUT, "--out="), 2, ("--out= is given an empty value",)),
    ("annotate a loop", None, ("demos", "--annotate", "runs/loop", *ANNOTATE[3:]), 3, ("a loop was run here",)),
    (
        "train over its model",
        None,
        ("train", "runs/x", "--model", START, "-o", "runs/sft", "--overwrite"),
        2,
        ("runs/sft/checkpoint", "-o DIR"),
    ),
    (
        "sft over its model",
        None,
        (*SFT[:4], "--model", START, "-o", "runs/sft", "--overwrite"),
        2,
        ("is the model that sft starts from", "-o DIR"),
    ),
    (
        "run over its model",
        None,
        ("run", "--preset", "./toy.yaml", "--model", "runs/loop/checkpoint", "-o", "runs/loop", "--overwrite"),
        2,
        ("would delete runs/loop/checkpoint",),
    ),
    ("panel in a file", None, ("env", "panel", "-c", "toy.yaml", "-o", "toy.yaml/p.json"), 1, ("toy.yaml/p.json: ",)),
    ("preset in a file", None, ("preset", "copy", "quickstart", "toy.yaml/p.yaml"), 1, ("toy.yaml/p.yaml: ",)),
    ("preset on itself", None, ("preset", "copy", "./toy.yaml", "toy.yaml", "--overwrite"), 2, ("the preset itself",)),
    ("validate nowhere", None, ("validate", "runs/none"), 3, ("runs/none: no such run directory",)),
]
WRITING = {
    "rollout": ROLLOUT[:-1],
    "demos": ("demos", "-c", "toy.yaml", "-o"),
    "annotate": ANNOTATE[:-1],
    "sft": SFT[:-1],
    "train": TRAIN[:-1],
    "run": RUN[:-1],
    "eval": ("eval", "runs/x", "--split", "test", "-o"),
    "pass-at-k": ("pass-at-k", "runs/x", "--split", "test", "-n", "2", "-k", "1", "-o"),
    "test-time-branch": ("test-time-branch", "runs/x", "--split", "test", "-o"),
}
"""Every command with -o, which comes last."""
PLACES += [
    (f"-o {what}, {name}{' '.join(dry)}", damage, (*words, out, *dry), 2, (said, "write elsewhere with -o DIR"))
    for name, words in WRITING.items()
    for what, damage, out, said in [
        ("a file", write("new", "x"), "new", "new is a file"),
        ("in a file", write("new", "x"), "new/run", "new is a file"),
        ("a link to nothing", link("new", "none"), "new", "new leads nowhere"),
    ]
    for dry in [(), ("--dry-run",)]
    if not dry or name == "rollout"
]
AGAIN: list[Case] = [
    *((f"{name} exists", None, words, 2, (" exists; ", "--resume", "--overwrite")) for name, words in EXISTING.items()),
    *(
        (f"{name}, both flags", None, (*words, "--resume", "--overwrite"), 2, ("exclude each other",))
        for name, words in EXISTING.items()
    ),
    *(
        (f"{name}, other settings", None, (*words, "--resume", *OTHER_SETTINGS[name][0]), 2, (OTHER_SETTINGS[name][1],))
        for name, words in EXISTING.items()
    ),
    *(
        (
            f"{name}, other input",
            edit(path, lambda data, more=more: data + more),  # type: ignore[misc]
            (*EXISTING[name], "--resume"),
            2,
            (f"{path} has changed", "--overwrite"),
        )
        for name, (path, more) in OTHER_INPUT.items()
    ),
    ("another split", None, (*RESUMED, "--split", "test"), 2, ("environment.split was 'train', now 'test'",)),
    ("another panel", None, (*RESUMED, "--panel", "panel.json"), 2, ("environment.panel was None, now 'panel.json'",)),
    ("another model", None, (*RESUMED[:4], "runs/x/checkpoint", *RESUMED[5:]), 2, ("policy.model was ",)),
    ("another form", None, (*DEMOS, "--set", "rollout.method=dpepo"), 2, ("rollout.method was 'chain', now 'dpepo'",)),
    ("panel exists", None, ("env", "panel", "-c", "toy.yaml", "-o", "panel.json"), 2, ("panel.json exists",)),
    ("copy exists", None, ("preset", "copy", "quickstart", "toy.yaml"), 2, ("toy.yaml exists",)),
]
TRACKERS: list[Case] = [
    case
    for name, words in (("sft", SFT), ("train", TRAIN), ("run", RUN))
    for dry in ((), ("--dry-run",))
    for case in [
        (
            f"no key, {name}{' '.join(dry)}",
            signed_out,
            (*words, "--tracker", "wandb", *dry),
            4,
            ("tracking.to: wandb has no API key; type: wandb login, or: export WANDB_MODE=offline",),
        ),
        (
            f"no folder, {name}{' '.join(dry)}",
            write("new/tracking"),
            (*words, "--tracker", "tensorboard", "--resume", *dry),
            2,
            ("tracking.to: tensorboard writes to new/tracking, but ", "/new/tracking is no folder; ", "-o DIR"),
        ),
    ]
]


def signed_out_and_owing() -> None:
    """A loop that had ended owes its only iteration."""
    signed_out()
    remove("runs/loop/iteration_000")()


TRACKERS += [
    (
        "no key, a loop whose iterations are gone",
        signed_out_and_owing,
        (*EXISTING["run"], "--resume", "--tracker", "wandb"),
        4,
        ("tracking.to: wandb has no API key",),
    )
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("damage", "words", "code", "said"),
    parameters(empty=EMPTY, torn=TORN, stale=STALE, unlike=UNLIKE, place=PLACES, again=AGAIN, tracker=TRACKERS),
)
def test_it_is_refused_in_one_line_and_nothing_is_written(
    damage: Damage | None, words: tuple[str, ...], code: int, said: tuple[str, ...]
) -> None:
    check(damage, words, code, said)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (TREES, ("assign-credit", "runs/x", "--method", "rloo")),
        (TREES, RESUMED),
        (DEMO_TREES, SFT),
        (DEMO_TREES, DEMOS),
        (EPISODES, EVAL),
        (TREES, ("validate", TREES)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_torn_last_line_is_a_record_still_owed(path: str, words: tuple[str, ...]) -> None:
    whole = Path(path).read_bytes()
    edit_lines(path, torn_at_the_end)()
    answer = agentcli(*words)
    assert answer.code == 0, answer
    if "--resume" in words:
        assert Path(path).read_bytes() == whole
    elif words[0] == "assign-credit":
        assert len(Path("runs/x/credit/rloo.jsonl").read_bytes().splitlines()) == 3
    elif words[0] == "validate":
        assert "3 records of tree, fine" in answer.stderr
    else:
        assert Path("new/manifest.json").exists()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["sft", "train", "run"])
def test_what_is_complete_needs_no_tracker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    signed_out()
    for dry in ((), ("--dry-run",)):
        answer = agentcli(*EXISTING[name], "--resume", "--tracker", "wandb", *dry)
        assert answer.code == 0, answer
