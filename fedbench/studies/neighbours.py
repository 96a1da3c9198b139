"""The ends of what was tried, and the values beside a best one that were not."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from fedbench import methods
from fedbench.config import Config
from fedbench.results.plan import is_number
from fedbench.studies.axis import DIGITS
from fedbench.studies.space import Space, Values

LR, LR_SCALE = "train.lr", "train.lr_scale"
FEWEST_ON_A_SCALE = 3
"""From this many numbers on, the values of a key form a scale with two ends; fewer are a choice, but of rates."""
FEWEST_RATES = 2
TIMES_BESIDE = 2
"""How often neighbours of a method's best point are tried."""


class Neighbour(NamedTuple):
    """A point that differs from a best one in one key. is_past: whether its value lies past all tried and listed ones.

    at_end: whether the best value is the lowest or highest of these.
    """

    key: str
    point: Values
    is_past: bool
    at_end: bool


def untried_neighbours(
    method: str, space: Space, tried: Sequence[Values], best: Values, both_sides: bool
) -> Iterator[Neighbour]:
    """The points of a space next to a best one that were not tried, along scales past an end of what was tried.

    both_sides: along learning rates on both sides.
    """
    whole = space.values
    ends = at_an_end(method, whole, tried, best)
    for key in best:
        seen = [point[key] for point in tried]
        values = beside(method, key, seen, whole.get(key), best[key]) if both_sides else []
        if key in ends and not values:
            values = [(next_past_end(seen, whole.get(key), best[key], limits_of(method, key)), True)]
        for value, is_past in values:
            point = {**best, key: value}
            if point not in tried and space.allows(point):
                yield Neighbour(key, point, is_past, key in ends)


def at_an_end(method: str, whole: Mapping[str, Any], tried: Sequence[Values], best: Values) -> list[str]:
    """The keys whose best value is at an end of the whole space or of the tried values: a better one may lie beyond.

    A choice between fewer than three numbers, or two rates, has no ends, and a value is no end if none beyond it is
    valid.
    """
    seen = {key: [point[key] for point in tried] for key in best}
    every = {key: [*values, *_listed(whole.get(key))] for key, values in seen.items()}
    return [key for key in best if any(_is_end(method, key, values[key], best[key]) for values in (seen, every))]


def beside(method: str, key: str, tried: Sequence[Any], whole: Any, best: Any) -> list[tuple[Any, bool]]:
    """The values beside a learning rate, each with whether it lies past the ends of the tried ones and the axis.

    None of a single value, which was not chosen from several.
    """
    numbers = numbers_in([*tried, *_listed(whole)])
    if not is_rate(method, key) or len(numbers) < FEWEST_RATES or best not in numbers:
        return []
    place, limits = numbers.index(best), limits_of(method, key)
    inside = [(number, False) for number in (*numbers[:place][-1:], *numbers[place + 1 :][:1])]
    return inside if len(inside) > 1 else [*inside, (next_past_end(numbers, None, best, limits, least_ratio=1.0), True)]


def _listed(whole: Any) -> list[Any]:
    """The values of an axis; none of a distribution or without one."""
    return whole if isinstance(whole, list) else []


GEOMETRIC = 10
"""Ratio of the largest to the smallest value from which on an axis of positive numbers is extended by a factor."""


def next_past_end(
    tried: Sequence[Any],
    whole: Any,
    best: Any,
    limits: Mapping[str, Any] = MappingProxyType({}),
    least_ratio: float = GEOMETRIC,
) -> Any:
    """The next value past the end of the tried ones at which the best lies: of the whole axis, or by its last step.

    limits: see `limits_of`; a step beyond one ends there. least_ratio: of the ends from which on a step is a factor.
    """
    own = numbers_in(tried)
    numbers = sorted({*own, *numbers_in(_listed(whole))})
    is_top = best == numbers[-1] or (best != numbers[0] and best == own[-1])
    if further := [number for number in numbers if (number > best if is_top else number < best)]:
        return further[0] if is_top else further[-1]
    before = numbers[-2] if is_top else numbers[1]
    is_geometric = numbers[0] > 0 and numbers[-1] / numbers[0] >= least_ratio
    next_value = best * best / before if is_geometric else 2 * best - before
    next_value = min(next_value, limits.get("le", inf)) if is_top else max(next_value, limits.get("ge", -inf))
    if all(isinstance(number, int) for number in numbers):
        return max(1, round(next_value)) if numbers[0] > 0 else round(next_value)
    return float(f"{next_value:.{DIGITS}g}")


def numbers_in(values: Sequence[Any]) -> list[Any]:
    """The different numbers among some values, ascending."""
    return sorted({value for value in values if is_number(value)})


def _is_end(method: str, key: str, values: Sequence[Any], best: Any) -> bool:
    numbers = numbers_in(values)
    fewest = FEWEST_RATES if is_rate(method, key) else FEWEST_ON_A_SCALE
    if len(numbers) < fewest or best not in numbers or numbers[0] < best < numbers[-1]:
        return False
    return best != limits_of(method, key).get("ge" if best == numbers[0] else "le")


def is_rate(method: str, key: str, of_run: bool = False) -> bool:
    """Whether a key is a learning rate; of_run: of the optimiser of the run, not of steps that the method makes.

    An option of a method is one if its declaration has `json_schema_extra={"rate": "run"}`, or "own".
    """
    if key in (LR, LR_SCALE):
        return True
    section, _, name = methods.full_key(method, key).partition(".")
    field = methods.load(method).Options.model_fields.get(name) if section == "method" else None
    more = field.json_schema_extra if field is not None else None
    return isinstance(more, dict) and more.get("rate") in (("run",) if of_run else ("run", "own"))


def limits_of(method: str, key: str) -> dict[str, Any]:
    """The least (ge) and the largest (le) legal value of a number among the keys that a space may have.

    Those of a model's arguments are unknown.
    """
    section, _, name = key.partition(".")
    if section == "model":
        return {}
    kind = methods.load(method).Options if section == "method" else type(Config().train)
    if (field := kind.model_fields.get(name)) is None:  # a method that takes any option
        return {}
    among = [limit for part in get_args(field.annotation) for limit in _limits_in(part)]
    return {
        bound: getattr(limit, bound)
        for limit in (*field.metadata, *among)
        for bound in ("ge", "le")
        if getattr(limit, bound, None) is not None
    }


def _limits_in(annotation: Any) -> list[Any]:
    """The limits of a type, `Annotated[float, Field(ge=0)]`."""
    given = getattr(annotation, "__metadata__", ())
    return [limit for one in given for limit in (one, *getattr(one, "metadata", ()))]
