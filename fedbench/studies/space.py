"""What a method is tuned over: the values of some keys, and the points that are tried of them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from typing import Any

from fedbench import methods
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.results.plan import text_of

SEARCHED = ("method.", "train.")
SCALE = 3
"""From so many numbers on the values of a key are a scale, which has two ends; fewer are a choice."""
Values = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Values by dotted key, and which of their combinations make sense."""

    axes: dict[str, list[Any]] = field(default_factory=dict)
    constraint: Callable[[Values], bool] | None = None

    @classmethod
    def of(cls, method: str) -> "Space":
        """SPACE and CONSTRAINT of tune_spaces/<method>.py. Raises ConfigError where there is none."""
        name = method.rpartition(":")[2].replace("-", "_").lower()
        try:
            module = import_module(f"tune_spaces.{name}")
        except ModuleNotFoundError:
            raise ConfigError(
                f"no space for method {method}: write tune_spaces/{name}.py with SPACE = {{key: [values]}}, or give "
                "--space KEY=V1,V2,..."
            ) from None
        return cls(module.SPACE, getattr(module, "CONSTRAINT", None))

    def without(self, keys: Sequence[str]) -> "Space":
        """A key that the user set is no axis."""
        return Space({key: list(values) for key, values in self.axes.items() if key not in keys}, self.constraint)

    def points(self, most: int | None = None) -> list[Values]:
        """All points, or so many of them, drawn at random but always the same ones."""
        whole = [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]
        legal = [point for point in whole if self.constraint is None or self.constraint(point)]
        if most is None or most >= len(legal):
            return legal
        return [legal[i] for i in sorted(random.Random(0).sample(range(len(legal)), most))]


def check_space(axes: Mapping[str, Sequence[Any]]) -> None:
    """Raises ConfigError where points would not be different runs on the same data, model and seeds."""
    for key, values in axes.items():
        if not key.startswith(SEARCHED) or key == "method.name":
            raise ConfigError(
                f"space: {key}: a grid searches keys of method.* and train.*, all else is the same for its points and "
                f"baselines; leave it out, or set one value with --{key}"
            )
        if not values or len(set(map(text_of, values))) < len(values):
            raise ConfigError(f"space: {key} = {values}: must be one or more different values; give each once")


def at_an_end(method: str, tried: Sequence[Values], best: Values) -> list[str]:
    """The keys whose best value is the lowest or highest that was tried, so that a better one may lie beyond.

    A choice between fewer than three numbers has no ends, and a value beyond which none is legal is none.
    """
    return [key for key in best if _is_end(method, key, [point[key] for point in tried], best[key])]


def _is_end(method: str, key: str, values: Sequence[Any], best: Any) -> bool:
    numbers = {v for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(numbers) < SCALE or best not in numbers or min(numbers) < best < max(numbers):
        return False
    section, _, name = key.partition(".")
    kind = methods.load(method).Options if section == "method" else type(Config().train)
    bound = "ge" if best == min(numbers) else "le"
    return best not in [getattr(limit, bound, None) for limit in kind.model_fields[name].metadata]
