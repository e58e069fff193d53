"""Trees to credit: one file per method, named in registry.py. Knows records only.

A worked example. From the hall the first trajectory goes to the kitchen (step 0) and
finds the cup there (step 1). The second forks in the kitchen and fails (step 2). The
other two fail at once (steps 3 and 4).

>>> from agentcli.credit.registry import make
>>> from agentcli.records.types import Ledger, Outcome, Step, Task, Tree
>>> def step(number, parent, state, next_state, outcome=None):
...     texts = dict.fromkeys(("prompt", "response", "observation"), "")
...     return Step(id=number, parent=parent, action=f"go to {next_state}",
...                 state=state, next_state=next_state, next_observation="",
...                 outcome=outcome, **texts)
>>> steps = [
...     step(0, None, "hall", "kitchen"),
...     step(1, 0, "kitchen", "cup", Outcome.SUCCESS),
...     step(2, 0, "kitchen", "cellar", Outcome.FAILURE),
...     step(3, None, "hall", "garden", Outcome.FAILURE),
...     step(4, None, "hall", "street", Outcome.FAILURE),
... ]
>>> task = Task(id="cup", world="house", split="train", kind="find")
>>> tree = Tree(task=task, instruction="find the cup", method="chain", seed=0,
...             steps=steps, ledger=Ledger())
>>> def show(method, *parts):
...     _, assign, settings = make({"method": method})
...     rows = assign(tree, settings).steps
...     print(method, *(f"{row.advantage:+.2f}" for row in rows))
...     for part in parts:
...         print(" ", part, *(f"{row.parts[part]:+.2f}" for row in rows))

The rewards of the leaves are 1, 0, 0, 0: mean 0.25, std 0.5. A success is 1.5 std
above the mean, a failure 0.5 below; the shared step 0 takes the mean of its two leaves.
Leaving one out, a success is 1 above the other three.

>>> show("grpo")
grpo +0.50 +1.50 -0.50 -0.50 -0.50
>>> show("rloo")
rloo +0.33 +1.00 -0.33 -0.33 -0.33

carl and treerpo go by expected rewards: 1/2 in the kitchen, and (1/2 + 0 + 0) / 3 in
the hall. carl takes the difference, treerpo divides it by the std of the siblings.

>>> show("carl", "baseline")
carl +0.33 +0.50 -0.50 -0.17 -0.17
  baseline +0.17 +0.50 +0.50 +0.17 +0.17
>>> show("treerpo")
treerpo +1.15 +0.71 -0.71 -0.58 -0.58

treerl goes by leaves: 1/4 of the hall's succeed, 1/2 of the kitchen's. Step 0 is 1/4
above the root, which is also its parent, and is divided by the root of its 2 leaves.

>>> show("treerl")
treerl +0.35 +1.25 -0.75 -0.50 -0.50

rewardflow adds how much closer a step came to the cup: the hall is worth 0.9 ** 2, the
kitchen 0.9, the cup 1, a dead end 0.

>>> show("rewardflow", "gain", "action", "trajectory")
rewardflow +1.65 +2.21 -1.21 -1.08 -1.08
  gain +0.09 +0.10 -0.90 -0.81 -0.81
  action +1.15 +0.71 -0.71 -0.58 -0.58
  trajectory +0.50 +1.50 -0.50 -0.50 -0.50
"""
