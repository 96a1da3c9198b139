"""Finds points of a space: all of a grid, random draws, or proposals by Optuna from the results so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from typing import Any

from fedbench.config.tuning import Tuning
from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.results.plan import point_name
from fedbench.silence import silence_logger
from fedbench.studies.space import Space, Values

MOST_PROPOSALS = 100
"""Number of consecutive invalid or known proposals at which a space counts as exhausted."""


def points_of(space: Space, tuning: Tuning, most: int | None, takes: Callable[[Values], bool]) -> list[Values]:
    """The points of a space known beforehand: all, or as many as most, or the first that Optuna proposes."""
    if tuning.search == "grid":
        return space.points(most, takes)
    if tuning.search == "random":
        return space.draws(most or tuning.samples or 1, takes)
    return [first] if (first := propose(space, [], takes)) is not None else []


def is_count(value: Any) -> bool:
    """Whether a value is a whole number, also of NumPy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class TriedPoint:
    """A point of a search. score: higher is better; None: no score yet."""

    values: Values
    score: float | None = None


def propose(space: Space, tried: Sequence[TriedPoint], takes: Callable[[Values], bool]) -> Values | None:
    """Optuna's next point; None if it finds no valid new point.

    The point depends only on the number of tried points and their scores, so that an interrupted search continues
    unchanged. Raises ConfigError for distributions that Optuna does not support.
    """
    require("tune", "use --search random")
    from ray.tune.search.optuna import OptunaSearch  # first, because it sets its logger's level

    domains = {key: axis.domain for key, axis in space.axes.items()}
    known = {point_name(point.values) for point in tried}
    with silence_logger("optuna"):
        try:
            own = OptunaSearch.convert_search_space(domains)
        except ValueError as error:
            raise ConfigError(f"space: {error}; use others with --search optuna, or --search random") from None
        search: Any = OptunaSearch(own, metric="score", mode="max", seed=len(tried))
        for point in tried:
            _tell(search, point)
        for attempt in range(MOST_PROPOSALS):
            suggestion = search.suggest(str(attempt))
            values = {key: axis.rounded(suggestion[key]) for key, axis in space.axes.items()}
            if point_name(values) not in known and space.allows(values) and takes(values):
                return values
            search.on_trial_complete(str(attempt))  # pruned, which Optuna treats as a bad point
    return None


def _tell(search: Any, point: TriedPoint) -> None:
    if point.score is None or not isfinite(point.score):
        return
    search.add_evaluated_point(point.values, point.score)
