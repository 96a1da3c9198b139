"""Checks a study before its first run, by building a run of every method, which shows what is read and the metric."""

import logging
from collections.abc import Callable

from fedbench.data.describe import description_of
from fedbench.errors import ConfigError
from fedbench.jobs import provenance
from fedbench.jobs.resolve import check_run
from fedbench.results.remarks import as_doubts, with_methods
from fedbench.runtime.evaluation.unscored import unscored_before
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.warnings import config_warnings
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.tuning_remarks import not_tuned, turned_rates
from fedbench.studies.tuning_study import TuningStudy
from fedbench.studies.validation_size import doubts_of_validation

log = logging.getLogger("fedbench")


def check_study(study: TuningStudy, shown: set[str] | None = None, say: Callable[[str], None] = log.warning) -> None:
    """Check the first valid point of every method, and note the metric and what was read. Raises ConfigError.

    A baseline that nobody asked for is left out if it cannot run. shown: lines that the user has read already. say:
    called with each of the others.
    """
    shown = set() if shown is None else shown
    remarks, runs, by_method = [*not_tuned(study.compared)], dict[str, ResolvedRun](), dict[str, list[str]]()
    for line in turned_rates(study.compared):
        if line not in shown:
            shown.add(line)
            log.info("%s", line)
    provenance.refresh_fingerprints(study.config, *(method.name for method in study.compared))
    for method in study.compared:
        try:
            runs[method.label], by_method[method.label] = _check_first_legal_point(study, method)
        except ConfigError as error:
            if not (method.optional and runs):
                raise _with_name(study, method, error) from error
            remarks.append(f"the baseline {method.label} is left out: {error}")
    remarks += [*as_doubts(study.plan.tuning_doubts), *with_methods(by_method)]
    for line in dict.fromkeys(remarks):
        if line not in shown:
            say(line)
    shown.update(remarks)
    study.compared = [method for method in study.compared if method.label in runs]
    study.metric = next(iter(runs.values())).task.primary


def _check_first_legal_point(study: TuningStudy, method: ComparedMethod) -> tuple[ResolvedRun, list[str]]:
    """A run of the method, after building it, and the remarks on its data, partition, configuration and method.

    What was read is noted, and in the plan whether validation is too small for the points.

    Raises ConfigError if no point of the method is valid.
    """
    first: ConfigError | None = None
    for point in study.points[method.label]:
        try:
            run = study.resolver.resolve(method.config(study.config, point))
            provenance.check_code_is_current(run.config, one_process=False)
            doubts = list[str]()
            (partition,) = check_run(run, [study.config.seeds[0]], doubts.append).values()
            lines = doubts_of_validation(run, partition, max(other.tries for other in study.compared))
            study.plan.tuning_doubts = list(dict.fromkeys([*study.plan.tuning_doubts, *lines]))
            study.description = description_of(run.dataset, run.config, partition)
            unscored = unscored_before(run, partition, study.config.seeds[0])
            return run, [
                *run.dataset.remarks,
                *partition.warnings,
                *unscored,
                *config_warnings(run.config),
                *doubts,
            ]
        except ConfigError as error:
            if first is not None and str(first) == str(error):  # not the point's fault
                break
            first = first or error
    assert first is not None
    raise first


def _with_name(study: TuningStudy, method: ComparedMethod, error: ConfigError) -> ConfigError:
    """The error of a method, with its name if the last of the compared methods, a baseline, has no error."""
    last = study.compared[-1]
    if last is method or type(error) is not ConfigError or method.label in str(error):
        return error
    try:
        _check_first_legal_point(study, last)
    except ConfigError:
        return error
    return ConfigError(f"{method.label}: {error}")
