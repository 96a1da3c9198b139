"""Optional metrics: scikit-learn's for classes, those of torchmetrics, and users' functions.

A metric is a function of class scores `[n, C]` and class numbers `[n]` of a client's samples (NumPy arrays) that
returns a number, NaN if unknown.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from fedbench.errors import ConfigError, RunError, nearest, place_of_code
from fedbench.import_string import AT, import_string
from fedbench.tasks.metric import Metric
from fedbench.tasks.metric_classes import (
    bounds_of,
    function_of,
    higher_is_better,
    is_metric_class,
    leaves_positions_out,
)
from fedbench.tasks.outcomes import auroc_without, mean_f1, mean_recall, of_counts, pseudo_values

if TYPE_CHECKING:
    from fedbench.tasks.targets import Array

    Function = Callable[[Array, Array], float]
    Outcomes = Callable[[Array, Array], Array]


NO_CLASS = -1


@dataclass(frozen=True)
class FurtherMetric:
    """A metric and its function. directed: whether the function says which values are better.

    outcomes: of known values, its outcomes `[n]` (`tasks/outcomes.py`); None: they are found by leaving out samples.
    undefined: why no outputs give these labels `[n]` a value, in few words; empty if some do.
    """

    metric: Metric
    function: "Function"
    directed: bool = True
    outcomes: "Outcomes | None" = None
    undefined: "Callable[[Array], str]" = lambda labels: ""

    def value(self, scores: "Array", labels: "Array") -> float:
        """The function gets copies, for it may write into them. NaN if it fails for want of samples or classes.

        Raises RunError if it fails anyway, or returns no number.
        """
        try:
            if scores.ndim != labels.ndim and scores.size == labels.size:  # [n, 1] and [n] would broadcast to [n, n]
                scores = scores.reshape(labels.shape)
            value = self.function(scores.copy(), labels.copy())
        except Exception as error:
            if self._works(*with_every_class(scores, labels)):
                return nan
            failure = RunError.of(error)
            raise RunError(f"metric {self.metric.name} fails: {failure.text}", failure.place, failure.trace) from error
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):  # a tensor of several numbers raises RuntimeError
            line = f"metric {self.metric.name} must return a number; it returned a value of type {type(value).__name__}"
            raise RunError(line, place_of_code(self.function)) from None

    def _works(self, scores: "Array", labels: "Array") -> bool:
        try:
            self.function(scores, labels)
        except Exception:
            return False
        return True


def with_every_class(scores: "Array", labels: "Array") -> tuple["Array", "Array"]:
    """The samples with two more of every class, or of different numbers: what a client may lack for a metric."""
    import numpy as np

    if labels.dtype.kind in "iu" and scores.ndim == labels.ndim + 1 == 2 and scores.shape[1] > 1:
        added = np.tile(np.eye(scores.shape[1], dtype=scores.dtype), (2, 1))
        return np.concatenate([scores, added]), np.concatenate([labels, added.argmax(1).astype(labels.dtype)])
    steps = np.arange(4) % 2
    added, targets = (
        np.broadcast_to(steps.reshape(-1, *[1] * (array.ndim - 1)), (4, *array.shape[1:])).astype(array.dtype)
        for array in (scores, labels)
    )
    return np.concatenate([scores, added]), np.concatenate([labels, targets])


def by_name(*metrics: FurtherMetric) -> dict[str, FurtherMetric]:
    return {more.metric.name: more for more in metrics}


def one_class(labels: "Array") -> str:
    """Why an AUROC is undefined for these labels."""
    import numpy as np

    return "one class" if len(np.unique(labels)) == 1 else ""


def balanced_accuracy(scores: "Array", labels: "Array") -> float:
    """Mean over the occurring classes of the share of correctly classified samples."""
    from sklearn.metrics import recall_score

    return float(recall_score(labels, _predict_classes(scores), labels=sorted(set(labels.tolist())), average="macro"))


def f1_macro(scores: "Array", labels: "Array") -> float:
    """Mean F1 over the classes that occur or are predicted."""
    from sklearn.metrics import f1_score

    predicted = _predict_classes(scores)
    classes = sorted({*labels.tolist(), *predicted.tolist()} - {NO_CLASS})
    return float(f1_score(labels, predicted, labels=classes, average="macro", zero_division=0.0))


def auroc(scores: "Array", labels: "Array") -> float:
    """Area under the ROC curve of each occurring class against all others, mean over these classes.

    Unknown with a single class, and for scores that are not finite.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    present = sorted(set(labels.tolist()))
    if len(present) < 2 or not np.isfinite(scores).all():
        return nan
    if scores.shape[1] == 2:
        return float(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))
    areas = [float(roc_auc_score(labels == label, _margin(scores, label))) for label in present]
    return sum(areas) / len(areas)


def _balanced_outcomes(scores: "Array", labels: "Array") -> "Array":
    return of_counts(mean_recall, labels, _predict_classes(scores))


def _f1_outcomes(scores: "Array", labels: "Array") -> "Array":
    return of_counts(mean_f1, labels, _predict_classes(scores))


