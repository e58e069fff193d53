"""The stages of training; each has a plan and a function that performs it.

A stage resolves its inputs, calls the methods, and writes its files and its manifest
entry. It takes Settings and paths; the command line only parses and prints.
"""
