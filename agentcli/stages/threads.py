"""One torch thread per process by default: two collapse when cores are shared."""


def use_threads(count: int) -> None:
    """Set this process's torch threads."""
    import torch

    torch.set_num_threads(count)
