"""Which of several processes this is: torchrun starts one command several times."""

import os


def rank() -> int:
    """The number of this process, from 0; 0 where it is the only one."""
    number = os.environ.get("RANK", "")
    return int(number) if number.isdecimal() else 0
