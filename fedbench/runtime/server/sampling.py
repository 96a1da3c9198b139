"""Who trains in a round, and who is evaluated after it.

Participants are a pure function of seed and round, the same for every method.
"""

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from fedbench.config import Config
from fedbench.config.counts import count_of
from fedbench.methods.base import Method
from fedbench.module import seeds
from fedbench.runtime.exchange import POOLED


class Calendar:
    """The rounds of a run: their participants, who of them trains, and which rounds are evaluated.

    evaluated: the clients that are, fixed for the run; honest: the number of those that could be.
    """

    def __init__(self, config: Config, seed: int, clients: int, method: Method, malicious: Collection[int]) -> None:
        self.config, self.seed, self.clients, self.method = config, seed, clients, method
        self.evaluated = evaluated_clients(seed, clients, config.evaluate.clients, malicious)
        self.honest = clients - len(malicious)
        self._known: dict[int, list[int]] = {}

    def participants(self, round: int) -> list[int]:
        """The participants of a round."""
        return participants(self.seed, round, self.clients, self.config.participation)

    def trainers(self, drawn: Sequence[int]) -> Sequence[int]:
        """Who trains in a round with these participants."""
        everybody = {"drawn": drawn, "all": range(self.clients), "pooled": [POOLED]}
        return everybody[self.method.trainers(self.method.options)]

    def is_evaluated(self, round: int) -> bool:
        """Whether the models of this round are evaluated."""
        return round >= 1 and (round % self.config.evaluate.every == 0 or round == self.config.rounds)

    def last_fits(self, clients: set[int], round: int) -> set[int]:
        """The clients whose model of this round is still their newest when after_fit is next reported."""
        for past in [known for known in self._known if known < round]:
            del self._known[past]
        while clients and not self.is_evaluated(round):
            round += 1
            if round not in self._known:  # the next round asks again
                self._known[round] = self.participants(round)
            clients = clients.difference(self._known[round])
        return clients


def participants(seed: int, round: int, clients: int, participation: float) -> list[int]:
    """The clients drawn for a round, ascending, uniformly without replacement."""
    count = count_of(clients, participation)
    if count == clients:
        return list(range(clients))
    draw = seeds.numpy_generator(seed, round, "participants").choice(clients, count, replace=False)
    drawn: list[int] = np.sort(draw).tolist()
    return drawn


def evaluated_clients(
    seed: int, clients: int, sample: int | Literal["all"] | None, malicious: Collection[int] = ()
) -> list[int]:
    """The evaluated clients, which are honest: all, or a sample that is fixed for the run."""
    honest = [client for client in range(clients) if client not in malicious]
    if sample in (None, "all") or int(sample) >= len(honest):
        return honest
    places = seeds.numpy_generator(seed, "evaluated").choice(len(honest), int(sample), replace=False)
    return sorted(honest[index] for index in places.tolist())
