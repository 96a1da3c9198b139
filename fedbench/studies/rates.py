"""Learning rates of a space, turned into rates for the optimiser that makes the steps of a run."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from fedbench import methods, models
from fedbench.config import Config
from fedbench.results.plan import is_number
from fedbench.studies.axis import Axis
from fedbench.studies.neighbours import LR, LR_SCALE, is_rate
from fedbench.studies.space import Space

USUAL = {"sgd": 0.03, "adam": 0.001, "adamw": 0.001, "module": 1.0}
"""A usual rate of each optimiser, of a model's own one as a factor of its rates. Rates of a space keep their ratio to
it, which leaves every method its number of points: 0.01, 0.03, 0.1 of sgd are 0.0003, 0.001, 0.003 of adam."""


@dataclass(frozen=True)
class Remarks:
    """What to say of a space's rates. turned: which are tried in place of which; doubt: why they may be wrong ones."""

    turned: str = ""
    doubt: str = ""


NOTHING = Remarks()


def optimizer_of(method: str, config: Config) -> str:
    """The optimiser that makes a method's steps: a key of USUAL, or `` for steps of the method's own.

    config: with the method's defaults.
    """
    if methods.load(method).optimizer != "run":
        return ""
    if config.train.optimizer != "auto":
        return config.train.optimizer
    return "module" if all(map(models.MODELS.path, config.model.names)) else "sgd"


def for_optimizer(space: Space, method: str, used: str) -> tuple[Space, Remarks]:
    """The space with rates for the optimiser that makes the steps.

    used: see `optimizer_of`. Values that the user listed stay.
    """
    keys = [key for key in space.axes if key not in space.listed and is_rate(method, key, of_run=True)]
    if not (used and keys) or "train.optimizer" in space.axes or {LR, LR_SCALE} <= space.axes.keys():
        return space, NOTHING
    made = space.optimizer
    if space.as_listed or (made is None and used != "module"):
        is_known = made is not None and USUAL[made] == USUAL[used]
        return space, NOTHING if is_known or (made is None and used == "sgd") else Remarks(
            doubt=_doubt(keys, made, used)
        )
    # A factor of a model's rates says nothing of the rate of a part, which options name as it is.
    turned = [key for key in keys if key in (LR, LR_SCALE) or "module" not in (used, made)]
    left = [key for key in keys if key not in turned]
    axes, words = dict[str, Axis](), list[str]()
    for key, axis in space.axes.items():
        rate_axis = _turned(axis, made, used) if key in turned else axis
        axes[rate_axis.key] = rate_axis
        if rate_axis != axis:
            words.append(f"{rate_axis.key} {rate_axis.text('/')} in place of {key} {axis.text('/')}")
    return replace(space, axes=axes), Remarks(", ".join(words), _doubt(left, made, used) if left else "")


def _turned(axis: Axis, made: str | None, used: str) -> Axis:
    """The axis with its rates for the optimiser in use."""
    factor = 1 / middle(axis.values) if made is None else USUAL[used] / USUAL[made]
    key = axis.key if axis.key not in (LR, LR_SCALE) else LR_SCALE if used == "module" else LR
    return axis if (key, factor) == (axis.key, 1.0) else Axis(key, scale_values(axis.values, factor))


def _doubt(keys: Sequence[str], made: str | None, used: str) -> str:
    by = "the model's own optimiser" if used == "module" else used
    whose = f"are for {made}" if made else "do not say for which optimiser they are (RATES_FOR beside SPACE)"
    return f"the values of {' and '.join(keys)} {whose}, and {by} makes the steps"


def middle(values: Any) -> float:
    """The middle one of some rates, the lower of two; of a distribution its geometric middle."""
    if isinstance(values, list):
        numbers = sorted(filter(is_number, values))
        return float(numbers[(len(numbers) - 1) // 2]) if numbers else 1.0
    return float(values.lower * values.upper) ** 0.5 or 1.0


def scale_values(values: Any, factor: float) -> Any:
    """Rates times a factor, with the fewest digits, one or more, that keep them different; texts and None stay."""
    if not isinstance(values, list):
        return _scaled_distribution(values, factor)
    for digits in range(16):
        scaled = [float(f"{value * factor:.{digits}e}") if is_number(value) else value for value in values]
        if len(set(scaled)) == len(set(values)):
            break
    return scaled


def _scaled_distribution(distribution: Any, factor: float) -> Any:
    scaled = copy(distribution)
    scaled.lower, scaled.upper = scaled.lower * factor, scaled.upper * factor
    if hasattr(scaled.sampler, "q"):
        scaled.sampler = copy(scaled.sampler)
        scaled.sampler.q *= factor
    return scaled
