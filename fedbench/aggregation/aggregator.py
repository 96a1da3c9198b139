"""What an aggregator is: how one model is made of those that the participants of a round share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedbench.aggregation.means import elementwise_max, weighted_mean
from fedbench.config import AggregatorConfig, Section
from fedbench.errors import ConfigError
from fedbench.module.weights import Weights

MEAN = AggregatorConfig().name
Memory = dict[str, Any]


Hook = TypeVar("Hook", bound=Callable[..., Any])


def mean_suffices(hook: Hook) -> Hook:
    """Marks a hook that makes the same of one model, the weighted mean of all, as of all of them.

    Then hosts may add models up (of whole numbers the largest counts). A hook that takes the place of a marked one has
    no mark, until it is marked too.
    """
    vars(hook)["mean_suffices"] = True
    return hook


class Aggregator(ABC):
    """A way to make the next shared model. It sees what is shared, and nothing that stays at a client.

    Counters of batches are never averaged: each is the largest one. What a method uploads beside its model, such as
    statistics of features, it combines by its own rule. A `combine` that needs no more than the mean is marked by
    `mean_suffices`.
    """

    class Options(Section):
        """Options as `aggregator.<option>`."""

    def __init__(self, options: Any = None, name: str = MEAN) -> None:
        self.options: Any = self.Options() if options is None else options
        self.name = name

    def check(self, drawn: int, size: int) -> Iterable[str]:
        """Lines to say once before round 1. drawn: participants of a round; size: shared parameters.

        Raises ConfigError for what cannot work.
        """
        return ()

    @property
    def needs_mean_only(self) -> bool:
        """Whether its `combine` makes the same of the weighted mean as of all models."""
        return getattr(self.combine, "mean_suffices", False)

    @property
    def fewest(self) -> int:
        """Uploads that it needs. Where fewer come, because clients failed, the model stays as it was."""
        return 1

    @abstractmethod
    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        """The next model, from n >= `fewest` of them, ascending by client.

        weights: of the clients, summing to 1. current: the model that they were sent. memory: what the aggregator keeps
        from round to round, in checkpoints too: tensors, numbers, text, and lists and dicts of these; empty at first.
        """


def combined(
    models: Sequence[Weights], rule: Callable[[list[Tensor]], Tensor], params: Tensor | None = None
) -> Weights:
    """Parameters and buffers each by a rule on n vectors `[N]`, or parameters that are made already."""
    return Weights(
        rule([m.params for m in models]) if params is None else params,
        rule([m.buffers for m in models]),
        elementwise_max([m.counters for m in models]),
    )


class Own(Aggregator):
    """A function of the user, `(vectors [n, N], weights [n], current [N]) -> vector [N]`; buffers are averaged."""

    def __init__(self, name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__(name=name)
        self.function = function

    def check(self, drawn: int, size: int) -> Iterable[str]:
        """Tries the function on vectors of zeros."""
        self._called(torch.zeros(size).expand(drawn, size), torch.full((drawn,), 1 / drawn), torch.zeros(size))
        return ()

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        vectors = torch.stack([model.params for model in models])
        params = self._called(vectors, vectors.new_tensor(weights), current.params.clone())
        return combined(models, lambda buffers: weighted_mean(buffers, weights), params)

    def _called(self, vectors: Tensor, weights: Tensor, current: Tensor) -> Tensor:
        try:
            found = self.function(vectors, weights, current)
        except Exception as error:
            raise ConfigError(f"aggregator {self.name}: it failed ({type(error).__name__}: {error})") from error
        if not isinstance(found, Tensor) or found.shape != current.shape:
            what = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise ConfigError(
                f"aggregator {self.name}: it returned {what}; of vectors {list(vectors.shape)} it must make one "
                f"{list(current.shape)}"
            )
        if not found.isfinite().all():
            raise ConfigError(f"aggregator {self.name}: it returned numbers that are not finite")
        return found.detach().to(current)
