"""Supplies jobs on other machines of a cluster with data and environment, and copies their folders there and back."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.data.dataset import Dataset
from fedbench.data.prepared import PreparedDataset
from fedbench.jobs.job import Job
from fedbench.results.files import write_atomically
from fedbench.runtime.ray.cluster import COMMAND
from fedbench.runtime.states import checkpoint
from fedbench.runtime.states.scratch import Scratch
from fedbench.tracking.loggers import account_variables

MARK = ".seen"


class FileServer:
    """An actor on the command's machine that reads and writes files for other machines."""

    def __init__(self) -> None:
        self._data: dict[PreparedDataset, dict[str, Any]] = {}

    def data(self, prepared: PreparedDataset) -> dict[str, Any]:
        """References to the files of a data set, put into Ray's object store once for all machines."""
        import ray

        if prepared not in self._data:
            self._data[prepared] = {name: ray.put(content) for name, content in prepared.files().items()}
        return self._data[prepared]

    def read(self, folder: Path) -> dict[str, bytes]:
        """The contents of a folder's files, by name."""
        return read_files(folder, file_names(folder))

    def write(self, folder: Path, files: Mapping[str, bytes], all_names: Sequence[str]) -> None:
        """Write the changed files, and remove those whose names are gone.

        Checkpoints are written last, because they count once they exist and need their shards then.
        """
        for name in sorted(files, key=lambda name: (checkpoint.is_one(name), name)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, files[name])
        for name in set(file_names(folder)) - set(all_names):
            (folder / name).unlink()
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


@dataclass(frozen=True)
class Supplies:
    """The supplies that other machines of a cluster may lack.

    server: a `FileServer` on the command's machine. mark: a file by which a machine recognises the results folder.
    environment: variables with the loggers' accounts and the command.
    """

    server: Any
    mark: Path
    environment: Mapping[str, str]

    @property
    def results_are_here(self) -> bool:
        """Whether this machine sees the results folder: it is the command's machine or shares its storage."""
        return self.mark.exists()

    def dataset(self, prepared: PreparedDataset) -> Dataset:
        """The data set from this machine, or as sent by the command's machine, once per machine."""
        import ray

        if (here := prepared.find()) is not None:
            return here
        files = ray.get(self.server.data.remote(prepared))
        return prepared.copy_here(dict(zip(files, ray.get(list(files.values())), strict=True)))


@contextmanager
def supplies_for(ray: Any, jobs: Sequence[Job]) -> Iterator[Supplies | None]:
    """Supplies, during a block, for jobs that may run on other machines; None if there is only this machine."""
    config = jobs[0].config
    if config.resources.address == "local":
        yield None
        return
    typed = {COMMAND: os.environ[COMMAND]} if COMMAND in os.environ else {}
    with file_server(ray, jobs[0].folder.parent) as (server, mark):
        yield Supplies(server, mark, {**typed, **account_variables(config.loggers)})


@contextmanager
def file_server(ray: Any, folder: Path) -> Iterator[tuple[Any, Path]]:
    """A `FileServer` on this machine during a block, and the mark in the folder that holds the jobs' folders."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    server = ray.remote(FileServer).options(num_cpus=0, scheduling_strategy=here).remote()
    mark = folder.absolute() / f"{MARK}-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield server, mark
    finally:
        mark.unlink(missing_ok=True)
        ray.kill(server)


@contextmanager
def synced_copy(job: Job, supplies: Supplies | None) -> Iterator[tuple[Job, Callable[[], None]]]:
    """The job as it can run here, and a function that sends its changed files to the results, as the end does too.

    A machine that does not see the results folder works on a copy of the job's folder.
    """
    if supplies is None or supplies.results_are_here:
        yield job, lambda: None
        return
    import ray

    scratch = Scratch(job.config.resources.scratch)
    copy = scratch.folder / job.folder.name
    for name, content in ray.get(supplies.server.read.remote(job.folder)).items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    sent = stamps(copy)

    def send() -> None:
        now = stamps(copy)
        changed = read_files(copy, [name for name in now if now[name] != sent.get(name)])
        if changed or now.keys() != sent.keys():
            ray.get(supplies.server.write.remote(job.folder, changed, list(now)))
            sent.clear()
            sent.update(now)

    try:
        try:
            yield replace(job, folder=copy), send
        finally:
            send()
    finally:
        scratch.close()


def file_names(folder: Path) -> list[str]:
    """The files of a folder, except hidden ones, which are locks and partly written files."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in inside if not any(part.startswith(".") for part in path.parts))


def read_files(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The contents of the files that still exist: a logger's own process may have removed some."""
    contents = {}
    for name in names:
        with suppress(FileNotFoundError):
            contents[name] = (folder / name).read_bytes()
    return contents


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Modification time and size of every file."""
    times = {}
    for name in file_names(folder):
        with suppress(FileNotFoundError):
            stat = (folder / name).stat()
            times[name] = (stat.st_mtime_ns, stat.st_size)
    return times
