"""States aggregated by similarity: difflib, a real (tiny, random) embedding model, and what the methods make of it."""

import difflib
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from agentcli.credit import gigpo, rewardflow
from agentcli.credit.graph import build
from agentcli.credit.similarity import difflib_clusters, embed, embedding_clusters
from agentcli.records.types import Tree
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, advantages, chains, walk
from refusal import refused
from tiny_encoder import LONGEST, write_encoder

TEXT = "you are at the desk shelf fridge and see a mug an apple nothing"
WORDS = TEXT.split(" ")
TEXTS = [
    "you are at the desk and see a mug",
    "you are at the shelf and see an apple an apple an apple",
    "you are at the desk and see the mug",
    "nothing",
    "you are at the fridge and see a mug",
    "nothing nothing",
]
GRAPH = rewardflow.RewardFlowSettings


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("embedding"), WORDS)


def test_a_long_text_is_read_to_its_end(model: Path) -> None:
    """Longer than the 12 tokens of the model's input: all windows count, each token alike."""
    begins = " ".join(WORDS[:12])
    ends = [f"{begins} mug mug mug", f"{begins} desk desk shelf"]
    assert len(set(embedding_clusters(ends, 1.0, str(model)).values())) == 2
    texts = [*ends, " ".join(WORDS * 3), "mug"]
    vectors = embed(texts, str(model)).tolist()
    for vector, wanted in zip(vectors, one_by_one(texts, model), strict=True):
        assert vector == pytest.approx(wanted, abs=1e-5)


