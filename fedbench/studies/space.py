"""The tuning space of a method: values of some keys, and the points to try."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from fedbench import methods, tune_space
from fedbench.errors import ConfigError, as_config_error
from fedbench.results.plan import is_number, point_name
from fedbench.studies.axis import DIGITS, SEARCHED, Axis

MOST_COVERED = 2000
"""Points of a space to which distances are computed; of more, as many drawn at random."""
MOST_MISSED = 1000
"""Number of consecutive invalid or known draws at which a space counts as exhausted."""
Values = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Axes by dotted key, also made from values and distributions, and a constraint on their combinations.

    given: values of further keys, the same for all points, which the constraint sees too. lent: the method that owns
    the space, if it is another one. optimizer: that for which its rates are; None: unknown. as_listed: whether they are
    tried as they are, also with another one. listed: keys whose values the user listed for this study.
    """

    axes: Mapping[str, Any] = field(default_factory=dict)
    constraint: Callable[[Values], bool] | None = None
    given: Values = field(default_factory=dict)
    lent: str = ""
    optimizer: str | None = None
    as_listed: bool = False
    listed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        axes = {key: own if isinstance(own, Axis) else Axis(key, own) for key, own in self.axes.items()}
        object.__setattr__(self, "axes", axes)

    @classmethod
    def of(cls, method: str) -> "Space":
        """SPACE and CONSTRAINT of tune_spaces/<method>.py, or of the method that it derives from.

        Raises ConfigError if there is none.
        """
        if of_method := tune_space.find(method):
            name, module = of_method
            lent = "" if name == method else name
            axes, optimizer = tune_space.checked_axes(module), tune_space.optimizer_of(module)
            return cls(axes, getattr(module, "CONSTRAINT", None), lent=lent, optimizer=optimizer)
        file = f"tune_spaces/{tune_space.file_of(method)}.py"
        raise ConfigError(
            f"no space for method {method}: write {file} with SPACE = {{key: [values]}}, or "
            "give fedbench grid --space KEY=V1,V2,..., and fedbench compare --tune 0"
        )

    @classmethod
    def paper(cls, method: str) -> "Space | None":
        """PAPER instead, the grid of the method's paper; None if the paper names none."""
        axes = tune_space.paper_axes(method)
        if not axes:
            return None
        module = tune_space.module_of(method)
        optimizer = tune_space.optimizer_of(module)
        return cls(axes, getattr(module, "CONSTRAINT", None), optimizer=optimizer, as_listed=True)

    @classmethod
    def given_for(cls, method: str, axes: Mapping[str, Any]) -> "Space":
        """The user's values, under the constraint of the method's space, if it has one."""
        of_method = tune_space.find(method)
        return cls(dict(axes), getattr(of_method[1], "CONSTRAINT", None) if of_method else None, as_listed=True)

    def with_own_names(self, method: str) -> "Space":
        """The space with the method's own names of options instead of symbols."""
        axes = {methods.full_key(method, key): axis.values for key, axis in self.axes.items()}
        if len(axes) < len(self.axes):
            raise ConfigError(f"space: {', '.join(self.axes)}: a key is given twice, by its name and by its symbol")
        return replace(self, axes=axes)

    def without(self, keys: Collection[str]) -> "Space":
        return replace(self, axes={key: values for key, values in self.axes.items() if key not in keys})

    def as_text(self) -> dict[str, Any]:
        """Values and distributions as text."""
        return {key: axis.values if axis.is_listed else axis.text() for key, axis in self.axes.items()}

    @property
    def values(self) -> dict[str, Any]:
        """Values and distributions by key."""
        return {key: axis.values for key, axis in self.axes.items()}

    def check(self, method: str) -> None:
        """Raises ConfigError if points would not be different runs on the same data, model and seeds."""
        options = methods.load(method).Options
        for axis in self.axes.values():
            SEARCHED.check(axis.key, {*options.model_fields, *methods.symbols(options)})
            axis.check_different()

    def allows(self, point: Values) -> bool:
        """Whether the constraint allows a point. Raises ConfigError if it fails."""
        if self.constraint is None:
            return True
        with as_config_error(f"CONSTRAINT of the space fails at {point_name(point)}"):
            return self.constraint({**self.given, **point})

    def holds(self, point: Values) -> bool:
        """Whether a point is one of the space."""
        is_inside = point.keys() == self.axes.keys() and all(
            self.axes[key].holds(value) for key, value in point.items()
        )
        return is_inside and self.allows(point)

    def points(self, most: int | None = None, takes: Callable[[Values], bool] = lambda point: True) -> list[Values]:
        """All valid points, or `most` of them that cover the space (`covering`), in the order of the axes.

        Raises ConfigError if an axis is a distribution, which has infinitely many points.
        """
        for key, axis in self.axes.items():
            if not axis.is_listed:
                raise ConfigError(
                    f"space: {key} is a distribution, which a grid cannot list; list values, or give --search "
                    "random or optuna with --samples N"
                )
        whole = [dict(zip(self.axes, values, strict=True)) for values in product(*self.values.values())]
        legal = [point for point in whole if self.allows(point) and takes(point)]
        if most is None or most >= len(legal):
            return legal
        return [legal[i] for i in sorted(covering(legal, self.values, self.given, most))]

    def draws(self, count: int, takes: Callable[[Values], bool] = lambda point: True) -> list[Values]:
        """Up to `count` different random points; a higher count begins with the same points."""
        stream, points, missed = np.random.RandomState(0), dict[str, Values](), 0
        while len(points) < count and missed < MOST_MISSED:
            point = {key: axis.draw(stream) for key, axis in self.axes.items()}
            name = point_name(point)
            if name in points or not self.allows(point) or not takes(point):
                missed += 1
            else:
                points[name], missed = point, 0
        return list(points.values())


def covering(points: Sequence[Values], axes: Mapping[str, list[Any]], default: Values, count: int) -> list[int]:
    """Places of `count` points among which every value of a key occurs about equally often; more begin with the same.

    The first is the point with most values of the default setting. Each next one has the values that were taken least;
    among those it is the one that leaves the smallest mean distance from a point of the space to the closest one taken.
    Distances are sums over keys of those between places in the list of values, 1 from end to end; of texts, 0 or 1.
    """
    ranks = np.array([[values.index(point[key]) for key, values in axes.items()] for point in points], dtype=float)
    scales = np.array([all(map(is_number, values)) for values in axes.values()])
    lengths = np.array([max(1, len(values) - 1) for values in axes.values()])
    matches = np.array([sum(default.get(key) == value for key, value in point.items()) for point in points])
    order = np.array(random.Random(0).sample(range(len(points)), len(points)))  # breaks ties, without a direction
    space = ranks[order[:MOST_COVERED]]

    def distances(of: int) -> np.ndarray:
        apart = np.abs(space - ranks[of])
        return np.where(scales, apart / lengths, apart > 0).sum(1)

    taken = [int(np.lexsort((order, -matches))[0])]
    used, closest = np.zeros(len(points)), np.full(len(space), np.inf)
    while len(taken) < count:
        used += (ranks == ranks[taken[-1]]).sum(1)
        used[taken[-1]] = np.inf
        closest = np.minimum(closest, distances(taken[-1]))
        least = [int(place) for place in np.flatnonzero(used == used.min())]
        taken.append(min(least, key=lambda of: (np.minimum(closest, distances(of)).mean().round(DIGITS), order[of])))
    return taken
