"""Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui, Stainer; NeurIPS 2017, sec. 4 and 5)."""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.columns import PRODUCTS, sum_by_columns
from fedbench.aggregation.means import mean
from fedbench.config import Section
from fedbench.errors import ConfigError
from fedbench.module.weights import Weights


class Krum(Aggregator):
    """The model whose parameters are nearest to their neighbours, or the plain mean of several such models.

    A model's score is the sum of its squared distances to its n - f - 2 nearest others. The lowest score wins; ties go
    to the first client. Float buffers come from the selected models. As published, client weights are ignored. Needs n
    >= 2 f + 3 participants.
    """

    class Options(Section):
        byzantine: int = Field(1, ge=0, description="participants of a round that may be malicious, f")
        select: int = Field(1, ge=1, description="number of models to average, m; 1: Krum, more: multi-Krum")

    @property
    def fewest(self) -> int:
        return 2 * self.options.byzantine + 3

    def check(self, participants: int, size: int) -> tuple[str, ...]:
        check_participants(self, 2, participants)
        if self.options.select > participants:
            raise ConfigError(
                f"aggregator.select = {self.options.select}: a round has {participants} participants; take at most "
                "that many"
            )
        return ()

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        scores = krum_scores(squared_distances([m.params for m in models]), self.options.byzantine)
        chosen = sorted(scores.argsort(stable=True)[: self.options.select].tolist())
        return combine_by([models[i] for i in chosen], mean)


def check_participants(rule: Aggregator, factor: int, participants: int) -> None:
    """Raises ConfigError if a rule that needs factor * f + 3 participants in a round has fewer."""
    if participants < rule.fewest:
        most = f"at most {(participants - 3) // factor}, or " if participants >= 3 else ""
        raise ConfigError(
            f"aggregator.byzantine = {rule.options.byzantine}: {rule.name} needs {factor} f + 3 = {rule.fewest} "
            f"participants in a round and there are {participants}; take {most}more clients in a round"
        )


def krum_scores(squared: Tensor, byzantine: int) -> Tensor:
    """The sum of the n - f - 2 smallest squared distances of each to the others, `[n]`, from all distances `[n, n]`."""
    nearest = squared.sort(1).values[:, 1:]  # without itself, at distance 0
    return nearest[:, : len(squared) - byzantine - 2].sum(1)


def squared_distances(vectors: Sequence[Tensor]) -> Tensor:
    """Float64 `[n, n]`, of n vectors `[N]`.

    Computed from inner products relative to the median of the vectors: relative to one of them or to their mean, a
    single hostile vector far away would make the other distances inaccurate.
    """

    def part(columns: slice) -> Tensor:
        rows = torch.stack([vector[columns] for vector in vectors]).cpu().numpy()
        moved = rows.astype(np.float64) - np.sort(rows, axis=0)[len(rows) // 2]
        return torch.from_numpy(moved @ moved.T)

    zeros = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    products = sum_by_columns(part, zeros, len(vectors[0]), PRODUCTS)
    norms = products.diagonal()
    return (norms[:, None] + norms - 2 * products).clamp_(min=0).fill_diagonal_(0)
