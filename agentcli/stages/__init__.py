"""The stages of training. Each is a plan and its performance.

A stage resolves its inputs, calls the methods, and writes its files and its manifest
entry. It takes Settings and paths; the command line only parses and prints.
"""
