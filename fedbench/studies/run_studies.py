"""Runs studies: tuning, in which every method goes on by itself, then final runs and looks of their tests."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean

from fedbench.checks.before_run import check_new_code
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks, run_state
from fedbench.jobs.gpu_shares import GpuShares
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.pending import has_ended
from fedbench.jobs.schedule import run_jobs
from fedbench.jobs.trial_resources import check_room, ray_for
from fedbench.jobs.tune_callbacks import JobProgress
from fedbench.results.plan import study_name
from fedbench.results.remarks import with_label
from fedbench.runtime.ray.liveness import ray_restarts
from fedbench.studies.cost import not_here
from fedbench.studies.engine_choice import choose_engine
from fedbench.studies.outlook import cost, left_out, outlook, time_left_line
from fedbench.studies.search import is_count
from fedbench.studies.stages import Stages, in_notebook
from fedbench.studies.study_check import check_study
from fedbench.studies.tuning_study import TuningStudy
from fedbench.tracking import loggers

log = logging.getLogger("fedbench")

TUNING, FINALS = "tuning", "final runs over the seeds"
"""Names of stages; those of further final runs say what is decided so far."""
StudyWatch = Callable[[str, dict[str, Outcome], JobProgress], None]
"""Gets the name of a stage, the outcome of each of its jobs so far, and the progress of running jobs."""
TUNE = "tune"
"""The folder of a tuned study with Ray Tune's own records of its runs, which TensorBoard and `ResultGrid` read."""
SCRATCH = ".tune"
"""The folder of a study in which Ray Tune works otherwise."""


def run_studies(
    studies: Sequence[TuningStudy],
    trials: int | None = None,
    watch: StudyWatch | None = None,
    hours: float | None = None,
) -> bool:
    """Run the missing jobs of studies side by side, tuning first, and write the pages; returns whether any was missing.

    watch: gets the progress, which a notebook shows otherwise. hours: the time after which tests get no more seeds.
    Raises ConfigError before the first trial.
    """
    check_count(trials)
    until = None if hours is None else time.monotonic() + 3600 * hours
    if watch is None and in_notebook():
        watch = Stages(study_name(studies[0].folder), studies[0].config).update
    from fedbench.report import make_report

    stages = _StageRunner(studies, trials, watch)
    for attempt in ray_restarts(log.warning):
        with attempt, ExitStack() as stack:
            check_studies(studies, stack, lambda line: log.warning(with_label(line)), trials)
            for study in studies:
                stack.enter_context(folder_locks.folder_in_turn(study.folder, log.warning))
            for line in lines_about_data(studies):
                log.info("%s", line)
            for line in left_out(studies):
                log.warning("%s", line)
            for line in cost(studies, trials, hours):
                log.info("%s", line)
            scratch = studies[0].folder / SCRATCH
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)  # after Ray has ended, whatever ended the study
            stack.enter_context(ray_for(studies[0].first_job().config, trials))
            for study in studies:
                study.recall()
            stages.run(until)
    for study in studies:
        make_report(study.folder)
        if stages.has_run:
            loggers.log_page(study.folder, study.jobs[0].config)
    return stages.has_run


def check_count(trials: int | None) -> None:
    """Raises ConfigError if this is no number of trials side by side."""
    if trials is not None and not (is_count(trials) and trials >= 1):
        raise ConfigError(f"trials = {trials!r}: must be a whole number >= 1, or None for all that fit")


def check_studies(
    studies: Sequence[TuningStudy], stack: ExitStack, say: Callable[[str], None], trials: int | None
) -> None:
    """Check the folders of studies, which are made until the stack ends, and a run of every method.

    say: called with what is to be known before the first trial. Raises ConfigError.
    """
    for study in studies:
        run_state.refuse_other_results(study.folder, study.plan.kind)
        stack.enter_context(folder_locks.writable(study.folder))
    shown = set[str]()
    for study in studies:
        check_study(study, shown, say)
        choose_engine(study)
    check_room(studies[0].first_job().config, trials)


def lines_about_data(studies: Sequence[TuningStudy]) -> Iterator[str]:
    """What was read: of the first study in whole, of others, with their setting, what differs from those before."""
    lines = set[str]()
    for study in studies:
        setting = f"{study.setting}: " if lines and study.setting else ""
        block = study.description.block if study.description else []
        yield from (f"{setting}{line}" for line in block if line not in lines)
        lines.update(block)


def one_run_of_each(studies: Sequence[TuningStudy]) -> Iterator[Config]:
    """The configuration of a run of every method of studies."""
    for study in studies:
        for method in study.compared:
            yield method.config(study.config, study.points[method.label][0])


def preview_studies(
    studies: Sequence[TuningStudy], trials: int | None = None, hours: float | None = None
) -> Iterator[str]:
    """What studies would run, after the checks that come before the first trial; nothing is run. Raises ConfigError.

    Of published data that are not on this machine nothing is fetched, and what depends on them is not checked.
    """
    check_count(trials)
    absent = dict.fromkeys(line for study in studies if (line := not_here(study.config)))
    if absent:
        yield from outlook(studies, trials, hours)
        yield from absent
        return
    remarks = list[str]()
    with ExitStack() as stack:
        check_studies(studies, stack, lambda line: remarks.append(with_label(line)), trials)
        yield from lines_about_data(studies)
        yield from outlook(studies, trials, hours, remarks)


