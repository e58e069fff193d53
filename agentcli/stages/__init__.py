"""The stages: each resolves its inputs, calls the methods, writes its files and its
manifest entry. A stage is a plain function of a Settings object and paths; the command
line only parses and prints.
"""
