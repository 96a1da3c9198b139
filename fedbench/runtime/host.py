"""A host: one learner and the clients that it works for, in a Ray actor or in the calling process."""

import os
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench import methods, models
from fedbench.config import Config
from fedbench.data.augmentation import Augmentation
from fedbench.data.dataset import Dataset, Split
from fedbench.data.noise import client_labels
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.learner import seeds
from fedbench.learner.learner import Learner, Score
from fedbench.learner.weights import Weights
from fedbench.methods.base import POOL, Client, Context, Message, Method, Upload
from fedbench.runtime.allocator import keep_freed_memory
from fedbench.runtime.sampling import count_of
from fedbench.runtime.states import MemoryStates, SharedStates, State, States, states_folder


@dataclass(frozen=True)
class Task:
    """What a host does for one client in a round: personal model first, then the fit."""

    client: int
    download: Message
    evaluate_agg: bool = False
    evaluate_global: bool = False
    evaluate_initial: bool = False
    fit: bool = False
    evaluate_fit: bool = False


@dataclass
class Order:
    """The message to a host. round: of the fits, from 1; the personal models are those after round - 1.

    global_model: to be evaluated on every client with evaluate_global.
    question: a survey to answer for the tasks' clients instead of working.
    """

    round: int
    tasks: list[Task]
    global_model: Message | None = None
    question: Message | None = None


Scores = dict[str, Score]
"""By split: val (where there is one) and test."""


@dataclass
class Report:
    """What became of one task."""

    client: int
    fit_seconds: float = 0.0
    eval_seconds: float = 0.0
    upload: Upload | None = None
    answer: Message | None = None
    scores: dict[str, Scores] = field(default_factory=dict)
    loss: float | None = None
    steps: int = 0
    logged: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass
class Reply:
    """The message from a host."""

    reports: list[Report]
    train_seconds: float
    eval_seconds: float
    busy_seconds: float
    process: int
    rss_mb: float


@dataclass(frozen=True)
class Setup:
    """All that a host needs for one seed. shared: the run's folder in shared memory, or None for this process's."""

    config: Config
    seed: int
    partition: Partition
    shared: Path | None = None
    device: str = "cpu"


def build_learner(config: Config, dataset: Dataset, seed: int, device: str = "cpu") -> Learner:
    """The learner of a resolved configuration; every host builds the same start model from the seed."""
    with seeds.preserved_streams():
        seeds.seed_everything(seed, "model")
        module = models.build(
            config.model.name, input_shape=dataset.shape, classes=dataset.num_classes, **config.model.options
        )
    kind = methods.load(config.method.name)
    options = kind.Options(**config.method.options)
    return Learner(
        module,
        config.train,
        optimizer=config.train.optimizer,
        head=config.model.head,
        adapt=partial(kind.adapt_model, options=options, seed=seed),
        device=device,
        evaluate_batch=config.evaluate.batch_size,
        by_batches=config.evaluate.accuracy == "batches",
    )


def make_context(config: Config, dataset: Dataset, partition: Partition, seed: int, learner: Learner) -> Context:
    return Context(
        layout=learner.layout,
        train=config.train,
        seed=seed,
        rounds=config.rounds,
        classes=dataset.num_classes,
        sizes=tuple(len(rows.train) for rows in partition.clients),
        public=0 if partition.public is None else len(partition.public),
        drawn=count_of(len(partition.clients), config.participation),
    )


def make_method(config: Config, context: Context) -> Method:
    kind = methods.load(config.method.name)
    return kind(kind.Options(**config.method.options), context)


