"""Credit assignment: one module per method, listed in registry.py.

Of the other subpackages it imports only records.

A worked example. The first trajectory goes from the hall to the kitchen (step 0) and
finds the cup there (step 1). The second is forked in the kitchen and fails (step 2).
The other two fail at once (steps 3 and 4).

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
above the mean, a failure 0.5 std below it. The shared step 0 gets the mean over its two
leaves. With leave-one-out, a success is 1 above the mean of the other three.

>>> show("grpo")
grpo +0.50 +1.50 -0.50 -0.50 -0.50
>>> show("rloo")
rloo +0.33 +1.00 -0.33 -0.33 -0.33

carl and treerpo use expected rewards: 1/2 in the kitchen, and (1/2 + 0 + 0) / 3 in the
hall. carl takes the difference; treerpo also divides it by the std of the siblings.

>>> show("carl", "baseline")
carl +0.33 +0.50 -0.50 -0.17 -0.17
  baseline +0.17 +0.50 +0.50 +0.17 +0.17
>>> show("treerpo")
treerpo +1.15 +0.71 -0.71 -0.58 -0.58

treerl uses the share of leaves that succeed: 1/4 below the hall, 1/2 below the kitchen.
Step 0 is 1/4 above the root, which is also its parent, so it gets
(1/4 + 1/4) / sqrt(2 leaves).

>>> show("treerl")
treerl +0.35 +1.25 -0.75 -0.50 -0.50

rewardflow adds a term for how much closer the step came to the cup. The value of a
state is 0.9 ** 2 in the hall, 0.9 in the kitchen, 1 at the cup and 0 at a dead end.

>>> show("rewardflow", "gain", "action", "trajectory")
rewardflow +1.65 +2.21 -1.21 -1.08 -1.08
  gain +0.09 +0.10 -0.90 -0.81 -0.81
  action +1.15 +0.71 -0.71 -0.58 -0.58
  trajectory +0.50 +1.50 -0.50 -0.50 -0.50
"""
