"""Classes of torchmetrics, such as `torchmetrics.classification:MulticlassCohenKappa`, as metrics of a task."""

import inspect
import sys
import warnings
from collections.abc import Callable
from math import nan
from typing import TYPE_CHECKING, Any

from fedbench.errors import ConfigError, RunError

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tasks.targets import Array

NEGATIVES = "No negative samples in targets"
UNDEFINED = (NEGATIVES, "No positive samples in targets", "No positive samples found in target")
"""Beginnings of warnings of torchmetrics, which then returns 0 for what is undefined."""
OUTPUTS = ("num_classes", "num_labels")
"""Arguments that are the number of a model's outputs."""


def is_metric_class(thing: Any) -> bool:
    """Whether it is a class of torchmetrics or derived from one; imports nothing."""
    library = sys.modules.get("torchmetrics")
    return library is not None and isinstance(thing, type) and issubclass(thing, library.Metric)


def higher_is_better(name: str, kind: Any) -> bool:
    """Raises ConfigError for a class that does not say so, or that needs arguments other than the number of classes."""
    try:
        made = _make(kind, 2)
    except Exception as error:
        raise ConfigError(
            f"evaluate.metrics: {name} cannot be made from the number of classes alone ({RunError.of(error)}); name a "
            "class such as torchmetrics.classification:MulticlassF1Score, or a function of scores and labels"
        ) from error
    if made.higher_is_better is None:
        raise ConfigError(
            f"evaluate.metrics: {name} does not say whether higher is better; set higher_is_better in a subclass"
        )
    return bool(made.higher_is_better)


def leaves_positions_out(kind: Any) -> bool:
    """Whether a class ignores the targets of positions that do not count, and needs no values of single classes."""
    try:
        made = _make(kind, 2)
    except Exception:
        return False
    return getattr(made, "ignore_index", None) is not None and getattr(made, "average", None) != "macro"


BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "CohenKappa": (-1.0, 1.0),
    "MatthewsCorrCoef": (-1.0, 1.0),
    "KendallRankCorrCoef": (-1.0, 1.0),
    "ExplainedVariance": (None, 1.0),
    "CosineSimilarity": (None, None),
    "CoverageError": (0.0, None),
    "HingeLoss": (0.0, None),
    "NormalizedRootMeanSquaredError": (None, None),
}
"""The bounds of values by the end of a class's name, where those of its plots are others."""


def bounds_of(kind: Any) -> tuple[float | None, float | None]:
    """Between which the values of a class of torchmetrics lie, as the bounds of its plots say."""
    known = (own for base in kind.__mro__ for end, own in BOUNDS.items() if base.__name__.endswith(end))
    return next(known, (kind.plot_lower_bound, kind.plot_upper_bound))


def function_of(kind: Any) -> "Callable[[Array, Array], Any]":
    """The metric as a function of outputs `[n, ...]` and targets `[n, ...]`; NaN if outputs are not finite.

    Classification metrics get probabilities, because torchmetrics takes outputs between 0 and 1 for such. Means over
    classes are over those that occur, as those of fedbench's own metrics.
    """

    def value(outputs: "Array", targets: "Array") -> Any:
        import numpy as np
        import torch

        if not np.isfinite(outputs).all():
            return nan
        # In double precision, in which large scores that differ give shares that do.
        given, true = torch.from_numpy(outputs).double(), torch.from_numpy(targets)
        if any(base.__module__.startswith("torchmetrics.classification") for base in kind.__mro__):
            given = given.softmax(1) if given.ndim > true.ndim and given.shape[1] > 1 else given.sigmoid()
            true = true.long()
        if given.ndim == true.ndim + 1 and given.shape[1] == 1:
            given = given.squeeze(1)
        if (
            given.shape[1:] == (2,)
            and true.ndim == 1
            and any(base.__name__.startswith("Binary") for base in kind.__mro__)
        ):
            given = given[:, 1]
        return _value_of(kind, outputs.shape[1] if outputs.ndim > 1 else 1, given, true)

    return value


def _value_of(kind: Any, outputs: int, given: "Tensor", true: "Tensor") -> Any:
    """The value, NaN where it is undefined: torchmetrics counts absent classes as 0, and returns 0 with a warning."""
    import torch

    metric = _make(kind, outputs)
    if getattr(metric, "average", None) != "macro":
        value, warned = _call(metric, given, true)
        return nan if warned or _divides_zero_by_zero(kind, outputs, given, true) else value
    held = torch.stack([(true == label).any() for label in range(outputs)]) if true.ndim == 1 else true.bool().any(0)
    if "average" not in inspect.signature(kind).parameters:
        value, warned = _call(metric, given, true)
        return nan if warned or not held.all() else value
    value, warned = _call(_make(kind, outputs, average=None), given, true)
    if NEGATIVES in warned:
        others = torch.stack([(true != label).any() for label in range(outputs)])
        held &= others if true.ndim == 1 else ~true.bool().all(0)
    return value[held].mean() if held.any() else nan


def _call(metric: Any, given: "Tensor", true: "Tensor") -> tuple[Any, set[str]]:
    """The value of a metric, and what it warns of as undefined; other warnings are passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = metric(given, true)
    undefined = {text for text in UNDEFINED for warning in caught if str(warning.message).startswith(text)}
    for warning in caught:
        if not str(warning.message).startswith(UNDEFINED):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return value, undefined


def _divides_zero_by_zero(kind: Any, outputs: int, given: "Tensor", true: "Tensor") -> bool:
    """Whether a metric of positive samples has no value because there are none; recall, F1 and others then give 0."""
    if true.any() or not any(base.__name__.startswith("Binary") for base in kind.__mro__):
        return False
    try:
        none, all_right = (_make(kind, outputs, zero_division=instead) for instead in (0, 1))
    except (TypeError, ValueError):  # it has no such fraction
        return False
    return bool(_call(none, given, true)[0] != _call(all_right, given, true)[0])


def _make(kind: Any, outputs: int, **more: Any) -> Any:
    taken = inspect.signature(kind).parameters
    return kind(**{name: outputs for name in OUTPUTS if name in taken}, **more)