def one_by_one(texts: Sequence[str], model: Path) -> list[list[float]]:
    """The same embeddings computed without batches and padding, in double precision after the model."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    vectors = []
    for text in texts:
        with torch.no_grad():
            tokens = tokenizer(text)["input_ids"]
            windows = [tokens[start : start + LONGEST] for start in range(0, len(tokens), LONGEST)]
            states = [encoder(torch.tensor([window])).last_hidden_state[0].double() for window in windows]
        mean = torch.cat(states).mean(0)
        vectors.append((mean / mean.norm()).tolist())
    return vectors


def test_embeddings_are_unit_means_over_the_tokens_and_batches_do_not_matter(model: Path) -> None:
    vectors, wanted = embed(TEXTS, str(model)).tolist(), one_by_one(TEXTS, model)
    for vector, other in zip(vectors, wanted, strict=True):
        assert vector == pytest.approx(other, abs=1e-5)
        assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-5)
    many = [*TEXTS, *(" ".join(WORDS[n % 7 :]) for n in range(80))]
    assert embed(many, str(model))[: len(TEXTS)].tolist() == [pytest.approx(vector, abs=1e-5) for vector in vectors]


@pytest.mark.parametrize("quantile", [0.4, 0.6, 0.8])
def test_clusters_are_greedy_in_order_of_appearance(model: Path, quantile: float) -> None:
    """Against a second implementation, at thresholds between the cosines that occur."""
    vectors = one_by_one(TEXTS, model)
    cosine = {
        (i, j): sum(a * b for a, b in zip(vectors[i], vectors[j], strict=True)) for i in range(6) for j in range(i)
    }
    ordered = sorted(cosine.values())
    place = int(quantile * len(ordered))
    threshold = (ordered[place] + ordered[place - 1]) / 2
    first: list[int] = []
    wanted = {}
    for n, text in enumerate(TEXTS):
        near = [m for m in first if cosine[n, m] >= threshold]
        wanted[text] = TEXTS[near[0]] if near else text
        first += [] if near else [n]
    assert embedding_clusters(TEXTS, threshold, str(model)) == wanted
    assert 1 < len(set(wanted.values())) < 6


def test_equal_keys_stay_together_at_threshold_one(model: Path) -> None:
    assert embedding_clusters(TEXTS, 1.0, str(model)) == {text: text for text in TEXTS}


def test_gigpo_groups_what_the_model_finds_similar(model: Path) -> None:
    """The same credit as on a tree whose keys are the representatives."""
    threshold = 0.5 * sum(sorted(embed(TEXTS, str(model))[0] @ embed(TEXTS, str(model)).T)[3:5])
    grown, renamed = stairs(TEXTS), stairs(TEXTS)
    of = embedding_clusters(TEXTS, float(threshold), str(model))
    assert len(set(of.values())) < len(TEXTS)
    for each in renamed.steps:
        each.state = of[each.state]
    similar = gigpo.GigpoSettings(similarity=f"embedding:{float(threshold)}", embedding_model=str(model))
    assert gigpo.assign(grown, similar) == gigpo.assign(renamed, gigpo.GigpoSettings())
    assert gigpo.assign(grown, similar) != gigpo.assign(grown, gigpo.GigpoSettings())


def stairs(texts: Sequence[str]) -> Tree:
    """Trajectories through the first 1, 2, ... states."""
    fields = []
    for length in range(1, len(texts) + 1):
        path = [{"state": text} for text in texts[:length]]
        path[-1]["outcome"] = SUCCESS if length % 2 else FAILURE
        fields.append(path)
    return chains(fields)


def test_no_model_directory(tmp_path: Path) -> None:
    settings = gigpo.GigpoSettings(similarity="embedding:0.9", embedding_model=str(tmp_path / "e5"))
    refused(lambda: gigpo.assign(stairs(TEXTS), settings), 4, names=("credit.embedding_model", "e5"))
    (tmp_path / "config.json").write_text("{}")
    settings.embedding_model = str(tmp_path)
    refused(lambda: gigpo.assign(stairs(TEXTS), settings), 4, names="credit.embedding_model")


def test_difflib_by_hand() -> None:
    # Matching characters: "abcd" and "abcx" 3 of 4, ratio 6/8; "abcx" and "abxx" again 6/8, but "abcd" and "abxx" 4/8.
    assert difflib_clusters(["abcd", "abcx", "abxx"], 0.75) == {"abcd": "abcd", "abcx": "abcd", "abxx": "abxx"}
    assert difflib_clusters(["abcx", "abcd", "abxx"], 0.75) == {"abcx": "abcx", "abcd": "abcx", "abxx": "abcx"}
    assert difflib_clusters(["abcd", "abcx"], 0.76) == {"abcd": "abcd", "abcx": "abcx"}


def test_long_texts_are_similar_to_their_equals_alone() -> None:
    """As in the releases: difflib leaves out what is frequent in 200 characters or more."""
    one = "the agent looks at cabinet 1 and sees nothing; " * 6
    other = "A" + one[1:]
    assert difflib.SequenceMatcher(None, other, one, autojunk=False).ratio() > 0.99
    assert difflib_clusters([one, other], 0.9) == {one: one, other: other}


def test_difflib_compares_the_new_key_with_the_representative_as_the_releases_do() -> None:
    # SequenceMatcher(None, "aba", "bca") matches the first "a" of its longest block only, ratio 2/6; the other way round "b" and
    # "a", ratio 4/6. The release's are_similar(new, representative) has the new key first.
    assert difflib.SequenceMatcher(None, "aba", "bca").ratio() == pytest.approx(1 / 3)
    assert difflib.SequenceMatcher(None, "bca", "aba").ratio() == pytest.approx(2 / 3)
    assert difflib_clusters(["bca", "aba"], 0.5) == {"bca": "bca", "aba": "aba"}
    assert difflib_clusters(["aba", "bca"], 0.5) == {"aba": "aba", "bca": "aba"}


def test_an_errored_trajectory_takes_part_in_the_clusters() -> None:
    # Alone "abcd" and "abxx" are apart (4/8). The errored trajectory begins in "abcx", like both of them (6/8): it comes first and
    # represents them. Exact states are not touched by it.
    ends = [("abcd", SUCCESS), ("abxx", FAILURE)]
    sound = chains([[{"state": state, "outcome": end}] for state, end in ends])
    broken = chains([[{"state": state, "outcome": end}] for state, end in [("abcx", ERRORED), *ends]])
    similar = gigpo.GigpoSettings(similarity="difflib:0.75")
    assert [row.parts["step"] for row in gigpo.assign(sound, similar).steps] == [0.0, 0.0]
    assert gigpo.assign(broken, similar).steps[1].parts["step"] > 0
    assert advantages(gigpo.assign(broken, gigpo.GigpoSettings()))[1:] == advantages(
        gigpo.assign(sound, gigpo.GigpoSettings())
    )


def alike() -> Tree:
    """hall1 -> success; hall2 -> yard -> success. The two halls are similar, nothing else is."""
    first = [{"state": "hall1", "next_state": "GOAL", "outcome": SUCCESS}]
    second = [
        {"state": "hall2", "next_state": "yard"},
        {"state": "yard", "next_state": "GOAL", "outcome": SUCCESS},
    ]
    return chains([first, second, [{"state": "hall1", "next_state": "PIT", "outcome": TRUNCATED}]])


@pytest.mark.parametrize(("pool", "hall"), [("max", 0.9), ("mean", (0.9 + 0.81) / 2)])
def test_a_clusters_value_is_pooled(pool: str, hall: float) -> None:
    # By its own transitions hall1 is one step from the goal, .9, hall2 two, .81.
    settings = GRAPH(similarity="difflib:0.7", pool=pool, alpha_traj=0.0, scale="none")
    credit = rewardflow.assign(alike(), settings)
    assert [row.parts["value"] for row in credit.steps] == pytest.approx([hall, hall, 0.9, hall])
    # Leaving the hall: 1 - V, .9 - V, 0 - V, mean 1.9 / 3 - V.
    assert [credit.steps[n].parts["action"] for n in (0, 1, 3)] == pytest.approx([1 - 1.9 / 3, 0.9 - 1.9 / 3, -1.9 / 3])
    apart = rewardflow.assign(alike(), GRAPH(alpha_traj=0.0, scale="none"))
    assert [row.parts["value"] for row in apart.steps] == pytest.approx([0.9, 0.81, 0.9, 0.9])


@pytest.mark.parametrize("halls", [2, 4])
def test_a_member_that_moves_within_its_cluster_has_what_follows(halls: int) -> None:
    """yard -> hall1 -> hall2 ... -> GOAL: only the last hall leaves, and no step loses on the way."""
    states = ["yard", *(f"hall{number + 1}" for number in range(halls)), "GOAL"]
    moves = [{"state": one, "next_state": other} for one, other in pairwise(states)]
    moves[-1]["outcome"] = SUCCESS
    failed = [{"state": "hall1", "next_state": "PIT", "outcome": FAILURE}]
    credit = rewardflow.assign(chains([moves, failed]), GRAPH(similarity="difflib:0.7", pool="mean"))
    assert [row.parts["value"] for row in credit.steps] == pytest.approx([0.81, *[0.9] * halls, 0.9])
    assert [row.parts["gain"] for row in credit.steps] == pytest.approx([0.09, *[0.0] * (halls - 1), 0.1, -0.9])


def test_a_member_without_an_exit_that_leads_to_a_success_has_no_value() -> None:
    one = [{"state": "hall2", "next_state": "GOAL", "outcome": SUCCESS}]
    other = [{"state": "hall1", "next_state": "PIT", "outcome": FAILURE}]
    credit = rewardflow.assign(chains([one, other]), GRAPH(similarity="difflib:0.7", pool="mean"))
    assert [row.parts["value"] for row in credit.steps] == pytest.approx([0.45, 0.45])


def test_similarity_that_finds_nothing_changes_nothing() -> None:
    grown = chains([walk("abcd", SUCCESS), walk("abe", TRUNCATED), walk("abbc", FAILURE, invalid={1})])
    for pool in ("max", "mean"):
        similar = GRAPH(similarity="difflib:1.0", pool=pool)
        assert advantages(rewardflow.assign(grown, similar)) == pytest.approx(
            advantages(rewardflow.assign(grown, GRAPH()))
        )
    assert gigpo.assign(grown, gigpo.GigpoSettings(similarity="difflib:1.0")) == gigpo.assign(
        grown, gigpo.GigpoSettings()
    )


def test_a_move_within_a_cluster_changes_nothing_and_is_pruned() -> None:
    of = {key: key for key in "abcd"} | {"b": "a"}
    graph = build(chains([walk("abcd", SUCCESS)]), clusters=of)
    assert graph.pruned == [True, False, False]
    assert {node.key: node.hops for node in graph.nodes} == {"a": 2, "c": 1, "d": 0}


def test_pruning_can_be_turned_off() -> None:
    grown = chains([walk("abbc", SUCCESS, invalid={1})])
    credit = rewardflow.assign(grown, GRAPH(pruning=False))
    graph = build(grown, pruning=False)
    assert graph.pruned == [False, False, False]
    assert (1, 1) in {(edge.source, edge.target) for edge in graph.edges}
    assert [row.parts["gain"] for row in credit.steps] == pytest.approx([0.09, 0.0, 0.1])
