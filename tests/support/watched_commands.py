"""Runs command lines one after the other, given as JSON on stdin, until one fails or has contacted something beyond this machine.

It is started with the folder `watching` on PYTHONPATH. That all share a process saves their imports.
"""

import json
import os
import sys
from pathlib import Path

from command_line import agentcli

if __name__ == "__main__":
    for words in json.load(sys.stdin):
        answer = agentcli(*words)
        contacts = Path(os.environ["CONTACTS"]).read_text()
        if answer.code or contacts:
            sys.exit(f"{' '.join(words)}: exit code {answer.code}\n{answer.stderr}\n{contacts}")
