"""Small runs for the tests of rounds: what is asked, how it is run, stopped and read."""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

from fedbench import methods
from fedbench.config import Config
from fedbench.data.partitions import partition
from fedbench.jobs.description import describe_run
from fedbench.jobs.resolve import resolve
from fedbench.runtime.drive import drive
from fedbench.runtime.driver import Driver
from fedbench.runtime.exchange import Order, Relocation, Reply
from fedbench.runtime.hosts import Hosts, InProcess
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.resolved import ResolvedRun

RECORDS = ("metrics.jsonl", "clients.parquet", "traces.parquet")
SMALL = {
    "data": "digits",
    "partition": {"name": "dirichlet", "clients": 10},
    "model": {"name": "mlp", "hidden": 16},
    "train": {"epochs": 1, "lr": 0.1},
    "rounds": 4,
    "checkpoint": {"every": 0},
    "resources": {"hosts": 0},
}
MORE: dict[str, dict[str, Any]] = {
    "fedcac": {"beta": 3},
    "fedavg-ft": {"ft_epochs": 1},
    "fedobp": {"quantile": 0.9, "score": "gradient", "score_ema": 0.5},
    "floco": {"endpoints": 3, "tau": 2, "personal_epochs": 1},
    "fedmosaic": {"first_vote": 1},
    "fedct": {"first_vote": 1},
    "perfed-ckt": {"first_vote": 1},
}
"""Options without which a method would rest for most of so few rounds."""


def small(method: str = "fedavg", **pairs: Any) -> Config:
    """A run of a second. Keys with a dot are given as `train__lr=1`."""
    public = {"public": {"size": 40}} if "public" in methods.load(method).needs else {}
    asked = SMALL | public | {"method": {"name": method, **MORE.get(method, {})}}
    for key, value in pairs.items():
        section, _, name = key.partition("__")
        if name:
            kept = asked.get(section, {})
            asked[section] = {**({"name": kept} if isinstance(kept, str) else kept), name: value}
        else:
            asked[section] = value
    return Config(**asked)


def driver(resolved: ResolvedRun, folder: Path = Path()) -> Driver:
    """The driver of a resolved run that has not begun."""
    return Driver.of(resolved, InProcess(), Recorder(folder, resolved.task))


def play(config: Config, folder: Path, hosts: Hosts | None = None, resume: bool = False) -> dict[str, bytes]:
    """Run into a folder and read what was recorded."""
    resolved = resolve(config)
    config = resolved.config
    folder.mkdir(parents=True, exist_ok=True)
    drive(resolved, folder, hosts or InProcess(), resume=resume)
    return read(folder)


def read(folder: Path) -> dict[str, bytes]:
    """The bytes of everything whose numbers a run promises."""
    return {name: (folder / name).read_bytes() for name in RECORDS}


class Stopped(Exception):
    """The run was ended on purpose."""


class Stopping:
    """Hosts that end the run when they are given the orders in which a round is trained."""

    def __init__(self, hosts: Hosts, round: int) -> None:
        self._hosts, self._round = hosts, round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosts, name)

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        if orders[0].number + 1 == self._round and not orders[0].extra:
            raise Stopped
        return self._hosts.exchange(orders, moves)


def stop(config: Config, folder: Path, round: int, hosts: Hosts | None = None, resume: bool = False) -> None:
    """Run until a round is under way, then drop everything but the folder."""
    resolved = resolve(config)
    config = resolved.config
    folder.mkdir(parents=True, exist_ok=True)
    try:
        drive(resolved, folder, Stopping(hosts or InProcess(), round), resume=resume)  # type: ignore[arg-type]
    except Stopped:
        return
    raise AssertionError(f"round {round} never came")


@cache
def odd_images(train: bool = True) -> TensorDataset:
    """Six classes of uneven size: two training images, just more than one batch, some."""
    sizes = (2, 10, 11, 20, 20, 20) if train else (3,) * 6
    labels = torch.tensor([label for label, size in enumerate(sizes) for _ in range(size)])
    stream = torch.Generator().manual_seed(int(train))
    images = torch.rand(len(labels), 1, 8, 8, generator=stream) * 0.5 + labels[:, None, None, None] / 12
    return TensorDataset(images, labels)


class Scenes(Dataset):
    """Three classes of images, photographs and sketches by turns."""

    domains = ("photo", "sketch/ink")

    def __init__(self, train: bool = True) -> None:
        stream = torch.Generator().manual_seed(int(train))
        self.labels = torch.arange(120 if train else 48) % 3
        self.images = (
            torch.rand(len(self.labels), 1, 8, 8, generator=stream) * 0.5 + self.labels[:, None, None, None] / 6
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        return self.images[index], int(self.labels[index]), index // 3 % 2


SCENES: dict[str, Any] = {
    "data": {"name": "tests.runtime.rounds:Scenes"},
    "partition": {"name": "shards", "clients": 4, "deal": "random"},
}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: what a full disk does to large files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def described(config: Config, folder: Path) -> None:
    """Leave the folder of a run that was ended before its first round."""
    resolved = resolve(config)
    config, dataset = resolved.config, resolved.dataset
    folder.mkdir()
    describe_run(folder, resolved, {0: partition(dataset, config, 0)})
