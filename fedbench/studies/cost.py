"""Estimates the cost of runs: gradient steps, and hours from a step measured on this machine."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, prod

import numpy as np

from fedbench import methods
from fedbench.config import Config, DataConfig, PartitionConfig
from fedbench.config.counts import count_of
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import ClientRows, Clients, Partition
from fedbench.data.partitions.pool import MERGING, SamplePool
from fedbench.data.partitions.scheme import client_size, clients_by_data, ignored_keys, with_client_count
from fedbench.data.reading import published
from fedbench.data.reading.beside import NOTHING, Beside
from fedbench.data.reading.published import Extent
from fedbench.data.sources import published_of
from fedbench.data.split import Split
from fedbench.engine.fit import Amount, Fit
from fedbench.engine.learner import Learner
from fedbench.engine.probe import probe
from fedbench.errors import as_config_error
from fedbench.jobs.resolve import model_defaults, with_defaults
from fedbench.module import seeds
from fedbench.processor import cores
from fedbench.runtime.build import build_learner
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.hosts import torch_threads
from fedbench.runtime.resolved import ResolvedRun

TESTS = 1 / 5
"""Images of the test parts, as a share of those of the training parts."""
EVALUATED_MODELS = 2
"""Number of evaluated models per client."""
FORWARD_SHARE = 1 / 3
"""Work of a forward pass, as a share of that of a gradient step on the same image."""
VISIT, RUN = 0.001, 0.5
"""Measured seconds besides steps: of a client in a round or an evaluation, and of a run."""
MEASURED = 12
"""Maximum number of timed steps."""
MOST = 0.3
"""Maximum seconds for the timed steps, unless a single one takes longer."""
NUMBERS = 2**20
"""Maximum count of numbers in a timed batch; the time of a larger batch is in proportion."""
COMPILED_SHARE = 1 / 5
"""Time of a compiled step of tiny models, as a share of the loop's."""
PACE_KEYS = {"optimizer", "precision", "memory_format", "engine", "width"}
"""Keys of `train` that decide how long a step on a batch takes."""


@dataclass(frozen=True)
class Cost:
    """The cost of one seed of a run. config: with its defaults, and with its partition for the data."""

    config: Config
    dataset: Dataset

    @classmethod
    def of(cls, config: Config) -> "Cost":
        """Raises ConfigError."""
        config, dataset = with_defaults(config), dataset_of_run(config)
        return cls(config.model_copy(update={"partition": partition_on(dataset, config.partition)}), dataset)

    @cached_property
    def steps(self) -> int:
        """Gradient steps, each of one batch, as the method counts them."""
        config, clients = self.config, self.config.partition.trained_clients
        kind, options = methods.load(config.method.name), methods.checked_options(config.method)
        held = self.images * (1 - config.data.val) * (clients if kind.trainers(options) == "pooled" else 1)
        with as_config_error(f"{kind.__name__}.steps fails"):
            own = kind.steps(options, config.train, max(1, round(held)), config.public.size)
        return self.fits * own

    @property
    def fits(self) -> int:
        """Number of fits in all rounds."""
        config, clients = self.config, self.config.partition.trained_clients
        trainers = methods.load(config.method.name).trainers(methods.checked_options(config.method))
        return config.rounds * {"all": clients, "pooled": 1, "drawn": count_of(clients, config.participation)}[trainers]

    @property
    def joining_steps(self) -> int:
        """Gradient steps of newcomers, as an ordinary fit makes them."""
        evaluate, own, batch = self.config.evaluate, self.config.partition, self.batch
        whole = sum({*evaluate.new_clients_epochs}) * ceil(self.images * (1 - self.config.data.val) / batch)
        few = max(evaluate.new_clients_epochs) * sum(ceil(count / batch) for count in evaluate.new_clients_samples)
        return (own.clients - own.trained_clients) * (whole + few)

    @cached_property
    def images(self) -> float:
        """Training images of a client, including validation: the requested number, or an even share."""
        partition, merged = self.effective_partition, self.effective_partition.test in MERGING
        if (size := client_size(partition, "train")) is not None:
            return size
        there = len(self.dataset.targets) if merged else self.dataset.train_rows
        total = partition.total or there - self.config.public.size
        return total / partition.clients * (1 - partition.test_share if merged else 1)

    @cached_property
    def tests(self) -> float:
        """Test images of a client: the requested number, or its share of the test part."""
        partition = self.effective_partition
        if (size := client_size(partition, "test")) is not None:
            return size
        if partition.test in MERGING:
            return self.images * partition.test_share / (1 - partition.test_share)
        return self.images * self.dataset.test_rows / self.dataset.train_rows

    @cached_property
    def effective_partition(self) -> PartitionConfig:
        """The partition without the keys that its scheme does not read."""
        partition, defaults = self.config.partition, PartitionConfig()
        return partition.model_copy(update={key: getattr(defaults, key) for key in ignored_keys(partition)})

    @property
    def evaluated_images(self) -> float:
        """Number of images in all evaluations."""
        return self.evaluations * (self.tests + self.images * self.config.data.val) * EVALUATED_MODELS

    @property
    def evaluations(self) -> int:
        """Number of evaluated clients in all rounds."""
        config, clients, sample = self.config, self.config.partition.trained_clients, self.config.evaluate.clients
        seen = min(clients, sample if isinstance(sample, int) else clients)
        return ceil(config.rounds / config.evaluate.every) * seen

    @property
    def batch(self) -> int:
        """Images of a batch: at most those of a client, and at least two, which BatchNorm needs."""
        size, most = self.config.train.batch_size, ceil(self.images)
        return max(2, most if size == "full" else min(size, most))

    @property
    def models(self) -> list[Config]:
        """Data, training and each of the models."""
        pace = {**self.config.train.model_dump(mode="json", include=PACE_KEYS), "batch_size": self.batch}
        pace["engine"] = "loop" if pace["engine"] == "compiled" else pace["engine"]
        own = self.config.model
        return [Config(data=self.config.data, model=own.alone(name), train=pace) for name in own.names]

    @cached_property
    def seconds(self) -> float:
        """Seconds of training and evaluation on one core, from a step measured now. Raises ConfigError."""
        faster = COMPILED_SHARE if self.config.train.engine == "compiled" else 1
        each = [faster * step_seconds(one.model_dump_json(), self.dataset) for one in self.models]
        steps = self.steps + self.joining_steps + FORWARD_SHARE * self.evaluated_images / self.batch
        return sum(each) / len(each) * steps + VISIT * (self.fits + self.evaluations) + RUN


