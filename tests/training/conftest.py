"""A hidden-32 policy and a rollout of it, made once."""

import random
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.training_settings import TinySettings
from tiny_rollout import SHAPES, WORDS, credit_of, make_tree, write

torch.set_num_threads(1)
collect_ignore = [] if find_spec("bitsandbytes") else ["loop/test_quantised.py"]


@pytest.fixture(scope="session")
def rollout(tmp_path_factory):
    """Files `trees`, `credit`, `model` and what is in them."""
    folder: Path = tmp_path_factory.mktemp("rollout")
    tokenizer = make_tokenizer([" ".join(WORDS)], [])
    model = make_model(TinySettings(hidden=32, layers=2, heads=2, kv_heads=1, intermediate=48), tokenizer, 0)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rng = random.Random(0)
    trees = [make_tree(number, SHAPES[number % len(SHAPES)], model, tokenizer, rng) for number in range(6)]
    credits = [credit_of(tree, [rng.gauss(0, 1) for _ in tree.steps]) for tree in trees]
    return SimpleNamespace(
        folder=folder,
        model=folder / "model",
        tokenizer=tokenizer,
        trees=write(folder / "trees.jsonl", trees),
        credit=write(folder / "credit.jsonl", credits),
        tree_list=trees,
        credit_list=credits,
    )


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, a new one."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
