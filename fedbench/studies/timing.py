"""How long a study takes by the clock: its runs side by side, stage by stage, and the processes that start for them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os.path import abspath

from fedbench import methods
from fedbench.config import Config
from fedbench.jobs.gpu_shares import open_to_trial
from fedbench.jobs.job import JOBS
from fedbench.jobs.resolve import choose_hosts, this_machine
from fedbench.jobs.trial_resources import need_of, needs_ray
from fedbench.processor import cores
from fedbench.results.files import read_json
from fedbench.results.plan import Entry, Plan, is_study
from fedbench.runtime.ray import cluster
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.cost import RUN, Cost, is_here
from fedbench.studies.neighbours import FEWEST_ON_A_SCALE, FEWEST_RATES, TIMES_BESIDE, is_rate, numbers_in
from fedbench.studies.space import Values
from fedbench.studies.tuning_study import TuningStudy
from fedbench.tasks import Metric
from fedbench.tasks import load as load_task

PROCESS = (6.0, 10.0)
"""Processor seconds until a process has loaded its libraries, at least and, on a busy machine, at most.

One process starts for each trial at a time in every stage, and one for every host of a run.
"""
RAY = (cluster.START, 2 * cluster.START)
"""Seconds until a local Ray has started, likewise."""
PAGE = 4.0
"""Measured seconds for tables and page of a study."""
USUAL, SLOWEST = 1.1, 3.0
"""Measured processor time of runs of the usual and of the slowest methods, in multiples of their gradient steps'."""
SLOWER = {
    name: times
    for times, names in (
        (1.7, "fedbabu fedmosaic fedselect floco"),
        (1.9, "fedas fedavg-ft fedfomo fml knn-per moon fedproto per-fedavg"),
        (2.4, "fedphp perfedmask pfedfda"),
        (2.8, "co-pfl fedcp fedkd gpfl pfedgate pfedhn"),
    )
    for name in names.split()
}
"""Methods whose work besides gradient steps shows, measured on digits with an mlp: masks, heads, several models."""
SPREAD = (0.65, 1.25)
"""What a run takes at least and at most, in multiples of its estimate."""


@dataclass(frozen=True)
class Room:
    """How trials run. trials: side by side; hosts: processes of each, 0 if there are none besides; ray: whether Ray
    starts them; cores: of the machine or cluster.
    """

    trials: int
    hosts: int
    ray: bool
    cores: int

    @classmethod
    def of(cls, studies: Sequence[TuningStudy], trials: int | None) -> "Room":
        """The room for the trials of studies, of which as many run at once as are asked for, or as fit."""
        first = studies[0]
        trial = Cost.of(first.compared[0].config(first.config, first.compared[0].points[0])).config
        open_to_trial(trial)
        choose_hosts(trial)
        hosts, ray = int(trial.resources.hosts), needs_ray(trial, trials)
        if not ray:
            return cls(1, 0, False, cores())
        clustered = trial.resources.address != "local"
        machines = cluster.cluster_offer(trial.resources.address).machines if clustered else this_machine().machines
        total = sum(machine.get("CPU", 0.0) for machine in machines)
        fitting = max(1, int(total / need_of(trial)["CPU"] + 1e-6))
        return cls(min(fitting, trials or fitting), hosts, True, max(1, int(total)))

    def __str__(self) -> str:
        side = "one run at a time" if self.trials == 1 else f"{self.trials} runs side by side"
        return side if self.hosts < 2 else f"{side}, each on {self.hosts} hosts"

    def seconds(self, runs: Sequence[float], process: float, stages: int = 1) -> float:
        """The time by the clock of runs of so many processor seconds, in so many stages of about as many runs.

        process: processor seconds until a process has started.
        """
        if not runs:
            return 0.0
        side = min(self.trials, len(runs))
        processors = min(self.cores, side * max(1, self.hosts))
        of_trial, of_hosts = self.ray * process, self.hosts * process
        work = sum(runs) + stages * side * of_trial + len(runs) * of_hosts
        longest = stages * of_trial + (max(runs) + of_hosts) / min(self.cores, max(1, self.hosts))
        return max(work / processors, longest)