def steps_of(config: Config) -> int:
    """Gradient steps of one seed of a run, each of one batch. Raises ConfigError."""
    return Cost.of(config).steps


def total_cost(configs: Iterable[Config]) -> tuple[int, float]:
    """Gradient steps of runs of one seed each, and estimated hours with one run per core. Raises ConfigError.

    The cost of a run does not depend on its seed, so it is estimated once for all seeds of a point.
    """
    points: dict[str, list[Config]] = {}
    for config in configs:
        points.setdefault(config.model_dump_json(exclude={"seeds"}), []).append(config)
    costs = [(len(runs), Cost.of(runs[0])) for runs in points.values()]
    seconds = sum(count * cost.seconds for count, cost in costs)
    return sum(count * cost.steps for count, cost in costs), seconds / 3600 / cores()


def dataset_of_run(config: Config) -> Dataset:
    """The data set of a run on this machine, as `dataset_of`. Raises ConfigError."""
    return _dataset_of(config.data.model_dump_json(), clients_by_data(config.partition), Beside.of(config.partition))


def dataset_of(config: DataConfig, has_clients: bool = False) -> Dataset:
    """The data set on this machine; for a published one that is missing, one of its size. Raises ConfigError.

    has_clients: whether the clients are those of the data, which have to be here then.
    """
    return _dataset_of(config.model_dump_json(), has_clients, NOTHING)


def partition_on(dataset: Dataset, partition: PartitionConfig) -> PartitionConfig:
    """The keys of a partition with what the data decide, such as the number of clients. Raises ConfigError."""
    return with_client_count(partition, _pool_of(dataset))


@cache
def _pool_of(dataset: Dataset) -> SamplePool:
    """For all the runs on a data set: sorting its labels takes a third of the time of a cost."""
    return SamplePool.of(dataset)


def is_here(config: DataConfig) -> bool:
    """Whether a data set can be read without a download: a published one, or any other."""
    if config.root or published_of(config.name) is None:
        return True
    return published.is_complete(published.folder_in_cache(config.name))


def not_here(config: Config) -> str | None:
    """A line about published data that are not on this machine, so that a preview checks nothing about them."""
    if is_here(config.data):
        return None
    return f"data {config.data.name}: not here yet, so what depends on them is checked when the command is run"


@cache
def _dataset_of(written: str, has_clients: bool, beside: Beside) -> Dataset:
    config = DataConfig.model_validate_json(written)
    known = published_of(config.name)
    if known is None or has_clients or is_here(config):
        return Dataset.load(config, beside=beside)
    size, extent = int(config.options.get("size") or 0), known.extent
    return _blank(config.name, extent._replace(shape=(extent.shape[0], size, size)) if size else extent)


def _blank(name: str, extent: Extent) -> Dataset:
    """Samples of zeros and of one class, which take no memory."""
    rows, half = round(extent.train * (1 + TESTS)), (0.5,) * extent.shape[0] if extent.kind != "token" else ()
    types = {"image": np.uint8, "feature": np.float32, "token": np.int64}
    samples = np.broadcast_to(np.zeros((), types[extent.kind]), (rows, *extent.shape))
    targets = np.broadcast_to(np.int64(0), rows)
    parts = (extent.classes, (), (), extent.train, half, half)
    return Dataset(name, samples, targets, None, "classification", *parts, kind=extent.kind)


def learner_on(config: Config, dataset: Dataset, batch: int) -> tuple[Learner, Split]:
    """A learner, and a batch of the data as a client's. config: data, model and training. Raises ConfigError."""
    config.resources.gpus_per_host = 0
    model_defaults(config, dataset.shape)
    config.train.batch_size = batch
    learner = build_learner(ResolvedRun.of(config, dataset), seed=0)
    rows, nothing = np.arange(batch) % len(dataset.targets), np.zeros(0, np.int64)
    held = Partition(Clients.of([ClientRows(rows, nothing, nothing)]))
    return learner, ClientData(config, dataset, held, learner.device, learner.dtype).split([0], "train", ("cost",))


@cache
def step_seconds(written: str, dataset: Dataset) -> float:
    """Seconds of a plain gradient step on one core, from a part of the batch if it is large. Raises ConfigError.

    asked: data, model and training as a configuration in JSON.
    """
    config = Config.model_validate_json(written)
    batch = int(config.train.batch_size)
    timed = min(batch, max(2, NUMBERS // prod(dataset.shape)))
    learner, data = learner_on(config, dataset, timed)

    def seconds(steps: int) -> float:
        begun = time.process_time()  # of the processor, whatever else the machine does
        learner.fit(Fit(learner.initial(), data, amount=Amount(steps=steps)))
        return time.process_time() - begun

    with torch_threads(1), seeds.preserved_streams():
        probe(learner, data, dataset.outputs)  # reports failures, and is slow like every first step
        steps = max(1, min(MEASURED, int(MOST / seconds(1))))
        return seconds(steps) / steps * batch / timed
