"""Runs studies stage by stage: tuning, neighbours of the best points, final runs, looks of a sequential test."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from statistics import fmean
from typing import Any

from fedbench.checks.before_run import check_new_code
from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs import folder_locks, run_state
from fedbench.jobs.gpu_shares import GpuShares
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.schedule import check_room, has_ended, ray_for, run_jobs
from fedbench.jobs.tune_callbacks import JobProgress, MoreJobs
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
BETTER_HALF = "tuning on {} seeds, the better half of the candidates"
NEIGHBOURS = ("neighbours of the best candidates", "neighbours of the new best candidates")
"""Names of stages; how often a study tries the points beside a method's best one."""
StudyWatch = Callable[[str, dict[str, Outcome], JobProgress], None]
"""Gets the name of a stage, the outcome of each of its jobs so far, and the progress of running jobs."""
TUNE = "tune"
"""The folder of a study with Ray Tune's own records of its trials, which TensorBoard and `ResultGrid` read."""
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
            tuning: dict[str, Any] = {"tune_folder": studies[0].folder / TUNE}
            more: MoreJobs = stages.further if any(study.grows for study in studies) else tuple
            stages.run(TUNING, [study.candidates() for study in studies], more=more, **tuning)
            for place in range(1, max(len(study.tune_seeds) for study in studies)):
                better = [study.better_candidates(place) for study in studies]
                stages.run(BETTER_HALF.format(place + 1), better, **tuning)
            for study in studies:
                study.choose()
            for stage in NEIGHBOURS:
                if not stages.run(stage, [study.trials_of_neighbours() for study in studies]):
                    break
                for study in studies:
                    study.choose()
            stages.run(FINALS, [study.finals() for study in studies])
            while until is None or time.monotonic() < until:
                looks = [study.next_look() for study in studies]
                if not any(looks):
                    break
                stages.run(_looks_so_far(studies), looks)
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
    """Runs the jobs of studies stage by stage. has_run: whether any of them was missing."""

    studies: Sequence[TuningStudy]
    trials: int | None
    watch: StudyWatch | None
    has_run: bool = False
    has_begun: bool = False
    shares: GpuShares = field(default_factory=GpuShares)

    def run(self, stage: str, jobs: Sequence[Sequence[Job]], **how: Any) -> bool:
        """Take the next jobs of every study into its plan and run what is missing; returns whether there are jobs.

        how: as in `run_jobs`.
        """
        for study, own in zip(self.studies, jobs, strict=True):
            study.begin(own)
        every = longest_first([job for own in jobs for job in own], [j for study in self.studies for j in study.jobs])
        if not every:
            return False
        run_state.warn_about_changes([(job.folder, job.config) for job in every])
        if not self.has_run and not all(map(has_ended, every)):
            self.has_run = True
            for line in check_new_code(*one_run_of_each(self.studies)):
                log.info("%s", line)
        first = {job.folder: job.name for job in reversed(every)}
        twice = {job.name for job in every} - set(first.values())
        scratch, watch = self.studies[0].folder / SCRATCH, partial(self._write_and_tell, stage, twice)
        if self.has_begun:
            log.info("%s", time_left_line(self.studies, self.trials))
        self.has_begun = True
        run_jobs(every, scratch, self.trials, watch, shares=self.shares, **how)
        return True

    def further(self) -> list[Job]:
        """Jobs that follow from those of the first stage: of the first study that continues or proposes some."""
        for study in self.studies:
            if added := [*study.continued(), *study.propose()]:
                study.begin(added)
                self.has_run |= not all(map(has_ended, added))
                return added
        return []

    def _write_and_tell(self, stage: str, twice: Set[str], outcomes: dict[str, Outcome], progress: JobProgress) -> None:
        """twice: names of jobs that have their run in common with another one, which runs once."""
        for study in self.studies:
            study.plan.gpus = self.shares.note or study.plan.gpus
            study.plan.gpu_full |= self.shares.too_small(study.folder)
            study.write()
        if self.watch is not None:
            self.watch(stage, {name: own for name, own in outcomes.items() if name not in twice}, progress)


def longest_first(jobs: Sequence[Job], known: Sequence[Job]) -> list[Job]:
    """The jobs in descending order of the time that others of their method took, so that no long one ends alone.

    Those of a method that has not run come first, in their order.
    """
    took = dict[tuple[str, str], list[float]]()
    for job in known:
        if (seconds := job.seconds) is not None:
            took.setdefault((job.setting, job.label), []).append(seconds)
    return sorted(jobs, key=lambda job: -fmean(took.get((job.setting, job.label), [inf])))


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
