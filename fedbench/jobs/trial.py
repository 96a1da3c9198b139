"""A job as a trial of Ray Tune: it runs in a thread and reports evaluation by evaluation."""

from math import isfinite
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any

from fedbench.jobs.folder_sync import Supplies
from fedbench.jobs.job import Job
from fedbench.jobs.run_job import run_job
from fedbench.results.events import Evaluation, WatchedEvent
from fedbench.runtime.machine.gpu import GpuFullError
from fedbench.runtime.machine.process import prepare_process

AHEAD = 1
"""Number of evaluations that a job may be ahead of Tune."""


class NotWantedError(BaseException):
    """Raised inside a job that is no longer wanted."""


def tune_result(event: Evaluation, point: str) -> dict[str, Any]:
    """An evaluation for Tune: round, scores at a point, and `score`, for which higher is always better."""
    metric = event.metric
    line: dict[str, Any] = next((line for line in event.lines if line["point"] == point), {})
    scores = {f"{split}_{metric.name}": line.get(f"{split}_{metric.name}") for split in ("val", "test")}
    finite = {name: value for name, value in scores.items() if value is not None and isfinite(value)}
    if (value := finite.get(f"val_{metric.name}")) is not None:
        finite["score"] = value if metric.higher else -value
    return {"round": event.round, **finite}


class BackgroundJob:
    """A job that runs in a thread. supplies: for a machine that lacks them."""

    def __init__(self, job: Job, supplies: Supplies | None = None) -> None:
        self.job, self.supplies = job, supplies
        self._results: Queue[dict[str, Any]] = Queue(AHEAD)
        self._last: dict[str, Any] = {}
        self._stopped = Event()
        self._thread = Thread(target=self._run, name=job.name, daemon=True)
        self._thread.start()

    def result(self) -> dict[str, Any]:
        """The result of the next evaluation; the last one has `done`, and how it ended: `complete`, or `gpu_full`."""
        return self._results.get()

    def stop(self) -> None:
        """End it after its next evaluation and wait for the end; its results are kept."""
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._results.get_nowait()
            except Empty:
                self._thread.join(0.05)

    def _run(self) -> None:
        ending: BaseException | None = NotWantedError()
        try:
            ending = run_job(self.job, self.supplies, self._watch)
        except NotWantedError:
            return
        finally:
            if not self._stopped.is_set():
                ended = {"complete": ending is None, "gpu_full": isinstance(ending, GpuFullError), "done": True}
                self._results.put({**self._last, **ended})

    def _watch(self, event: WatchedEvent) -> None:
        if not isinstance(event, Evaluation):
            return
        self._last = tune_result(event, self.job.point)
        if event.round < self.job.last:
            self._results.put(self._last)
            if self._stopped.is_set():
                raise NotWantedError


def trainable(tune: Any) -> Any:
    """The class of trials. A process runs one job after another: importing everything costs more than a small run."""

    class Trial(tune.Trainable):
        work: BackgroundJob | None = None

        def setup(self, config: dict[str, Any], supplies: Supplies | None) -> None:
            prepare_process()
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
                self.work.stop()
                self.work = None

    return Trial