def _auroc_outcomes(scores: "Array", labels: "Array") -> "Array":
    """From the areas of all classes without each sample; a class whose only sample is left out does not count."""
    import numpy as np

    present = sorted(set(labels.tolist()))
    if scores.shape[1] == 2:
        return pseudo_values(*auroc_without(scores[:, 1] - scores[:, 0], labels == 1))
    areas = [auroc_without(_margin(scores, label), labels == label) for label in present]
    without = np.array([without_each for _, without_each in areas])  # [classes, n]
    alone = np.array([(labels == label) & ((labels == label).sum() == 1) for label in present])
    counts = (~alone).sum(0)
    known = np.where(alone, 0, without).sum(0) / counts
    return pseudo_values(float(np.mean([area for area, _ in areas])), np.where(counts > 1, known, np.nan))


def _predict_classes(scores: "Array") -> "Array":
    """The class with the highest score; none if scores are NaN."""
    import numpy as np

    return np.where(np.isnan(scores).any(1), NO_CLASS, scores.argmax(1))


def _margin(scores: "Array", label: int) -> "Array":
    """The log-odds of a class: its score relative to all others."""
    import numpy as np

    others = np.delete(scores, label, axis=1)
    most = others.max(1, keepdims=True)
    return scores[:, label] - (most[:, 0] + np.log(np.exp(others - most).sum(1)))


def top5(scores: "Array", labels: "Array") -> float:
    """Share of samples whose class is among the five with the highest scores."""
    return float(_in_top5(scores, labels).mean())


def _in_top5(scores: "Array", labels: "Array") -> "Array":
    import numpy as np

    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return ((best == labels[:, None]).any(1) & ~np.isnan(scores).any(1)).astype(float)


OF_CLASSES = by_name(
    FurtherMetric(
        Metric("balanced_accuracy", "balanced accuracy", share=True, over_samples=False, pooled=True),
        balanced_accuracy,
        outcomes=_balanced_outcomes,
    ),
    FurtherMetric(
        Metric("f1_macro", "macro F1", share=True, over_samples=False, pooled=True), f1_macro, outcomes=_f1_outcomes
    ),
    FurtherMetric(
        Metric("auroc", "AUROC", share=True, over_samples=False, pooled=True),
        auroc,
        outcomes=_auroc_outcomes,
        undefined=one_class,
    ),
    FurtherMetric(Metric("top5", "top-5 accuracy", share=True), top5, outcomes=_in_top5),
)


def further_metric(name: str, known: dict[str, FurtherMetric], takes_classes: bool = True) -> FurtherMetric:
    """A metric by name, or a class of torchmetrics or a function as package.module:name. Raises ConfigError.

    takes_classes: whether a class may get the task's outputs and targets.
    The attribute `higher_is_better` of a function says which values are better; `pooled = True`, that it is also asked
    for its value over the test samples of all clients together.
    """
    if name in known:
        return known[name]
    if ":" not in name:
        hint = nearest(name, known) if known else "none is known for this task"
        raise ConfigError(f"evaluate.metrics: unknown metric '{name}'; {hint} (your own: package.module:function)")
    function = import_string(name, "evaluate.metrics")
    label = name.rpartition(":")[2]
    pooled = getattr(function, "pooled", False)
    if pooled not in (True, False):
        raise ConfigError(f"evaluate.metrics: {name}: pooled = {pooled!r}: must be True or False")
    if is_metric_class(function) and not (takes_classes or leaves_positions_out(function)):
        raise ConfigError(
            f"evaluate.metrics: {name} does not know which positions of a target count; name a function of outputs and "
            "targets that leaves the others out, or a subclass with average micro that sets ignore_index"
        )
    if is_metric_class(function):
        better, (least, most) = higher_is_better(name, function), bounds_of(function)
        metric = Metric(name, label, better, over_samples=False, pooled=bool(pooled), least=least, most=most)
        return FurtherMetric(metric, function_of(function))
    if not callable(function):
        raise ConfigError(f"evaluate.metrics: {name} is not a function")
    try:
        inspect.signature(function).bind("scores", "labels")
    except TypeError as error:
        place = place_of_code(function)
        raise ConfigError(f"evaluate.metrics: {name} must take scores and labels: {error} ({place})") from None
    except ValueError:  # some functions have no signature
        pass
    higher = getattr(function, "higher_is_better", None)
    if higher not in (True, False, None):
        raise ConfigError(f"evaluate.metrics: {name}: higher_is_better = {higher!r}: must be True or False")
    metric = Metric(name, label, higher=higher is None or bool(higher), over_samples=False, pooled=bool(pooled))
    return FurtherMetric(metric, function, directed=higher is not None)


def refuse_undirected(metric: FurtherMetric) -> None:
    """Raises ConfigError for a primary metric whose function does not say which values are better."""
    if not metric.directed:
        name = metric.metric.label.partition(AT)[0].rpartition(".")[2]
        raise ConfigError(
            f"evaluate.metric: {metric.metric.name} does not say whether higher is better; below the function, write "
            f"{name}.higher_is_better = False if lower is better, else {name}.higher_is_better = True"
        )
