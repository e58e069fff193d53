"""Reads files and answers: comparisons, explanations, checks, schemas, the machine.

Nothing here writes a file.
"""
