"""Draws the participants of a round, a pure function of seed and round that is the same for every method."""

from collections.abc import Collection
from typing import Literal

import numpy as np

from fedbench.config.counts import count_of
from fedbench.module import seeds


def participants(seed: int, round: int, clients: int, participation: float) -> list[int]:
    """The clients drawn for a round, ascending, uniformly without replacement."""
    count = count_of(clients, participation)
    if count == clients:
        return list(range(clients))
    draw = seeds.numpy_generator(seed, round, "participants").choice(clients, count, replace=False)
    found: list[int] = np.sort(draw).tolist()
    return found


def evaluated_clients(
    seed: int, clients: int, sample: int | Literal["all"] | None, malicious: Collection[int] = ()
) -> list[int]:
    """The evaluated clients, which are honest: all, or a sample that is fixed for the run."""
    honest = [client for client in range(clients) if client not in malicious]
    if sample in (None, "all") or int(sample) >= len(honest):
        return honest
    places = seeds.numpy_generator(seed, "evaluated").choice(len(honest), int(sample), replace=False)
    return sorted(honest[place] for place in places.tolist())