class Host:
    """Works through orders, client by client, on one learner. ship: told of every fit as soon as it is done."""

    def __init__(
        self, setup: Setup, dataset: Dataset | None = None, ship: Callable[[Report], None] = lambda report: None
    ) -> None:
        self.config, self.seed, self.partition = setup.config, setup.seed, setup.partition
        torch.set_num_threads(setup.config.train.threads)
        self.device = torch.device(setup.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        self.dataset = dataset or Dataset.load(setup.config.data)
        self.learner = build_learner(setup.config, self.dataset, setup.seed, setup.device)
        self.context = make_context(setup.config, self.dataset, setup.partition, setup.seed, self.learner)
        self.method = make_method(setup.config, self.context)
        self.initial = self.learner.initial()
        self.states: States = SharedStates(states_folder(setup.shared)) if setup.shared else MemoryStates()
        self._ship = ship
        self._images = resident(as_tensor(self.dataset.images), self.device)
        data = setup.config.data
        augmentation = Augmentation(data.augment, data.crop_padding, data.rotate_degrees)
        self._augmentation = augmentation if data.augment else None
        self._scale, self._shift = self.dataset.scale_and_shift(self.device, self.learner.dtype)

    # -- clients ------------------------------------------------------------------------------------------------------

    def client(self, number: int, round: int, state: State) -> Client:
        """The client as it stands in a round."""
        key = (self.seed, number, round) if number != POOL else (self.seed, round, "pool")
        splits = {part: self._split(number, part, key) for part in ("train", "val", "test")}
        return Client(
            id=number,
            samples=len(splits["train"]),
            train=splits["train"],
            val=splits["val"],
            test=splits["test"],
            public=self._public(key),
            learner=self.learner,
            initial=self.initial,
            seed=self.seed,
            round=round,
            state=state,
        )

    def _split(self, number: int, part: str, key: tuple[int | str, ...]) -> Split:
        numbers = range(len(self.partition.clients)) if number == POOL else [number]
        if number == POOL and part != "train":
            numbers = []
        rows = [torch.as_tensor(getattr(self.partition.clients[n], part)) for n in numbers]
        labels = [client_labels(self.dataset, self.partition, self.config, n, part) for n in numbers]
        empty = [torch.zeros(0, dtype=torch.int64)]
        return self._gatherer(torch.cat(rows or empty), torch.cat(labels or empty), key)

    def _public(self, key: tuple[int | str, ...]) -> Split | None:
        if self.partition.public is None:
            return None
        rows = torch.as_tensor(self.partition.public)
        return self._gatherer(rows, torch.zeros(len(rows), dtype=torch.int64), key)

    def _gatherer(self, rows: Tensor, labels: Tensor, key: tuple[int | str, ...]) -> Split:
        channels_last = self.config.train.memory_format == "channels_last"
        return Split(
            self._images,
            rows.to(self.device),
            labels.to(self.device),
            self._scale,
            self._shift,
            key,
            memory_format=torch.channels_last if channels_last else torch.contiguous_format,
            dtype=self.learner.dtype,
            augmentation=self._augmentation,
        )

    # -- work ---------------------------------------------------------------------------------------------------------

    def work(self, order: Order) -> Reply:
        """Every task of an order, in its order. A client that fails is reported and leaves no trace."""
        begun = time.perf_counter()
        with seeds.preserved_streams():
            reports = [self._guarded(task, order) for task in order.tasks]
        busy = time.perf_counter() - begun
        train, evaluate = (sum(getattr(r, f"{part}_seconds") for r in reports) for part in ("fit", "eval"))
        return Reply(reports, train, evaluate, busy, os.getpid(), resident_mb())

    def _guarded(self, task: Task, order: Order) -> Report:
        report = Report(task.client)
        try:
            self._answer(task, order, report) if order.question else self._task(task, order, report)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # a model that calls sys.exit must not end the run
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines()
            report.failure = (
                f"{type(error).__name__}: {text[0] if text else ''} ({Path(where.filename).name}:{where.lineno})"
            )
            report.upload = None
        return report

    def _answer(self, task: Task, order: Order, report: Report) -> None:
        client = self.client(task.client, order.round, self.states.load(task.client, order.round))
        assert order.question is not None
        self._set_rate(order.round + 1)  # whoever trains for an answer does so at the start of the round to come
        report.answer = on_cpu(self.method.answer(client, on_device(order.question, self.device)))

    def _task(self, task: Task, order: Order, report: Report) -> None:
        committed = order.round - 1
        client = self.client(task.client, committed, self.states.load(task.client, committed))
        if not client.state:
            self.method.start(client)
        download = on_device(task.download, self.device)
        received = self._evaluate_received(task, order, client, download, report)
        if task.fit:
            self._fit(task, order, client, download, received, report)

    def _evaluate_received(
        self, task: Task, order: Order, client: Client, download: Message, report: Report
    ) -> Weights | None:
        """The received model, where it is what was evaluated: some methods compute for long to receive."""
        begun, received = time.perf_counter(), None
        self._set_rate(max(1, order.round - 1))
        if task.evaluate_agg:
            predictor = self.method.personal(client, download)
            report.scores["after_agg"] = self._scores(predictor, client)
            if type(self.method).personal is Method.personal and isinstance(predictor, Weights):
                received = predictor
        if task.evaluate_global and order.global_model is not None:
            report.scores["global"] = self._scores(as_weights(on_device(order.global_model, self.device)), client)
        if task.evaluate_initial:  # as of round 0, whenever it is asked for
            self._set_rate(1)
            self._in_round(client, 0)
            report.scores["initial"] = self._scores(self.method.untrained(client), client)
            self._in_round(client, order.round - 1)
        report.eval_seconds += time.perf_counter() - begun
        return received

    def _fit(
        self,
        task: Task,
        order: Order,
        client: Client,
        download: Message,
        received: Weights | None,
        report: Report,
    ) -> None:
        begun = time.perf_counter()
        if received is None:
            self._set_rate(max(1, order.round - 1))
            received = self.method.receive(client, download)
        self._set_rate(order.round)
        client = self._in_round(client, order.round)
        self.learner.ledger = type(self.learner.ledger)()
        upload = self.method.fit(client, received, download)
        ledger = self.learner.ledger
        report.fit_seconds += time.perf_counter() - begun
        failure = self._not_finite(client, upload)
        if failure:
            report.failure = failure
            return
        report.loss, report.steps, report.logged = ledger.loss, ledger.steps, dict(ledger.logged)
        if task.evaluate_fit:
            begun = time.perf_counter()
            assert client.fitted is not None
            report.scores["after_fit"] = self._scores(client.fitted, client)
            report.eval_seconds += time.perf_counter() - begun
        begun = time.perf_counter()
        # Last, so that whatever fails before leaves no trace.
        self.states.save(client.id, order.round, client.state)
        report.upload = on_cpu(upload)
        self._ship(report)
        report.fit_seconds += time.perf_counter() - begun

    def _in_round(self, client: Client, round: int) -> Client:
        key = (self.seed, client.id, round) if client.id != POOL else (self.seed, round, "pool")
        client.round = round
        for split in (client.train, client.val, client.test, client.public):
            if split is not None:
                split.key = key
        return client

    def _not_finite(self, client: Client, upload: Upload) -> str | None:
        ledger = self.learner.ledger
        if ledger.loss is not None and not torch.isfinite(torch.tensor(ledger.loss)):
            return f"the training loss became {ledger.loss}: lower {self._rate_name()}"
        if isinstance(client.fitted, Weights) and not client.fitted.is_finite():
            return f"the trained model holds values that are not finite: lower {self._rate_name()}"
        known = client.fitted.params.data_ptr() if isinstance(client.fitted, Weights) else None
        for name, tensor in upload.tensors.items():
            if not tensor.is_floating_point() or not tensor.numel() or tensor.data_ptr() == known:
                continue
            # A constant buffer, such as a mask, may be infinite.
            if bool(tensor.isnan().any()) if name == "buffers" else not bool(torch.isfinite(tensor.sum())):
                return f"the upload's {name} holds values that are not finite"
        return None

    def _rate_name(self) -> str:
        """Where the user sets the learning rate of the steps."""
        if not self.learner.ledger.own_rate:
            return "train.lr"
        return f"the rate in {type(self.learner.module).__name__}.configure_optimizers"

    def _scores(self, predictor: Any, client: Client) -> Scores:
        splits = {"val": client.val, "test": client.test}
        return {name: self.learner.evaluate(predictor, split) for name, split in splits.items() if len(split)}

    def _set_rate(self, round: int) -> None:
        self.learner.lr_factor = self.config.train.lr_decay ** (round - 1)

    def put_states(self, states: dict[int, State], round: int) -> None:
        """Take over states of a checkpoint."""
        for client, state in states.items():
            self.states.save(client, round, state)

    def get_states(self, committed: int) -> dict[int, State]:
        """All states of this node, for a checkpoint."""
        return self.states.all(committed)


def resident_mb() -> float:
    """Megabytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def as_tensor(array: np.ndarray) -> Tensor:
    """A view of an array in shared or mapped memory, which nobody may write to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only, and so it shall be
        return torch.from_numpy(array)


def resident(images: Tensor, device: torch.device) -> Tensor:
    """The images on the device where they take at most a quarter of its free memory; else batches are sent there."""
    if device.type == "cuda" and images.nbytes > torch.cuda.mem_get_info(device)[0] // 4:
        return images
    return images.to(device)


def as_weights(message: Message) -> Weights:
    return Weights(message.params, message.buffers, message.counters)


def on_device(message: Message, device: torch.device) -> Message:
    """The message with its tensors on the device, without a copy where they are there."""
    if device.type == "cpu":
        return message
    message.tensors = {name: tensor.to(device) for name, tensor in message.tensors.items()}
    return message


def on_cpu(message: Any) -> Any:
    message.tensors = {name: tensor.cpu() for name, tensor in message.tensors.items()}
    return message
