"""The short part of the checks, before round 1 of runs with code of one's own that is new."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedbench.cache_folder import root
from fedbench.checks.check import Check, CheckResult
from fedbench.checks.method_runs import MethodRuns
from fedbench.checks.methods import METHOD_CHECKS, any_order_of_clients
from fedbench.checks.model_fits import ModelFits
from fedbench.checks.models import MODEL_CHECKS, as_in_lightning, clients_do_not_meet, random_numbers
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.methods import METHODS
from fedbench.models import MODELS
from fedbench.module import seeds
from fedbench.results.files import write_atomically
from fedbench.user_code import code_of

SECONDS = 2.0
"""After so many seconds no further check begins."""
STEPS = 2
"""Gradient steps of the fits of a model."""
Checked = tuple[list[CheckResult], int]
"""Results, and how many checks `fedbench check` has."""

MODEL_PART: tuple[Check[ModelFits], ...] = (
    Check("lightning", "trains as in Lightning", "model", as_in_lightning),
    Check("random", "equal fits are equal", "model", random_numbers),
    Check("clients", "nothing goes from client to client", "model", clients_do_not_meet),
)
METHOD_PART: tuple[Check[MethodRuns], ...] = (
    Check("order", "the same bits for any order of the clients", "method", partial(any_order_of_clients, kind="tiny")),
)


def check_new_code(*configs: Config) -> Iterator[str]:
    """A line about each method and model of runs that are one's own and were never checked as they are.

    configs: of the runs, one of each method; code that several have is checked in the first. A check that fails is
    named with its line; the runs go on.
    """
    checks: dict[str, Callable[[], Checked]] = {}
    for config in configs:
        if path := METHODS.path(config.method.name):
            checks.setdefault(path, partial(_checked_method, config))
        for name in config.model.names:
            if path := MODELS.path(name):
                checks.setdefault(path, partial(_checked_model, config, name))
    with seeds.preserved_streams():
        for path, checked in checks.items():
            yield from _line_if_new(path, checked)


def _line_if_new(path: str, checked: Callable[[], Checked]) -> Iterator[str]:
    known = _file(path)
    if known.exists():
        return
    try:
        results, total = checked()
    except ConfigError:
        return  # the run says so itself
    yield line_of(path, results, total)
    if not any(result.outcome == "failed" for result in results):
        known.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(known, "")


def _file(path: str) -> Path:
    """The file that says that this code was checked."""
    return root() / "checks" / sha256(f"{path} {code_of(path).fingerprint}".encode()).hexdigest()[:24]


def line_of(path: str, results: list[CheckResult], total: int) -> str:
    """`mine:Net trains as in Lightning (difference 0), 3 checks passed; fedbench check runs 9`."""
    more = f"`fedbench check` runs {total}"
    if failed := next((result for result in results if result.outcome == "failed"), None):
        return f"{path}: the check `{failed.name}` fails: {failed.line}; {more}"
    passed = [result for result in results if result.outcome == "passed"]
    difference = next((r.line.rpartition(" (")[2].rstrip(")") for r in passed if r.name == "lightning"), "")
    start = f"{path} trains as in Lightning ({difference}), " if difference.startswith("difference") else f"{path}: "
    return f"{start}{len(passed)} check{'s' * (len(passed) != 1)} passed; {more}"


def _checked_model(config: Config, name: str) -> Checked:
    own = config.model_copy(update={"model": config.model.alone(name)})
    fits = ModelFits(own, STEPS)
    fits.run  # noqa: B018  raises ConfigError
    return _until_time_is_up(MODEL_PART, fits), len(MODEL_CHECKS)


def _checked_method(config: Config) -> Checked:
    with MethodRuns(config.method.name) as runs:
        return _until_time_is_up(METHOD_PART, runs), len(METHOD_CHECKS)


def _until_time_is_up(checks: tuple[Check[Any], ...], subject: Any) -> list[CheckResult]:
    begun, results = time.monotonic(), list[CheckResult]()
    for check in checks:
        if time.monotonic() - begun < SECONDS:
            results.append(check(subject))
    return results
