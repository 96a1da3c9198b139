"""Bulyan over Krum (El Mhamdi, Guerraoui, Rouault; ICML 2018, section 4)."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.columns import GATHERED, by_columns
from fedbench.aggregation.rules.krum import check_participants, krum_scores, squared_distances
from fedbench.config import Section
from fedbench.module.weights import Weights


class Bulyan(Aggregator):
    """The mean, for every parameter, of the values nearest to the median among models that Krum selects.

    Krum selects n - 2 f models, one after another; of their values the n - 4 f nearest to the median are averaged. As
    published, client weights are ignored. Needs n >= 4 f + 3 participants.
    """

    class Options(Section):
        byzantine: int = Field(1, ge=0, description="participants of a round that may be malicious, f")

    @property
    def fewest(self) -> int:
        return 4 * self.options.byzantine + 3

    def check(self, participants: int, size: int) -> tuple[str, ...]:
        check_participants(self, 4, participants)
        return ()

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        byzantine = self.options.byzantine
        chosen = [models[i] for i in select(squared_distances([m.params for m in models]), byzantine)]
        return combine_by(chosen, lambda vectors: mean_near_median(vectors, len(chosen) - 2 * byzantine))


def select(squared: Tensor, byzantine: int) -> list[int]:
    """The places of the n - 2 f points that Krum takes one after another, ascending. squared: distances `[n, n]`."""
    left = [*range(len(squared))]
    chosen = []
    for _ in range(len(squared) - 2 * byzantine):
        scores = krum_scores(squared[left][:, left], min(byzantine, max(0, len(left) - 3)))
        chosen.append(left.pop(int(scores.argmin())))
    return sorted(chosen)


def mean_near_median(vectors: Sequence[Tensor], count: int) -> Tensor:
    """The mean of the `count` values nearest to the median, for every column of vectors `[N]`."""
    out = torch.empty_like(vectors[0])

    def part(columns: slice) -> None:
        rows = torch.stack([vector[columns] for vector in vectors]).double()
        low, high = (len(rows) - 1) // 2, len(rows) // 2
        ordered = rows.sort(0).values
        median = (ordered[low] + ordered[high]) / 2
        nearest = (ordered - median).abs().argsort(dim=0, stable=True)[:count]
        out[columns] = ordered.gather(0, nearest).mean(0)

    by_columns(part, len(out), GATHERED)
    return out
