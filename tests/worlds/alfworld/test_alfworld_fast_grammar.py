"""The fast engine against TextWorld on a small world of its own, whose grammar does what ALFWorld's never does.

Two actions typed alike, subtypes in queries, pairs of distinct things, rules with `not_` conditions, commands whose text
changes with the facts, nested rules and empty lists.
"""

import json
import random
from pathlib import Path

import pytest
from agentcli.records.types import Task
from agentcli.worlds.alfworld.engine import FastEngine, StockEngine
from agentcli.worlds.alfworld.fast.game import close_idle

DOMAIN = """(define (domain toy) (:requirements :adl :typing) (:types box thing fruit toy - thing)
 (:predicates (in ?t - thing ?b - box) (near ?a - box ?b - box) (wet ?t - thing) (sealed ?b - box))
 (:action move :parameters (?t - fruit ?a - box ?b - box) :precondition (and (in ?t ?a) (near ?a ?b) (not (sealed ?b)))
  :effect (and (not (in ?t ?a)) (in ?t ?b)))
 (:action toss :parameters (?t - toy ?a - box ?b - box) :precondition (and (in ?t ?a) (near ?a ?b))
  :effect (and (not (in ?t ?a)) (in ?t ?b) (wet ?t)))
 (:action dunk :parameters (?t - toy ?a - box ?b - box) :precondition (and (in ?t ?a) (near ?a ?b))
  :effect (and (wet ?t) (sealed ?b)))
 (:action unseal :parameters (?b - box) :precondition (sealed ?b) :effect (not (sealed ?b)))
 (:action survey :parameters () :precondition () :effect (and)))"""
PROBLEM = """(define (problem p) (:domain toy)
 (:objects a_bar_1 a_bar_2 c_bar_1 - box fig_bar_1 fig_bar_2 nut_bar_1 - fruit car_bar_1 bus_bar_1 - toy)
 (:init (near a_bar_1 a_bar_2) (near a_bar_2 c_bar_1) (near c_bar_1 a_bar_1) (near a_bar_1 c_bar_1)
  (in fig_bar_1 a_bar_1) (in fig_bar_2 a_bar_1) (in nut_bar_1 a_bar_2) (in car_bar_1 a_bar_1) (in bus_bar_1 c_bar_1)
  (sealed c_bar_1))
 (:goal (and (in fig_bar_1 c_bar_1) (in fig_bar_2 c_bar_1) (wet bus_bar_1))))"""
GRAMMAR = r'''
grammar :: """
{
  "intro": [{"rhs": "Boxes: [{#box(b)# | near(a:box, b:box)}].\n\n#task#"}],
  "task": [{"rhs": "Your task is to: tidy up."}],
  "box(b)": [
    {"condition": "sealed(b:box) & in(t:fruit, b:box)", "rhs": "{b.indefinite} sealed {b.name} of fruit"},
    {"condition": "not_sealed(b:box)", "rhs": "{b.name} (opened)"},
    {"rhs": "{b.definite} {b.name}"}],
  "things": [{"rhs": "[{t.name | in(t:thing, b:box)}]"}],
  "pairs": [{"rhs": "[{x.name + '+' + y.name | in(x:thing, b:box) & in(y:thing, b:box)}]"}],
  "told": [{"rhs": "Now {b.name} holds #things#; pairs #pairs#; loose [{t.name | not_in(t:thing, b:box)}]."}],
  "survey": [{"rhs": "[{#box(b)# | near(a:box, b:box)}] {t.name | wet(t:toy)}."}],
  "list_empty": [{"rhs": "none"}], "list_separator": [{"rhs": "; "}], "list_last_separator": [{"rhs": " and "}]
}
""";
action move { template :: "put {t} into {b}"; feedback :: "#told#"; }
action toss { template :: "play with {t}"; feedback :: "#told#"; }
action dunk { template :: "play with {t}"; feedback :: "Splash {t.name or t.id}! #told#"; }
action unseal { template :: "open {b} of [{t.name | in(t:fruit, b:box)}]"; feedback :: "#told#"; }
action survey { template :: "survey"; feedback :: "#survey#"; }
'''


def locate(task: Task) -> Path:
    return Path(task.id)


@pytest.mark.parametrize("seed", range(3))
def test_every_turn_of_the_grammar_is_textworlds(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps({"pddl_domain": DOMAIN, "pddl_problem": PROBLEM, "grammar": GRAMMAR}))
    task = Task(id=str(path), world="alfworld", split="train", kind="toy")
    fast, stock = FastEngine(locate, tmp_path / "cache"), StockEngine(locate)
    start = fast.start(task)
    assert start == stock.start(task)
    observation, texts = start.observation, {start.observation.text}
    rng = random.Random(seed)
    for _ in range(25):
        action = rng.choice(observation.actions)
        observation = fast.step(action)
        assert observation == stock.step(action)
        assert fast.facts() == stock.facts()
        texts.add(observation.text)
    assert len(texts) > 8
    fast.close()
    close_idle()
