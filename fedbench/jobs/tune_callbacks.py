"""What Ray Tune asks while it runs trials: which job is next, whether one is to be stopped, who is told."""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from types import SimpleNamespace
from typing import Any

from fedbench.jobs.job import Job
from fedbench.jobs.trial_job import paced
from fedbench.results.reader import Records
from fedbench.runtime.ray.liveness import check_alive

REDUCTION = 3
"""Of the trials that reach a rung, the best third goes on to the next, at three times as many rounds."""
RUNGS = 2
"""Before the last round: at a ninth and at a third of the rounds."""
LONGEST = 100
"""Letters of a trial's name."""
PACE = 20.0
"""Seconds between two words about trials that go on."""
More = Callable[[], Sequence[Job]]
Running = Mapping[str, float]
"""The share of its rounds that a job has behind it, by the name of the job."""
Told = Callable[[Running], None]
SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # after its own, a study would go on with what was tried so far
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


def prepared() -> Any:
    """Ray Tune, which reads some settings from the environment."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    from ray import tune

    return tune


def name_of(trial: Any) -> str:
    """What TensorBoard and Tune call a trial."""
    return re.sub(r"[^\w.,=+-]+", "-", f"{trial.config['job'].name}"[:LONGEST]) + f"-{trial.trial_id}"


def queue(jobs: Sequence[Job], more: More, begun: Callable[[Job], None]) -> Any:
    """A searcher of Tune that hands out jobs, first those that are known, then what is proposed when room is free."""
    from ray.tune.search import Searcher

    class Jobs(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self.waiting = list(jobs)

        def suggest(self, trial_id: str) -> Any:
            if not self.waiting:
                self.waiting += more()
            if not self.waiting:
                return Searcher.FINISHED
            job = self.waiting.pop(0)
            begun(job)
            return {"job": job, "method": job.label, "seed": job.seed, **job.values}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """What became of a job is known from its folder."""

        def save(self, checkpoint_path: str) -> None:
            """Nothing: see above."""

        def restore(self, checkpoint_path: str) -> None:
            """Nothing: see above."""

    return Jobs()


def halving(known: Sequence[Job]) -> Any:
    """Asynchronous successive halving among the trials of one method and seed; methods are not set against each other.

    known: jobs that are done or were stopped before, against which new ones have to hold.
    """
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

    class Halving(FIFOScheduler):
        def __init__(self) -> None:
            super().__init__()
            self.groups: dict[tuple[Any, ...], Any] = {}

        def group(self, job: Job) -> Any:
            own = (job.setting, job.label, job.seed)
            if own not in self.groups:
                self.groups[own] = asha(job.config.rounds, job.config.evaluate.every)
                for other in known:
                    if (other.setting, other.label, other.seed) == own:
                        _replay(self.groups[own], other)
            return self.groups[own]

        def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
            self.group(trial.config["job"]).on_trial_add(tune_controller, trial)

        def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
            job = trial.config["job"]
            decision = str(self.group(job).on_trial_result(tune_controller, trial, result))
            if decision == TrialScheduler.STOP:
                job.stop(result["round"], result["score"])
            return decision

        def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
            self.group(trial.config["job"]).on_trial_complete(tune_controller, trial, result)

        def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
            self.group(trial.config["job"]).on_trial_remove(tune_controller, trial)

    def asha(rounds: int, every: int) -> Any:
        grace = min(rounds, max(every, ceil(rounds / REDUCTION**RUNGS)))
        return ASHAScheduler(
            "round",
            "score",
            "max",
            max_t=rounds,
            grace_period=grace,
            reduction_factor=REDUCTION,
            stop_last_trials=False,
        )

    return Halving()


def _replay(scheduler: Any, job: Job) -> None:
    """Let a scheduler know how a job went that it did not see."""
    trial = SimpleNamespace(trial_id=job.name)
    scheduler.on_trial_add(None, trial)
    for round, score in evaluations(job):
        scheduler.on_trial_result(None, trial, {"round": round, "score": score})


def evaluations(job: Job) -> list[tuple[int, float]]:
    """Round and score of what a job's folder holds; more is better."""
    records = Records(job.folder)
    metric = records.metric()
    frame = records.metrics()
    frame = frame[frame["point"] == job.point].dropna(subset=[f"val_{metric.name}"])
    sign = 1 if metric.higher else -1
    return [(int(r), sign * float(v)) for r, v in zip(frame["round"], frame[f"val_{metric.name}"], strict=True)]


def watcher(tune: Any, watch: Told) -> Any:
    """Tells of every trial that starts or ends, now and then how far they are, and that Ray is dead, which Tune would
    wait for.
    """
    import ray

    class Watcher(tune.Callback):
        def __init__(self) -> None:
            self.over: dict[str, float] = {}
            self.tell_of_rounds = paced(self._tell, PACE)

        def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
            check_alive(ray)

        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell(trials)

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            job = trial.config["job"]
            self.over[job.name] = result.get("round", 0) / job.config.rounds
            self.tell_of_rounds(trials)

        def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            job = trial.config["job"].name
            logging.getLogger("fedbench").warning("the process of %s died: going on from its last checkpoint", job)

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell([other for other in trials if other is not trial])

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self._tell([other for other in trials if other is not trial])

        def _tell(self, trials: list[Any]) -> None:
            names = [trial.config["job"].name for trial in trials if trial.status == "RUNNING"]
            watch({name: self.over.get(name, 0.0) for name in names})

    return Watcher()
