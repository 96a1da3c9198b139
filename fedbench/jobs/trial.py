"""A job as a trial of Ray Tune: worked on in a thread of its own, told evaluation by evaluation."""

from math import isfinite
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

from fedbench.jobs.job import Job
from fedbench.jobs.trial_job import Supplies, attempt
from fedbench.runtime import driver

AHEAD = 1
"""Evaluations that a job may be ahead of what Tune has heard of it."""


class Left(BaseException):
    """Raised in a job that is not wanted any more."""


def told(event: driver.Event, point: str) -> dict[str, Any]:
    """An evaluation as Tune gets it: round, scores at a point, and `score`, of which more is always better."""
    metric = event["metric"]
    line: dict[str, Any] = next((line for line in event["lines"] if line["point"] == point), {})
    scores = {f"{split}_{metric.name}": line.get(f"{split}_{metric.name}") for split in ("val", "test")}
    known = {name: value for name, value in scores.items() if value is not None and isfinite(value)}
    if (value := known.get(f"val_{metric.name}")) is not None:
        known["score"] = value if metric.higher else -value
    return {"round": event["round"], **known}


class BackgroundJob:
    """A job that is being worked on. supplies: what this machine may lack."""

    def __init__(self, job: Job, supplies: Supplies | None = None) -> None:
        self.job, self.supplies = job, supplies
        self._results: Queue[dict[str, Any]] = Queue(AHEAD)
        self._last: dict[str, Any] = {}
        self._left = Event()
        self._thread = Thread(target=self._work, name=job.name, daemon=True)
        self._thread.start()

    def result(self) -> dict[str, Any]:
        """Of the next evaluation; that of the last one has `done`, and `complete` where the job did not fail."""
        return self._results.get()

    def leave(self) -> None:
        """End it after its next evaluation, and wait for that; what it computed is kept."""
        self._left.set()
        while self._thread.is_alive():
            try:
                self._results.get_nowait()
            except Empty:
                self._thread.join(0.05)

    def _work(self) -> None:
        complete = False
        try:
            complete = attempt(self.job, self.supplies, self._watch)
        except Left:
            return
        finally:
            if not self._left.is_set():
                self._results.put({**self._last, "complete": complete, "done": True})

    def _watch(self, event: driver.Event) -> None:
        if "lines" not in event:
            return
        self._last = told(event, self.job.point)
        if event["round"] < self.job.config.rounds:
            self._results.put(self._last)
            if self._left.is_set():
                raise Left


def trainable(tune: Any) -> Any:
    """The class of trials. A process takes one job after another; importing all costs more than a small run."""

    class Trial(tune.Trainable):
        work: BackgroundJob | None = None

        def setup(self, config: dict[str, Any], supplies: Supplies | None) -> None:
            self.job, self.supplies = config["job"], supplies

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.cleanup()
            self.job = new_config["job"]
            return True

        def step(self) -> dict[str, Any]:
            self.work = self.work or BackgroundJob(self.job, self.supplies)
            return self.work.result()

        def cleanup(self) -> None:
            if self.work is not None:
                self.work.leave()
                self.work = None

    return Trial