@dataclass
class _StageRunner:
    """Runs the jobs of studies, one stage after another in processes that stay.

    has_run: whether any of them was missing. stage: its name. has_chosen: whether the best points are chosen. shown: by
    folder and round of a pause, the title of the job that is shown of those that have this run in common.
    """

    studies: Sequence[TuningStudy]
    trials: int | None
    watch: StudyWatch | None
    has_run: bool = False
    stage: str = ""
    has_chosen: bool = False
    shown: dict[tuple[Path, int | None], str] = field(default_factory=dict)
    shares: GpuShares = field(default_factory=GpuShares)

    def run(self, until: float | None) -> None:
        """Run what is missing of candidates and of all jobs that follow. until: the time after which no look begins."""
        self.stage, self.has_chosen = "", False
        first = self._begin([study.candidates() for study in self.studies], TUNING) or self._finals()
        folder = self.studies[0].folder
        run_jobs(
            first,
            folder / SCRATCH,
            self.trials,
            self._write_and_tell,
            partial(self._further, until),
            folder / TUNE if self.stage == TUNING else None,
            self.shares,
            grows=any(study.proposes for study in self.studies),
        )

    def _further(self, until: float | None) -> list[Job]:
        """Jobs that follow from those that have ended: trials; after all of them final runs; those of the next look."""
        if trials := self._begin([study.further_trials() for study in self.studies]):
            return trials
        if any(study.is_waiting for study in self.studies):
            return []
        if not self.has_chosen:
            return self._finals()
        if until is not None and time.monotonic() >= until:
            return []
        for study in self.studies:
            study.write()  # what tests and lines read
        looks = [study.next_look() for study in self.studies]
        return self._begin(looks, _looks_so_far(self.studies)) if any(looks) else []

    def _finals(self) -> list[Job]:
        for study in self.studies:
            study.choose()
        self.has_chosen = True
        return self._begin([study.finals() for study in self.studies], FINALS)

    def _begin(self, jobs: Sequence[Sequence[Job]], stage: str = "") -> list[Job]:
        """Take the next jobs of every study into its plan, in another stage if it is named; the longest come first."""
        every = longest_first([job for own in jobs for job in own], [j for study in self.studies for j in study.jobs])
        if not every:
            return []
        for study, own in zip(self.studies, jobs, strict=True):
            study.begin(own)
        run_state.warn_about_changes([(job.folder, job.config) for job in every])
        if not self.has_run and not all(map(has_ended, every)):
            self.has_run = True
            for line in check_new_code(*one_run_of_each(self.studies)):
                log.info("%s", line)
        if stage:
            if self.stage:
                log.info("%s", time_left_line(self.studies, self.trials))
            self.stage, self.shown = stage, {}
        self.shown = {**{(job.folder, job.pause): job.title for job in reversed(every)}, **self.shown}
        return every

    def _write_and_tell(self, outcomes: dict[str, Outcome], progress: JobProgress) -> None:
        for study in self.studies:
            study.plan.gpus = self.shares.note or study.plan.gpus
            study.plan.gpu_full |= self.shares.too_small(study.folder)
            study.write()
        if self.watch is not None:
            shown = {*self.shown.values()}
            self.watch(self.stage, {name: own for name, own in outcomes.items() if name in shown}, progress)


def longest_first(jobs: Sequence[Job], known: Sequence[Job]) -> list[Job]:
    """The jobs in descending order of the time that others of their method took, so that no long one ends alone.

    Those of a method that has not run come first, in their order.
    """
    took: dict[tuple[str, str], list[float]] = {(job.setting, job.label): [] for job in jobs}
    for job in known:
        if (own := took.get((job.setting, job.label))) is not None and (seconds := job.seconds) is not None:
            own.append(seconds)
    return sorted(jobs, key=lambda job: -fmean(took[job.setting, job.label] or [inf]))


def _looks_so_far(studies: Sequence[TuningStudy]) -> str:
    """What is decided, and which runs come next, as the name of a stage."""
    from fedbench.report.answer import sequential_answer
    from fedbench.report.notes import next_looks
    from fedbench.report.study import Study
    from fedbench.report.typeset import join_words

    loaded = [Study.load(study.folder) for study in studies]
    tests = [(study, study.sequential_test) for study in loaded if study.sequential_test is not None]
    if len(tests) == 1:
        (study, test) = tests[0]
        waiting = [method for method in test.undecided if method not in test.given_up]
        against = f" Undecided against local training: {join_words(waiting)}." if test.look and waiting else ""
        return f"{sequential_answer(study, test)}{against}\nup to {next_looks(test)}"
    over = sum(test.is_over for _, test in tests)
    return f"decided in {over} of {len(tests)} settings, more seeds in the others"
