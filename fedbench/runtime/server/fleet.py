"""The fates of the participants of a round: lost uploads, early ends, and times per step.

Each draw is a function of seed and round, or of the seed alone, and the same for every method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from fedbench.config import Config
from fedbench.config.fleet import StragglersConfig
from fedbench.module import seeds

SERVER = -1
"""The client number of traces that are of no client."""


def drawn_share(seed: int, round: int, clients: Sequence[int], share: float, purpose: str) -> set[int]:
    """The clients that an event hits in a round, drawn independently with probability `share`."""
    if not share:
        return set()
    draws = seeds.numpy_generator(seed, round, purpose).random(len(clients))
    return {client for client, draw in zip(clients, draws.tolist(), strict=True) if draw < share}


def lost_uploads(seed: int, round: int, participants: Sequence[int], dropout: float) -> set[int]:
    """The participants whose upload does not arrive."""
    return drawn_share(seed, round, participants, dropout, "dropout")


def work_shares(seed: int, round: int, participants: Sequence[int], config: StragglersConfig) -> dict[int, float]:
    """The share of its local steps that each straggler takes."""
    late = drawn_share(seed, round, participants, config.share, "early stops")
    return dict.fromkeys(late, config.work)


@dataclass(frozen=True)
class RoundFleet:
    """The accidents of a round. lost: whose upload does not arrive; work: the share of steps that a straggler takes."""

    lost: set[int]
    work: dict[int, float]

    @classmethod
    def of(cls, config: Config, seed: int, round: int, participants: Sequence[int]) -> "RoundFleet":
        """The draws of a round."""
        lost = lost_uploads(seed, round, participants, config.dropout)
        return cls(lost, work_shares(seed, round, participants, config.stragglers))

    def of_task(self, client: int) -> dict[str, Any]:
        """The fields of a client's task."""
        return {"work": self.work.get(client, 1.0), "is_lost": client in self.lost}


def step_time(seed: int, client: int, spread: float) -> float:
    """The time of one gradient step of a client, log-normal, in units of the median client's; fixed for the run."""
    return exp(spread * float(seeds.numpy_generator(seed, client, "speed").standard_normal()))


def round_time(seed: int, steps: Mapping[int, int], spread: float) -> float:
    """The time that a synchronous server waits, in steps of the median client: that of its slowest client.

    steps: of the clients whose uploads arrive.
    """
    return max((step_time(seed, client, spread) * count for client, count in steps.items()), default=0.0)


def fleet_traces(config: Config, seed: int, steps: Mapping[int, int], lost: set[int]) -> dict[tuple[int, str], float]:
    """Traces of a round: how many uploads got lost, and how long the server waits for the others.

    steps: of every participant that trained.
    """
    traces = {}
    if config.dropout:
        traces[SERVER, "lost_uploads"] = float(len(lost))
    if config.stragglers.spread:
        arrived = {client: count for client, count in steps.items() if client not in lost and client >= 0}
        traces[SERVER, "round_time"] = round_time(seed, arrived, config.stragglers.spread)
    return traces
