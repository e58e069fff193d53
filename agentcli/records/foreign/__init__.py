"""Files of other programs, read as trajectories: one reader a format, without their code.

rollouts.py holds what all formats have in common, and makes a tree of a group.
"""
