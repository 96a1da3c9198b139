"""The jobs of a study that have not begun, and those that follow from the outcomes of others."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from fedbench.jobs import folder_locks, run_state
from fedbench.jobs.job import Job
from fedbench.jobs.tune_callbacks import MoreJobs


class PendingJobs:
    """Hands out jobs, of several in one folder one at a time. more: called for those that follow when there is room."""

    def __init__(self, jobs: Sequence[Job], more: MoreJobs) -> None:
        self.every = list(jobs)
        """All jobs that were handed in so far, whatever has become of them."""
        self.running: Mapping[str, Job] = {}
        """Those in work."""
        self._more = more
        self._begun: dict[Path, Job] = {}
        self._later: list[Job] = []

    def first(self) -> list[Job]:
        """The jobs to begin with; empty if nothing is left to do."""
        return self._ready(self.every) or self.further()

    def further(self) -> list[Job]:
        """The jobs that can begin now; empty if others must end before."""
        while True:
            added = list(self._more())
            self.every += added
            if (ready := self._ready(added)) or not added:
                return ready

    def _ready(self, added: Sequence[Job]) -> list[Job]:
        """Of new jobs, and of those that wait for another with their run, the ones that can begin."""
        for job in added:
            if job.outcome().status == "done":
                run_state.state_of(job.folder, job.config)
                folder_locks.remove_leftovers(job.folder, job.config.rounds)
        in_work = {job.folder for job in self.running.values()}
        ready, self._later = to_begin([*self._later, *added], self._begun, in_work)
        return ready


def to_begin(jobs: Sequence[Job], begun: dict[Path, Job], in_work: Set[Path]) -> tuple[list[Job], list[Job]]:
    """The jobs to begin now, each in a folder of its own, and those whose run another one has in work.

    begun: by folder, the job that was begun last; those to begin are added. in_work: folders. What has failed is not
    begun again. A job that does not pause includes one that does.
    """
    first = dict[Path, Job]()
    for job in jobs:
        before = begun.get(job.folder)
        if has_ended(job) or (before is not None and before.outcome().status == "failed"):
            continue
        if job.folder not in first or (first[job.folder].pause and not job.pause):
            first[job.folder] = job
    now = [job for folder, job in first.items() if folder not in in_work]
    begun |= {job.folder: job for job in now}
    return now, [job for job in jobs if job.folder in first and job.folder in in_work]


def has_ended(job: Job) -> bool:
    """Whether nothing is left to do: it is done, or has paused."""
    return job.outcome().status in ("done", "stopped")
