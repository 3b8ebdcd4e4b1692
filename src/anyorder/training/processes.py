"""Which of the processes that train together this one is, by what torchrun tells it."""

import os

import torch.distributed as dist

from anyorder.errors import ConfigError

NEEDED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
"""What several processes must be told: which one they are, and where they meet."""

REMEDY = "Start with torchrun, which sets it; or unset WORLD_SIZE and RANK to train alone."


def place_and_number() -> tuple[int, int]:
    """The number of this process, and how many there are: 0 and 1 for one that is alone.

    Whoever trains and whoever saves must read it here: a process that trains alone saves too.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    size, rank = number_in("WORLD_SIZE", 1, low=1), number_in("RANK", 0, low=0)
    if rank >= size:
        told = f"WORLD_SIZE is {size}" if "WORLD_SIZE" in os.environ else "WORLD_SIZE is not set"
        raise ConfigError(
            f"The variable RANK must be below WORLD_SIZE, the number of processes; it is {rank}, "
            f"and {told}. {REMEDY}"
        )
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if size > 1 and missing:
        raise ConfigError(f"WORLD_SIZE is {size}, but {missing[0]} is not set. {REMEDY}")
    return rank, size


def number_in(variable: str, default: int, *, low: int) -> int:
    """The whole number in a variable of the environment."""
    text = os.environ.get(variable, str(default)).strip()
    if not text.isascii() or not text.isdigit() or int(text) < low:
        raise ConfigError(
            f'The variable {variable} must be a whole number, {low} or more; got "{text}". {REMEDY}'
        )
    return int(text)
