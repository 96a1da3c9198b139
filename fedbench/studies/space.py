"""The tuning space of a method: values of some keys, and the points to try."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from fedbench import methods, tune_space
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.section import plain
from fedbench.config.words import keys_called
from fedbench.errors import ConfigError, as_config_error, nearest
from fedbench.installation import require
from fedbench.results.plan import is_number, point_name, text_of

SEARCHED = ("method.", "train.", "model.")
LR, LR_SCALE = "train.lr", "train.lr_scale"
FEWEST_ON_A_SCALE = 3
"""From this many numbers on, the values of a key form a scale with two ends; fewer are a choice, but of rates."""
FEWEST_RATES = 2
DISTRIBUTIONS = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "choice")
FIXED = ("method.name", *(f"model.{key}" for key in type(Config().model).model_fields))
"""Keys of these sections that are the same for all points."""
DIGITS = 4
"""Significant digits of a drawn number."""
MOST_COVERED = 2000
"""Points of a space to which distances are computed; of more, as many drawn at random."""
MOST_MISSED = 1000
"""Number of consecutive invalid or known draws at which a space counts as exhausted."""
Values = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Values or a Ray Tune distribution by dotted key, and a constraint on their combinations.

    given: values of further keys, the same for all points, which the constraint sees too. lent: the method that owns
    the space, if it is another one. optimizer: that for which its rates are; None: unknown. as_listed: whether they are
    tried as they are, also with another one.
    """

    axes: dict[str, Any] = field(default_factory=dict)
    constraint: Callable[[Values], bool] | None = None
    given: Values = field(default_factory=dict)
    lent: str = ""
    optimizer: str | None = None
    as_listed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", {key: plain(tune_space.as_list(values)) for key, values in self.axes.items()})

    @classmethod
    def of(cls, method: str) -> "Space":
        """SPACE and CONSTRAINT of tune_spaces/<method>.py, or of the method that it derives from.

        Raises ConfigError if there is none.
        """
        if found := tune_space.find(method):
            name, module = found
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
        found = tune_space.find(method)
        return cls(dict(axes), getattr(found[1], "CONSTRAINT", None) if found else None, as_listed=True)

    def with_own_names(self, method: str) -> "Space":
        """The space with the method's own names of options instead of symbols."""
        axes = {methods.full_key(method, key): values for key, values in self.axes.items()}
        if len(axes) < len(self.axes):
            raise ConfigError(f"space: {', '.join(self.axes)}: a key is given twice, by its name and by its symbol")
        return replace(self, axes=axes)

    def without(self, keys: Collection[str]) -> "Space":
        return replace(self, axes={key: values for key, values in self.axes.items() if key not in keys})

    def as_text(self) -> dict[str, Any]:
        """Values and distributions as text."""
        return {
            key: values if isinstance(values, list) else distribution_text(values) for key, values in self.axes.items()
        }

    def allows(self, point: Values) -> bool:
        """Whether the constraint allows a point. Raises ConfigError if it fails."""
        if self.constraint is None:
            return True
        with as_config_error(f"CONSTRAINT of the space fails at {point_name(point)}"):
            return self.constraint({**self.given, **point})

    def points(self, most: int | None = None, takes: Callable[[Values], bool] = lambda point: True) -> list[Values]:
        """All valid points, or `most` of them that cover the space (`covering`), in the order of the axes.

        Raises ConfigError if an axis is a distribution, which has infinitely many points.
        """
        for key, values in self.axes.items():
            if not isinstance(values, list):
                raise ConfigError(
                    f"space: {key} is a distribution, which a grid cannot list; list values, or give --search "
                    "random or optuna with --samples N"
                )
        whole = [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]
        legal = [point for point in whole if self.allows(point) and takes(point)]
        if most is None or most >= len(legal):
            return legal
        return [legal[i] for i in sorted(covering(legal, self.axes, self.given, most))]

    def draws(self, count: int, takes: Callable[[Values], bool] = lambda point: True) -> list[Values]:
        """Up to `count` different random points; a higher count begins with the same points."""
        stream, found, missed = np.random.RandomState(0), dict[str, Values](), 0
        while len(found) < count and missed < MOST_MISSED:
            point = {key: draw_value(values, stream) for key, values in self.axes.items()}
            name = point_name(point)
            if name in found or not self.allows(point) or not takes(point):
                missed += 1
            else:
                found[name], missed = point, 0
        return list(found.values())


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


