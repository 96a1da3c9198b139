"""Models made by hand, and what an aggregator makes of them."""

from collections.abc import Sequence
from typing import Any

import torch

from fedbench.aggregation.aggregator import Aggregator
from fedbench.module.weights import Weights


def model(params: Sequence[float], buffers: Sequence[float] = (), counters: Sequence[int] = ()) -> Weights:
    return Weights(torch.tensor(params), torch.tensor(buffers), torch.tensor(counters, dtype=torch.int64))


def scalars(*values: float) -> list[Weights]:
    """A model of one parameter and one buffer for each value; the buffer is ten times it, the counter its place."""
    return [model([value], [10 * value], [place]) for place, value in enumerate(values)]


def combine(
    rule: Aggregator,
    models: Sequence[Weights],
    weights: Sequence[float] = (),
    current: Weights | None = None,
    memory: dict[str, Any] | None = None,
) -> Weights:
    """Uniform weights, a model of zeros before, and no memory, unless they are given."""
    before = Weights(*(torch.zeros_like(part) for part in vars(models[0]).values())) if current is None else current
    weights = weights or [1 / len(models)] * len(models)
    return rule.combine(models, weights, before, {} if memory is None else memory)


def random_models(count: int, size: int = 50_000, seed: int = 0) -> list[Weights]:
    """More parameters than one chunk of columns holds."""
    stream = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randn(n, generator=stream)  # noqa: E731
    return [Weights(draw(size), draw(7), torch.tensor([i])) for i in range(count)]
