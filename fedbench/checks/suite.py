"""The checks of a method, a model and data, alone or together, as `fedbench check` and `fedbench.check` ask them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedbench.checks.check import CheckReport, CheckResult, results_of
from fedbench.checks.data import DATA_CHECKS, ReadData
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.methods import METHOD_CHECKS
from fedbench.checks.model_fits import ModelFits
from fedbench.checks.models import MODEL_CHECKS
from fedbench.config import Config
from fedbench.errors import ConfigError, nearest

SECTIONS = ("method", "model", "data")
"""What is checked, if a configuration sets it."""


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
    arrays, tables or modules. only: the names of checks, by default all. watch: gets every result as it comes. Other
    sections, such as `train`, hold for the runs of model and data. Raises ConfigError for what cannot be loaded.

    >>> print(check("fedprox", only=["weights"]))
    method fedprox
    method  weights          passed          means have the weights that method.weighting says
    1 passed, 0 failed
    """
    given = {"method": method, "model": model, "data": data}
    asked = {name: value for name, value in given.items() if value is not None}
    if not asked:
        raise ConfigError("check: give a method, a model or data, for example fedbench.check(Mine)")
    config = Config(**asked, **sections)
    results = []
    for result in results_for(config, tuple(asked), tuple(only)):
        results.append(result)
        watch(result)
    return CheckReport(title_of(config, tuple(asked)), results)


def title_of(config: Config, subjects: tuple[str, ...]) -> str:
    return ", ".join(f"{subject} {getattr(config, subject).name}" for subject in subjects)


def results_for(config: Config, subjects: tuple[str, ...], only: tuple[str, ...] = ()) -> Iterator[CheckResult]:
    """The results of the checks of these sections of a configuration. Raises ConfigError for an unknown check."""
    known = [one.name for subject in subjects for one in CHECKS[subject][0]]
    if unknown := [name for name in only if name not in known]:
        raise ConfigError(f"check {unknown[0]}: {nearest(unknown[0], known)}")
    for subject in subjects:
        checks, make = CHECKS[subject]
        chosen = [one for one in checks if not only or one.name in only]
        if chosen:
            yield from results_of(chosen, make(config))


def method_runs_of(config: Config) -> MethodRuns:
    return MethodRuns(config.method.name, config.method.options)


CHECKS: Mapping[str, tuple[Any, Callable[[Config], Any]]] = {
    "method": (METHOD_CHECKS, method_runs_of),
    "model": (MODEL_CHECKS, ModelFits),
    "data": (DATA_CHECKS, ReadData),
}
"""The checks of each section, and what makes their subject of a configuration."""
