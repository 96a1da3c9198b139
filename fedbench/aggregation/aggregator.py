"""The interface of aggregators, which combine the participants' models into one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedbench.aggregation.means import elementwise_max, weighted_mean
from fedbench.config import AggregatorConfig, Section
from fedbench.errors import ConfigError
from fedbench.module import seeds
from fedbench.module.weights import Weights

MEAN = AggregatorConfig().name
Memory = dict[str, Any]
Hook = TypeVar("Hook", bound=Callable[..., Any])


def mean_suffices(hook: Hook) -> Hook:
    """Marks a hook that gives the same result for the weighted mean of all models as for the models themselves.

    Hosts may then sum models (of integers, the largest counts). A hook that overrides a marked one must be marked
    itself.
    """
    vars(hook)["mean_suffices"] = True
    return hook


class Aggregator(ABC):
    """Computes the next shared model. Sees what is shared, and nothing that stays at a client.

    Batch counters are not averaged; the largest counts. What a method uploads besides its model, such as feature
    statistics, is combined by the method. A `combine` that needs only the mean is marked by `mean_suffices`.
    """

    class Options(Section):
        """Options, set as `aggregator.<option>`."""

    def __init__(self, options: Any = None, name: str = MEAN) -> None:
        self.options: Any = self.Options() if options is None else options
        self.name = name
        self.generator: Callable[[str], torch.Generator] = partial(seeds.generator, "aggregator")
        """A random generator for a purpose in `combine`, of the seed and the round."""

    def check(self, participants: int, size: int) -> Iterable[str]:
        """Lines to print once before round 1. participants: of a round; size: shared parameters.

        Raises ConfigError for options that cannot work.
        """
        return ()

    @property
    def needs_mean_only(self) -> bool:
        """Whether `combine` gives the same result for the weighted mean as for all models."""
        return getattr(self.combine, "mean_suffices", False)

    @property
    def fewest(self) -> int:
        """Minimum number of uploads. With fewer, because clients failed, the model stays unchanged."""
        return 1

    @abstractmethod
    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        """The next model, from n >= `fewest` models in ascending order of clients.

        weights: of the clients, summing to 1. current: the model that they received. memory: state kept across rounds
        and in checkpoints: tensors, numbers, text, and lists and dicts of these; empty at first.
        """


def combine_by(
    models: Sequence[Weights], rule: Callable[[list[Tensor]], Tensor], params: Tensor | None = None
) -> Weights:
    """Applies a rule on n vectors `[N]` to parameters and buffers; `params` if they are computed already."""
    return Weights(
        rule([m.params for m in models]) if params is None else params,
        rule([m.buffers for m in models]),
        elementwise_max([m.counters for m in models]),
    )


class FunctionAggregator(Aggregator):
    """A user's function `(vectors [n, N], weights [n], current [N]) -> vector [N]`; buffers are averaged."""

    def __init__(self, name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__(name=name)
        self.function = function

    def check(self, participants: int, size: int) -> Iterable[str]:
        """Tries the function on zero vectors."""
        # No expanded tensor: `median` along a dimension of stride 0 returns memory that nobody wrote.
        self._call(torch.zeros(participants, size), torch.full((participants,), 1 / participants), torch.zeros(size))
        return ()

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        vectors = torch.stack([model.params for model in models])
        params = self._call(vectors, vectors.new_tensor(weights), current.params.clone())
        return combine_by(models, lambda buffers: weighted_mean(buffers, weights), params)

    def _call(self, vectors: Tensor, weights: Tensor, current: Tensor) -> Tensor:
        try:
            result = self.function(vectors, weights, current)
        except Exception as error:
            raise ConfigError(f"aggregator {self.name}: failed ({type(error).__name__}: {error})") from error
        if not isinstance(result, Tensor) or result.shape != current.shape:
            what = f"a tensor {list(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
            raise ConfigError(
                f"aggregator {self.name}: returned {what}; from vectors {list(vectors.shape)} it must make one "
                f"{list(current.shape)}"
            )
        if not result.isfinite().all():
            raise ConfigError(f"aggregator {self.name}: returned numbers that are not finite")
        return result.detach().to(current)
