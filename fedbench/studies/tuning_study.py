"""A study of methods in two stages: each is tuned over its points, and the best one runs over the final seeds."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

from fedbench.config import Config
from fedbench.errors import ConfigError
from fedbench.jobs import provenance, run_folder
from fedbench.jobs.job import Job, Outcome
from fedbench.jobs.resolve import check, resolve, settled
from fedbench.jobs.schedule import Watch, execute, room_for
from fedbench.jobs.tune_callbacks import Running
from fedbench.results import loggers
from fedbench.results.plan import EntryRole, Plan, is_study, point_name, study_name
from fedbench.runtime.ray.liveness import outliving
from fedbench.runtime.resolved import ResolvedRun
from fedbench.studies.compared_methods import TUNE_SEEDS, Contender
from fedbench.studies.search import Tried, propose
from fedbench.studies.space import Values, at_an_end
from fedbench.tasks import Metric

TUNE = "tune"
"""The folder of a study with Ray Tune's own records of its trials, which TensorBoard and `ResultGrid` read."""


@dataclass
class Contest:
    """A study of contenders in its folder. root: the results folder below which jobs are kept.

    config: what is asked of all of them. required: the contender without which there is no answer, if there is one.
    final_val: `data.val` of final runs, where it is another one. setting: what tells it from others that are held with
    it. jobs: of the plan so far. points: by label, what is tried; where points are proposed, so far.
    """

    plan: Plan
    config: Config
    contenders: Sequence[Contender]
    folder: Path
    root: Path
    tune_seeds: Sequence[int]
    required: str | None = None
    final_val: float | None = None
    setting: str = ""
    jobs: tuple[Job, ...] = ()
    points: dict[str, list[Values]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.points = {contender.label: list(contender.points) for contender in self.contenders}
        self.plan.refused = [[c.label, point_name(point), why] for c in self.contenders for point, why in c.refused]
        self._note_spaces()
        clash = sorted(set(self.tune_seeds) & set(self.config.seeds))
        if clash and any(contender.tuned for contender in self.contenders):
            free = next(seed for seed in count(TUNE_SEEDS[0]) if seed not in self.config.seeds)
            raise ConfigError(
                f"tune_seeds: {', '.join(map(str, clash))} is also a final seed, whose numbers would be chosen on "
                f"themselves; take others, for example --tune-seeds {free}"
            )

    def _note_spaces(self) -> None:
        self.plan.spaces = {c.label: axes_of(self.points[c.label]) for c in self.contenders if c.tuned}

    def first(self) -> Job:
        """What would be run first, which tells how much room a trial needs."""
        contender = self.contenders[0]
        return self._job(contender, contender.points[0], self.config.seeds[0])

    def check(self) -> Metric:
        """Try what every contender is first asked to run. The metric that choices go by. Raises ConfigError."""
        remarks = dict.fromkeys(self._untuned())
        provenance.begin(self.config, *(contender.method for contender in self.contenders))
        for contender in self.contenders:
            run, lines = self._tried_out(contender)
            remarks |= dict.fromkeys(lines)
        for line in remarks:
            logging.getLogger("fedbench").warning("%s", line)
        return run.task.primary

    def _untuned(self) -> Iterator[str]:
        """Says which keys have no effect on whose steps, so that they are no axes."""
        if keys := sorted({key for contender in self.contenders for key in contender.untuned}):
            yield (
                f"not tuned: {', '.join(keys)}, which the model's own configure_optimizers does not read; with "
                "--train.optimizer sgd they are"
            )

    def _tried_out(self, contender: Contender) -> tuple[ResolvedRun, Sequence[str]]:
        """A run of the contender, which was built, and what is to be said of its partition.

        Raises ConfigError where no point of it can be.
        """
        first: ConfigError | None = None
        for point in self.points[contender.label]:
            try:
                run = resolve(contender.config(self.config, point))
                provenance.check_current(run.config)
                (dealt,) = check(run, [self.config.seeds[0]]).values()
                return run, dealt.warnings
            except ConfigError as error:
                if first is not None and str(first) == str(error):  # not the point's fault
                    break
                first = first or error
        assert first is not None
        raise first

    def candidates(self) -> list[Job]:
        """The jobs of the first stage: every point of every contender that has a choice, on the tuning seeds."""
        return [
            job
            for contender in self.contenders
            if contender.tuned
            for values in self.points[contender.label]
            for job in self._trials(contender, values)
        ]

    def _trials(self, contender: Contender, values: Values) -> list[Job]:
        return [self._job(contender, values, seed, "candidate", contender.trial) for seed in self.tune_seeds]

    def expected(self) -> list[Config]:
        """What will be run, what is there already included."""
        return [
            settled(asked)
            for contender in self.contenders
            for asked, _ in contender.runs(self.config, self.config.seeds, self.tune_seeds)
        ]

    def recall(self) -> None:
        """Take up the points that an earlier command proposed in this folder, as many as are asked for."""
        if not is_study(self.folder):
            return
        before = Plan.read(self.folder)
        if before.search != self.plan.search or Config(**before.config).key() != self.config.key():
            return
        for contender in self.contenders:
            known = [entry.values for entry in before.points(contender.label)][: contender.samples]
            if contender.samples and known[:1] == self.points[contender.label]:
                self.points[contender.label] = known
        self._note_spaces()

    def propose(self, metric: Metric) -> list[Job]:
        """The trials of one more point, for whoever waits for the fewest; none where all have their points."""
        left = [contender for contender in self.contenders if len(self.points[contender.label]) < contender.samples]
        for contender in sorted(left, key=lambda c: sum(self._waits(c, values) for values in self.points[c.label])):
            assert contender.space is not None
            tried = [self._known(contender, values, metric) for values in self.points[contender.label]]
            takes = lambda point, own=contender: self._takes(own, point)  # noqa: E731
            if (values := propose(contender.space, tried, takes)) is not None:
                self.points[contender.label].append(values)
                self._note_spaces()
                return self._trials(contender, values)
        return []

    def _takes(self, contender: Contender, point: Values) -> bool:
        why = contender.refusal(self.config, point)
        if why is not None and (line := [contender.label, point_name(point), why]) not in self.plan.refused:
            self.plan.refused.append(line)
        return why is None

    def _jobs_of(self, contender: Contender, values: Values) -> list[Job]:
        return [job for job in self.jobs if (job.role, job.label, job.values) == ("candidate", contender.label, values)]

    def _waits(self, contender: Contender, values: Values) -> bool:
        return any(job.outcome().status == "missing" for job in self._jobs_of(contender, values))

    def _known(self, contender: Contender, values: Values, metric: Metric) -> Tried:
        """What is known of a point: the mean over the tuning seeds, more is better; of a stopped one what it had."""
        jobs = self._jobs_of(contender, values)
        stopped = [found.score for job in jobs if (found := job.outcome()).score is not None]
        if stopped:
            return Tried(values, fmean(stopped), stopped=True)
        scores = [job.entry(self.folder).scores.get("val") for job in jobs]
        known = [score if metric.higher else -score for score in scores if score is not None]
        return Tried(values, fmean(known) if jobs and len(known) == len(jobs) else None)

    def choose(self, metric: Metric) -> None:
        """The best point of every contender. Raises ConfigError where the required one has none."""
        for contender in self.contenders:
            self._choose(contender, metric)
        chosen = self.plan.choices
        self.plan.ends = {
            c.label: at_an_end(c.method, c.space.axes if c.space else {}, self.points[c.label], chosen[c.label])
            for c in self.contenders_with(chosen)
            if c.tuned
        }
        if self.required is not None and self.required not in chosen:
            failed = next((o.error for o in (job.outcome() for job in self.jobs) if o.error), "no trial finished")
            raise ConfigError(f"no trial came to its end; the first says: {failed}")

    def finals(self) -> list[Job]:
        """The jobs of the second stage: the chosen point of every contender over the final seeds."""
        more = {} if self.final_val is None else {"data.val": self.final_val}
        return [
            self._job(contender, self.plan.choices[contender.label], seed, more=more)
            for contender in self.contenders_with(self.plan.choices)
            for seed in contender.seeds or self.config.seeds
        ]

    def contenders_with(self, choices: Mapping[str, Values]) -> list[Contender]:
        return [contender for contender in self.contenders if contender.label in choices]

    def begin(self, jobs: Sequence[Job]) -> None:
        """Take jobs into the plan."""
        self.jobs = (*self.jobs, *jobs)
        self.write()

    def write(self) -> None:
        """Keep plan.json true."""
        self.plan.entries = [job.entry(self.folder) for job in self.jobs]
        self.plan.write(self.folder)

    def _job(
        self, contender: Contender, values: Values, seed: int, role: EntryRole = "final", more: Values | None = None
    ) -> Job:
        asked = resolved(contender.config(self.config, {**values, **(more or {})}), self.folder)
        about = dict(values=dict(values), setting=self.setting, study=self.folder, point=self.plan.point)
        return Job.kept(asked, seed, self.root, contender.label, role=role, **about)

    def _choose(self, contender: Contender, metric: Metric) -> None:
        """The best mean over the tuning seeds on validation after the last round; the first of equals."""
        if not contender.tuned:
            self.plan.choices[contender.label] = contender.points[0]
            return
        sign = 1 if metric.higher else -1
        scored = [(entry.scores.get("val"), entry.values) for entry in self.plan.points(contender.label)]
        known = [(sign * score, values) for score, values in scored if score is not None]
        if known:
            self.plan.choices[contender.label] = max(known, key=lambda pair: pair[0])[1]


def hold(contests: Sequence[Contest], at_once: int | None = None, watch: Watch | None = None) -> bool:
    """Do what is missing of contests, stage by stage side by side, and write their pages; whether anything was missing.

    Raises ConfigError before the first trial.
    """
    new = outliving(partial(_hold, contests, at_once, watch), logging.getLogger("fedbench").warning)
    from fedbench.report import make_report

    for contest in contests:
        make_report(contest.folder)
        if new:
            loggers.log_page(contest.folder, contest.jobs[0].config)
    return new


def _hold(contests: Sequence[Contest], at_once: int | None, watch: Watch | None) -> bool:
    """Says whether anything was missing."""
    with ExitStack() as stack:
        for contest in contests:
            stack.enter_context(run_folder.made(contest.folder))
        metrics = [contest.check() for contest in contests]
        early = any(contest.plan.scheduler != "none" for contest in contests)
        stack.enter_context(room_for([contests[0].first()], at_once, early))
        for contest in contests:
            contest.jobs = ()
            stack.enter_context(run_folder.alone_in(contest.folder))
            contest.recall()
        jobs = [contest.candidates() for contest in contests]
        new = stage(contests, jobs, at_once, watch, metrics, early)
        for contest, metric in zip(contests, metrics, strict=True):
            contest.choose(metric)
        new |= stage(contests, [contest.finals() for contest in contests], at_once, watch)
        for contest in contests:
            contest.write()
    return new


def stage(
    contests: Sequence[Contest],
    jobs: Sequence[Sequence[Job]],
    at_once: int | None,
    watch: Watch | None,
    tuned_by: Sequence[Metric] = (),
    early: bool = False,
) -> bool:
    """Run the jobs of every contest, all of them side by side; says whether any of them was not done.

    tuned_by: the metric of every contest, where further points may be proposed. early: trials may be stopped.
    """

    def told(outcomes: dict[str, Outcome], running: Running) -> None:
        for contest in contests:
            contest.write()
        if watch is not None:
            watch(outcomes, running)

    def more() -> list[Job]:
        for contest, metric in zip(contests, tuned_by, strict=False):
            if added := contest.propose(metric):
                contest.begin(added)
                return added
        return []

    for contest, own in zip(contests, jobs, strict=True):
        contest.begin(own)
    every = [job for own in jobs for job in own]
    new = any(job.outcome().status != "done" for job in every)
    run_folder.say_changes([(job.folder, job.config) for job in every])
    if every:
        kept = contests[0].folder / TUNE if tuned_by else None
        found = execute(every, contests[0].folder / ".tune", at_once, told, more, early, kept)
        new |= len(found) > len(every)
    return new


def resolved(config: Config, folder: Path) -> Config:
    """Side by side beats inside: unless hosts are asked for, a trial is one process."""
    if config.resources.hosts == "auto":
        config.resources.hosts = 0
    if config.wandb.group is None:
        config.wandb.group = study_name(folder)
    return loggers.settled(resolve(config).config)


def axes_of(points: Sequence[Values]) -> dict[str, list[Any]]:
    """The values of every key among some points."""
    return {key: list(dict.fromkeys(point[key] for point in points)) for key in points[0]}
