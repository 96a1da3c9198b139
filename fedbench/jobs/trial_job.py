"""A trial: a job in a process of Ray Tune's, which may be on a machine that has neither the data nor the results."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.prepared import Prepared
from fedbench.errors import RunError
from fedbench.jobs.folder_sync import Home, brought, home_in
from fedbench.jobs.job import ERROR, Job
from fedbench.jobs.resolve import check
from fedbench.jobs.run_job import Watcher, perform
from fedbench.results.loggers import account
from fedbench.runtime.driver import Event
from fedbench.runtime.ray.cluster import COMMAND
from fedbench.runtime.resolved import ResolvedRun
from fedbench.user_code import exits_refused

PACE = 5.0
"""Seconds between two looks at what there is to send home."""


@dataclass(frozen=True)
class Supplies:
    """What other machines of a cluster may lack. data: data sets by what was asked for.

    environment: variables by which loggers know an account, and what the user typed.
    """

    home: Home
    data: Mapping[str, Prepared]
    environment: Mapping[str, str]

    def dataset(self, config: Config) -> Dataset:
        """As it lies on this machine, or as it was sent from home, which happens once per machine."""
        import ray

        known = self.data[_asked(config)]
        if (here := known.found()) is not None:
            return here
        files = ray.get(self.home.keeper.data.remote(known))
        return known.written(dict(zip(files, ray.get(list(files.values())), strict=True)))


@contextmanager
def supplies_for(ray: Any, jobs: Sequence[Job]) -> Iterator[Supplies | None]:
    """Of jobs that may be done on other machines, for the time of a block; None where there is only this one."""
    config = jobs[0].config
    if config.resources.address == "local":
        yield None
        return
    asked = {_asked(job.config): job.config.data for job in jobs}
    data = {key: Prepared.of(Dataset.load(section)) for key, section in asked.items()}
    typed = {COMMAND: os.environ[COMMAND]} if COMMAND in os.environ else {}
    with home_in(ray, jobs[0].folder.parent) as home:
        yield Supplies(home, data, {**typed, **account(config.loggers)})


def _asked(config: Config) -> str:
    return config.data.model_dump_json()


def attempt(job: Job, supplies: Supplies | None = None, watch: Watcher = lambda event: None) -> bool:
    """Do a resolved job. A failure is written down, not raised: Tune would try it again. watch: as of `perform`."""
    if supplies is None:
        return _done(job, lambda: ResolvedRun.of(job.config), watch)
    os.environ.update(supplies.environment)
    with brought(job, supplies.home) as (own, send):
        sent = paced(send)

        def told(event: Event) -> None:
            sent()
            watch(event)

        return _done(own, lambda: ResolvedRun.of(job.config, supplies.dataset(job.config)), told)


def _done(job: Job, load: Callable[[], ResolvedRun], watch: Watcher) -> bool:
    try:
        with exits_refused():
            run = load()
        perform([job], run, check(run), watch)
    except Exception as error:
        note_error(job, last_line(error))
        return False
    return True


def paced(call: Callable[..., None], seconds: float = PACE, clock: Callable[[], float] = time.monotonic) -> Any:
    """Call it when it is asked for, but not again within so many seconds."""
    last = clock()

    def asked(*arguments: Any) -> None:
        nonlocal last
        if clock() - last >= seconds:
            call(*arguments)
            last = clock()

    return asked


def note_error(job: Job, text: str) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / ERROR).write_text(text + "\n")


def last_line(error: BaseException) -> str:
    if isinstance(error, RunError):
        return str(error)
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