def distribution_text(distribution: Any) -> str:
    """`LogUniform(0.0001, 0.1)`."""
    sampler = distribution.get_sampler()
    step = f" step {sampler.q:g}" if hasattr(sampler, "q") else ""
    return f"{getattr(sampler, 'sampler', sampler)}{distribution.domain_str}{step}"


def draw_value(values: Any, stream: np.random.RandomState) -> Any:
    """One of the values, or a number of a distribution."""
    if isinstance(values, list):
        return values[stream.randint(len(values))]
    return round_to_bounds(values.sample(random_state=stream), values)


def round_to_bounds(value: Any, distribution: Any) -> Any:
    """Round a number to the digits that a name shows, within the bounds."""
    if not isinstance(value, float):
        return value
    short = float(f"{value:.{DIGITS}g}")
    return short if distribution.is_valid(short) else value


def distribution(text: str, flag: str = "space") -> Any:
    """Ray Tune's distribution for `loguniform(1e-4, 1e-1)`; None if the text is no such call.

    Raises ConfigError, which names the flag.
    """
    name, bracket, inside = text.strip().removeprefix("tune.").partition("(")
    if not bracket or not name.isidentifier():
        return None
    if name not in DISTRIBUTIONS:
        raise ConfigError(f"{flag}: {text}: unknown distribution {name!r}: {nearest(name, DISTRIBUTIONS)}")
    require("ray", f"list values instead of {text}")
    from ray import tune

    expected = "as Ray Tune has it, for example loguniform(1e-4, 1e-1)"
    if not inside.endswith(")"):
        raise ConfigError(f"{flag}: {text}: it does not end with a bracket; {expected}")
    arguments = parse_value(f"[{inside[:-1]}]")
    try:
        made = getattr(tune, name)(*([arguments] if name == "choice" else arguments))
    except ArithmeticError:
        raise ConfigError(f"{flag}: {text}: the step must be > 0; {expected}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{flag}: {text}: {error}; {expected}") from None
    if "randint" in name and not all(isinstance(number, int) for number in arguments):
        raise ConfigError(f"{flag}: {text}: whole numbers are expected; {expected}")
    if name != "choice" and not made.lower < made.upper:
        raise ConfigError(f"{flag}: {text}: the first bound must be below the second; {expected}")
    return tune_space.as_list(made)


def check_values(axes: Mapping[Any, Any]) -> None:
    """Raises ConfigError if keys are no text, or if values are neither several nor a distribution."""
    if not axes:
        raise ConfigError(
            'space = {}: names no key; leave it out, or list values, for example {"train.lr": [0.01, 0.1]}'
        )
    for key, values in axes.items():
        if not isinstance(key, str) or not tune_space.is_axis(values):
            raise ConfigError(
                f"space: {key} = {values!r}: a key with a list of values or a distribution is expected, for example "
                '{"train.lr": [0.01, 0.1]}'
            )


def check_space(axes: Mapping[str, Any], method: str) -> None:
    """Raises ConfigError if points would not be different runs on the same data, model and seeds."""
    options = methods.load(method).Options
    for key, values in axes.items():
        own = [f"method.{key}"] if key in {*options.model_fields, *methods.symbols(options)} else []
        if meant := [name for name in (*own, *keys_called(key, Config)) if name.startswith(SEARCHED)]:
            raise ConfigError(f"space: {key}: names no section; write {' or '.join(meant)}")
        if not key.startswith(SEARCHED) or key in FIXED:
            raise ConfigError(
                f"space: {key}: keys of method.*, train.* and arguments of the model's constructor, model.*, are "
                f"searched; all else is the same for all candidates; leave it out, or set one value with --{key}"
            )
        if isinstance(values, list) and (not values or len(set(map(text_of, values))) < len(values)):
            raise ConfigError(f"space: {key} = {values}: must be one or more different values; give each once")


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
    found = best * best / before if is_geometric else 2 * best - before
    found = min(found, limits.get("le", found)) if is_top else max(found, limits.get("ge", found))
    if all(isinstance(number, int) for number in numbers):
        return max(1, round(found)) if numbers[0] > 0 else round(found)
    return float(f"{found:.{DIGITS}g}")


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
