"""A study of the tunnel that is played in seconds."""

STUDY = """\
title: Credit in the tunnel
preset: quickstart-tunnel
settings:
  environment: {options: {forced: 1, games: {test: 10}}}
  demos: {count: 30}
  sft: {updates: 30}
  run: {iterations: 2}
  rollout: {tasks_per_step: 2, leaves: 4}
results:
- {paper: RewardFlow, table: Table 1, figures: {grpo: 26.6, rewardflow: 49.2}}
arms:
  grpo: {credit: {method: grpo}}
  rewardflow: {credit: {method: rewardflow}}
reference: grpo
seeds: 0-1
panels:
  test: {split: test, samples: 1}
sizes:
  laptop: {}
  paper:
    seeds: 0-2
    settings: {run: {iterations: 100}}
"""