@dataclass(frozen=True)
class Span:
    """Numbers of runs, gradient steps and seconds by the clock that are left, at least and at most."""

    runs: tuple[int, int]
    steps: tuple[float, float]
    seconds: tuple[float, float]


@dataclass(frozen=True)
class LeftRun:
    """A run that is not done: its gradient steps, and its processor seconds at least and at most.

    identity: the same for runs that run once.
    """

    identity: str
    steps: float
    least: float
    most: float


Stages = list[tuple[list[LeftRun], list[LeftRun]]]
"""Of every stage the runs that are left for certain, and those that may be added."""


def span_of(left: "Sequence[LeftRuns]", room: Room) -> Span:
    """What is left of studies that run side by side, up to the first look of a sequential test. Raises ConfigError."""
    stages = [*zip(*(own.stages() for own in left), strict=True)]
    certain = [_each_once(run for own, _ in stage for run in own) for stage in stages]
    possible = [[*runs, *(run for _, own in stage for run in own)] for runs, stage in zip(certain, stages, strict=True)]
    low, high = [[run.least for run in runs] for runs in certain], [[run.most for run in runs] for runs in possible]
    return Span(
        (sum(map(len, certain)), sum(map(len, possible))),
        (sum(run.steps for runs in certain for run in runs), sum(run.steps for runs in possible for run in runs)),
        (whole_seconds(low, room, 0) + PAGE * len(left), whole_seconds(high, room, 1) + PAGE * len(left)),
    )


def _each_once(runs: Iterable[LeftRun]) -> list[LeftRun]:
    """Without runs that several studies or methods have in common."""
    return [*{run.identity: run for run in runs}.values()]


def whole_seconds(stages: Sequence[Sequence[float]], room: Room, end: int) -> float:
    """The time of stages with runs of so many processor seconds, with Ray's start.

    end: 0 for the time at least, 1 for that at most.
    """
    start = RAY[end] if room.ray and any(stages) and not cluster.is_joined() else 0.0
    return start + sum(room.seconds(runs, PROCESS[end]) for runs in stages)


