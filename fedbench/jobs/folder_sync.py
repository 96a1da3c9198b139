"""Folders of jobs on machines that do not see the results folder: fetched, and sent home as they grow."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.data.prepared import Prepared
from fedbench.jobs.job import Job
from fedbench.results.files import write_atomically
from fedbench.runtime import checkpoint
from fedbench.runtime.scratch import Scratch

MARK = ".seen"


class Keeper:
    """Reads and writes folders on the machine of a command, as an actor that works there."""

    def __init__(self) -> None:
        self._data: dict[Prepared, dict[str, Any]] = {}

    def data(self, known: Prepared) -> dict[str, Any]:
        """References to the files of a data set, which are put into Ray's object store once for all who ask."""
        import ray

        if known not in self._data:
            self._data[known] = {name: ray.put(content) for name, content in known.files().items()}
        return self._data[known]

    def read(self, folder: Path) -> dict[str, bytes]:
        """The files of a folder by their names in it."""
        return contents(folder, names(folder))

    def write(self, folder: Path, files: Mapping[str, bytes], whole: Sequence[str]) -> None:
        """Take over files that have changed, and remove those that are not among the names of all.

        Checkpoints are written last: they count once they are there, and need their shards then.
        """
        for name in sorted(files, key=lambda name: (checkpoint.is_one(name), name)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, files[name])
        for name in set(names(folder)) - set(whole):
            (folder / name).unlink()
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def names(folder: Path) -> list[str]:
    """The files of a folder, without hidden ones, which are locks and what is only half written."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in inside if not any(part.startswith(".") for part in path.parts))


@dataclass(frozen=True)
class Home:
    """Where the results of a study lie. mark: a file by whose name a machine knows the place."""

    keeper: Any
    mark: Path

    @property
    def is_here(self) -> bool:
        """Whether this machine sees the place, because it is the command's or shares its storage."""
        return self.mark.exists()


@contextmanager
def home_in(ray: Any, folder: Path) -> Iterator[Home]:
    """This machine as the home of what jobs leave, for the time of a block. folder: in which theirs are."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote()
    home = Home(keeper, folder.absolute() / f"{MARK}-{uuid.uuid4().hex}")
    folder.mkdir(parents=True, exist_ok=True)
    home.mark.touch()
    try:
        yield home
    finally:
        home.mark.unlink(missing_ok=True)
        ray.kill(keeper)


@contextmanager
def brought(job: Job, home: Home) -> Iterator[tuple[Job, Callable[[], None]]]:
    """A job where it can be worked on, and what sends home all that has changed; it is sent once more at the end.

    Where the results folder is not seen, it is a copy of the job's folder that began with what is at home.
    """
    if home.is_here:
        yield job, lambda: None
        return
    import ray

    scratch = Scratch(job.config.resources.scratch)
    own = scratch.folder / job.folder.name
    for name, content in ray.get(home.keeper.read.remote(job.folder)).items():
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes(content)
    sent = stamps(own)

    def send() -> None:
        now = stamps(own)
        changed = contents(own, [name for name in now if now[name] != sent.get(name)])
        if changed or now.keys() != sent.keys():
            ray.get(home.keeper.write.remote(job.folder, changed, list(now)))
            sent.clear()
            sent.update(now)

    try:
        try:
            yield replace(job, folder=own), send
        finally:
            send()
    finally:
        scratch.close()


def contents(folder: Path, asked: Sequence[str]) -> dict[str, bytes]:
    """Of files that are still there: a logger's own process may remove some meanwhile."""
    found = {}
    for name in asked:
        with suppress(FileNotFoundError):
            found[name] = (folder / name).read_bytes()
    return found


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Time and size of every file."""
    found = {}
    for name in names(folder):
        with suppress(FileNotFoundError):
            stat = (folder / name).stat()
            found[name] = (stat.st_mtime_ns, stat.st_size)
    return found
