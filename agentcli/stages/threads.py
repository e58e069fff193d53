"""One torch thread per process by default: more are much slower on shared cores."""


def use_threads(count: int) -> None:
    """Sets the number of torch threads of this process."""
    import torch

    torch.set_num_threads(count)
