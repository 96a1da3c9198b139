"""The checks of a method, a model and data, alone or together, as `fedbench check` and `fedbench.check` ask them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedbench.checks.check import Check, CheckReport, CheckResult, results_of
from fedbench.checks.data import DATA_CHECKS, ReadData
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.methods import METHOD_CHECKS
from fedbench.checks.model_fits import ModelFits
from fedbench.checks.models import MODEL_CHECKS
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError, nearest

SECTIONS = ("method", "model", "data")
"""What is checked, if a configuration sets it."""
RUNS = "runs"
"""The first check of a method and of a model."""
GIVEN = {"model", "data", "partition", "train", "evaluate"}
"""Sections that a method runs on where a model or data are checked with it."""


def check(
    method: Any = None,
    *,
    model: Any = None,
    data: Any = None,
    only: tuple[str, ...] | list[str] = (),
    watch: Callable[[CheckResult], None] = lambda result: None,
    **sections: Any,
) -> CheckReport:
    """Checks a method, a model and data, alone or together: a table of what passed and what failed, with remedies.

    method, model, data: as in a `Config`: a class, a name such as `mine:Mine`, or a mapping with options; data also as
    arrays, tables or modules. A method is checked on the model and data beside it, else on built-in ones. only: the
    names of checks, by default all. watch: gets every result as it comes. Other sections, such as `train`, hold for the
    runs on model and data. Raises ConfigError for what cannot be loaded.

    >>> print(check("fedprox", only=["weights"]))
    method fedprox
    method  weights          passed          means have the weights that method.weighting says
    1 passed, 0 failed
    """
    given = {"method": method, "model": model, "data": data}
    subjects = {name: value for name, value in given.items() if value is not None}
    if not subjects:
        raise ConfigError("check: give a method, a model or data, for example fedbench.check(Mine)")
    config = Config(**subjects, **sections)
    results = []
    for result in results_for(config, tuple(subjects), tuple(only)):
        results.append(result)
        watch(result)
    return CheckReport(title_of(config, tuple(subjects)), results)


def title_of(config: Config, subjects: tuple[str, ...]) -> str:
    return ", ".join(f"{subject} {getattr(config, subject).name}" for subject in subjects)


def results_for(config: Config, subjects: tuple[str, ...], only: tuple[str, ...] = ()) -> Iterator[CheckResult]:
    """The results of the checks of these sections of a configuration.

    Raises ConfigError for an unknown check, and for data that cannot be read.
    """
    known = [one.name for subject in subjects for one in CHECKS[subject][0]]
    if unknown := [name for name in only if name not in known]:
        raise ConfigError(f"check {unknown[0]}: {nearest(unknown[0], known)}")
    if "data" in subjects:
        Dataset.of_run(config)
    for subject in subjects:
        checks, make = CHECKS[subject]
        chosen = [one for one in checks if not only or one.name in only]
        if chosen:
            yield from _until_it_does_not_run(chosen, make(config))


def _until_it_does_not_run(checks: Sequence[Check[Any]], subject: Any) -> Iterator[CheckResult]:
    """The results of the checks; if a model or method does not run at all, the others have nothing to ask."""
    first, *others = checks
    yield (result := first(subject))
    if first.name == RUNS and result.outcome == "failed":
        yield from (CheckResult(one.applies_to, one.name, "does not apply", "it does not run") for one in others)
    else:
        yield from results_of(others, subject)


def method_runs_of(config: Config) -> MethodRuns:
    """The method on the model and the data that are checked with it, else on built-in ones."""
    together = {"model", "data"} & config.model_fields_set
    given = config.model_dump(include=GIVEN, exclude_unset=True) if together else {}
    return MethodRuns(config.method.name, config.method.options, given)


CHECKS: Mapping[str, tuple[Any, Callable[[Config], Any]]] = {
    "method": (METHOD_CHECKS, method_runs_of),
    "model": (MODEL_CHECKS, ModelFits),
    "data": (DATA_CHECKS, ReadData),
}
"""The checks of each section, and what makes their subject of a configuration."""
