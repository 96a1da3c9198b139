"""The interface and the table of aggregators, which combine the participants' models into one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, ClassVar

import torch
from pydantic import ValidationError
from torch import Tensor

from fedbench.aggregation import rules
from fedbench.aggregation.means import elementwise_max, weighted_mean
from fedbench.config import AggregatorConfig, Section
from fedbench.config.words import explain
from fedbench.errors import ConfigError, nearest
from fedbench.import_string import import_string
from fedbench.module.weights import Weights

MEAN = AggregatorConfig().name
Memory = dict[str, Any]


def overtaken(kind: type, trait: str, *hooks: str) -> bool:
    """Whether a class inherits one of the hooks from a class that precedes the one that sets the trait.

    The trait then describes another hook.
    """
    place = {name: at for at, one in reversed([*enumerate(kind.__mro__)]) for name in vars(one)}
    return min(place[hook] for hook in hooks) < place[trait]


class Aggregator(ABC):
    """Computes the next shared model. Sees what is shared, and nothing that stays at a client.

    Batch counters are not averaged; the largest counts. What a method uploads besides its model, such as feature
    statistics, is combined by the method.

    mean_suffices: the weighted mean of all models gives the same result as the models; a class with its own `combine`
    must set it.
    """

    mean_suffices: ClassVar[bool] = False

    class Options(Section):
        """Options, set as `aggregator.<option>`."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if overtaken(cls, "mean_suffices", "combine"):
            cls.mean_suffices = False

    def __init__(self, options: Any = None, name: str = MEAN) -> None:
        self.options: Any = self.Options() if options is None else options
        self.name = name

    def check(self, drawn: int, size: int) -> Iterable[str]:
        """Lines to print once before round 1. drawn: participants of a round; size: shared parameters.

        Raises ConfigError for options that cannot work.
        """
        return ()

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


def combined(
    models: Sequence[Weights], rule: Callable[[list[Tensor]], Tensor], params: Tensor | None = None
) -> Weights:
    """Applies a rule on n vectors `[N]` to parameters and buffers; `params` if they are computed already."""
    return Weights(
        rule([m.params for m in models]) if params is None else params,
        rule([m.buffers for m in models]),
        elementwise_max([m.counters for m in models]),
    )


class Own(Aggregator):
    """A user's function `(vectors [n, N], weights [n], current [N]) -> vector [N]`; buffers are averaged."""

    def __init__(self, name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__(name=name)
        self.function = function

    def check(self, drawn: int, size: int) -> Iterable[str]:
        """Tries the function on zero vectors."""
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
            raise ConfigError(f"aggregator {self.name}: failed ({type(error).__name__}: {error})") from error
        if not isinstance(found, Tensor) or found.shape != current.shape:
            what = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise ConfigError(
                f"aggregator {self.name}: returned {what}; from vectors {list(vectors.shape)} it must make one "
                f"{list(current.shape)}"
            )
        if not found.isfinite().all():
            raise ConfigError(f"aggregator {self.name}: returned numbers that are not finite")
        return found.detach().to(current)


def load(name: str) -> type[Aggregator]:
    """The class of an aggregator by name. Raises ConfigError."""
    if name not in rules.names():
        raise ConfigError(
            f"unknown aggregator '{name}': {nearest(name, rules.names())} (your own: package.module:function)"
        )
    module = import_module(f"{rules.__name__}.{name.replace('-', '_')}")
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    (kind,) = [value for value in own if isinstance(value, type) and issubclass(value, Aggregator)]
    return kind


def checked_options(asked: AggregatorConfig) -> Section:
    """The aggregator's options with defaults. Raises ConfigError for unknown or illegal ones."""
    kind = Aggregator.Options if ":" in asked.name else load(asked.name).Options
    for key in asked.options:
        if key not in kind.model_fields:
            takes = ", ".join(kind.model_fields) or "no options"
            raise ConfigError(f"unknown key aggregator.{key}: aggregator {asked.name} takes {takes}")
    try:
        return kind(**asked.options)
    except ValidationError as error:
        raise ConfigError(explain(error, kind, "aggregator.")) from None


def make(asked: AggregatorConfig) -> Aggregator:
    """Creates the configured aggregator. Raises ConfigError."""
    options = checked_options(asked)
    if ":" not in asked.name:
        return load(asked.name)(options, asked.name)
    function = import_string(asked.name, "aggregator")
    if not callable(function):
        raise ConfigError(f"aggregator '{asked.name}' is not a function (vectors, weights, current) -> vector")
    return Own(asked.name, function)