class LeftRuns:
    """The runs of a study that are not done, and what one takes.

    Runs that are done say how much slower a method is than its gradient steps.
    """

    def __init__(self, study: TuningStudy) -> None:
        self.study, self.costs = study, dict[str, Cost]()
        known = entries_so_far(study)
        ended = [entry for entry in known if entry.status in ("done", "stopped")]
        self.ended = Counter((entry.role, entry.label, entry.seed, entry.status) for entry in ended)
        self.begun = dict[str, list[int]]()
        for entry in known:
            if entry.role == "final":  # those of a later look too
                self.begun.setdefault(entry.label, []).append(entry.seed)
        self.done = {abspath(study.folder / entry.path) for entry in ended}
        self.paces = self._paces(known)

    def stages(self) -> Stages:
        """Tuning, to which neighbours of the best points may be added, and final runs."""
        tuned, seeds = self._tuned(), self.study.tune_seeds
        places = [(method, place, seed) for place, seed in enumerate(seeds) for method in tuned]
        return [
            (
                [run for candidates in places for run in self._candidates(*candidates)],
                [run for method in tuned for run in self._neighbours(method)],
            ),
            ([run for method in self.study.compared for run in self.finals(method)], []),
        ]

    def run(
        self, method: ComparedMethod, values: Values, seed: int = 0, is_trial: bool = False, stops: bool = False
    ) -> LeftRun:
        """One seed at a point. is_trial: it tries the point; stops: in a part of the rounds."""
        cost = self._cost(method, {**values, **(method.trial if is_trial else {})})
        rung = self.study.rung(method, cost.config) if stops else None
        share = (rung + 1) / cost.config.rounds if rung else 1.0  # it trains the next round while that one is evaluated
        seconds = cost.seconds * share
        least, most = (seconds * factor for factor in self._pace(method))
        return LeftRun(f"{cost.config.key()}-{seed}-{is_trial}", cost.steps * share, least, most)

    def _cost(self, method: ComparedMethod, values: Values) -> Cost:
        """The cost of a point, computed once for all seeds."""
        key = f"{method.label} {values}"
        if key not in self.costs:
            self.costs[key] = Cost.of(method.config(self.study.config, values))
        return self.costs[key]

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        first = self.study.compared[0]
        cost = self._cost(first, self.study.points[first.label][0])
        return load_task(cost.dataset.task, cost.config.evaluate.model_dump()).primary

    def finals(self, method: ComparedMethod) -> list[LeftRun]:
        """The final runs of a method that are left, at its chosen point or one that stands for it."""
        point = self.study.plan.choices.get(method.label, self.study.points[method.label][0])
        own = method.seeds or self.study.config.seeds
        seeds = dict.fromkeys([*own, *self.begun.get(method.label, ())])
        left = [seed for seed in seeds if not self.ended["final", method.label, seed, "done"]]
        return [self.run(method, point, seed) for seed in left]

    def _tuned(self) -> list[ComparedMethod]:
        return [method for method in self.study.compared if method.tuned]

    def _candidates(self, method: ComparedMethod, place: int, seed: int) -> list[LeftRun]:
        known, count = self.study.points[method.label], method.tried_on(place)
        few = 0 if place else count - method.tried_on(1)  # which points stop is not known yet, but how many
        runs = [self.run(method, point, seed, True, stops=n < few) for n, point in enumerate(known[:count])]
        # Points that are not proposed yet cost what those do that are.
        runs += [replace(runs[n % len(runs)], identity=f"{method.label} {seed} {n}") for n in range(len(runs), count)]
        done, stopped = (self.ended["candidate", method.label, seed, status] for status in ("done", "stopped"))
        return runs[done + min(few, stopped) :]

    def _neighbours(self, method: ComparedMethod) -> list[LeftRun]:
        """At most: each time both neighbours of the best rate, and one of other numbers; none after the choice."""
        study, points = self.study, self.study.points[method.label]
        if not study.tries_neighbours or self.begun:
            return []
        scales = {key: len(numbers_in([point[key] for point in points])) for key in points[0]}
        rates = sum(2 for key, count in scales.items() if is_rate(method.name, key) and count >= FEWEST_RATES)
        others = sum(not is_rate(method.name, key) and count >= FEWEST_ON_A_SCALE for key, count in scales.items())
        return [self.run(method, points[0])] * (TIMES_BESIDE * (rates + others) * len(study.tune_seeds))

    def _pace(self, method: ComparedMethod) -> tuple[float, float]:
        """The processor seconds of a run in multiples of those of its gradient steps, at least and at most."""
        if (known := self.paces.get(method.label)) is not None:
            return known, known
        if methods.METHODS.path(method.name):  # not one of fedbench's own
            return SPREAD[0] * USUAL, SLOWEST
        usual = SLOWER.get(method.name, USUAL)
        return SPREAD[0] * usual, SPREAD[1] * usual

    def _paces(self, known: Sequence[Entry]) -> dict[str, float]:
        """By label, the processor seconds of runs that are done, in multiples of those of their gradient steps."""
        took, estimated = dict[str, float](), dict[str, float]()
        compared = {method.label: method for method in self.study.compared}
        for entry in known:
            method, summary = compared.get(entry.label), read_json(self.study.folder / entry.path / "summary.json", [])
            if method is None or entry.status != "done" or "cpu_seconds_per_round" not in summary:
                continue
            cost = Cost.of(method.config(self.study.config, entry.values))
            seconds = summary["cpu_seconds_per_round"] * cost.config.rounds + RUN
            took[entry.label] = took.get(entry.label, 0.0) + seconds
            estimated[entry.label] = estimated.get(entry.label, 0.0) + cost.seconds
        return {label: took[label] / estimated[label] for label in took}


def entries_so_far(study: TuningStudy) -> list[Entry]:
    """The jobs of a study that began: in this command, before in its folder, or with others of its results folder."""
    if study.jobs:
        return study.plan.entries
    if is_study(study.folder):
        before = Plan.read(study.folder)
        return before.entries if Config(**before.config).key() == study.config.key() else []
    if not (study.root / JOBS).is_dir() or not is_here(study.config.data):
        return []
    return [job.entry(study.folder) for job in study.known_jobs()]
