"""A host: one learner and the clients that it works for, in a Ray actor or in the calling process."""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedbench.data.dataset import Dataset
from fedbench.errors import ConfigError
from fedbench.learner import seeds
from fedbench.learner.learner import Ledger
from fedbench.learner.weights import Weights
from fedbench.methods.base import POOL, Client, Message, Method, Upload
from fedbench.runtime.build import build_learner, make_context, make_method
from fedbench.runtime.client_data import ClientData
from fedbench.runtime.exchange import Order, Reply, Report, Scores, Setup, Task
from fedbench.runtime.store import State, open_store


class Host:
    """Works through orders, client by client, on one learner. ship: told of every fit as soon as it is done."""

    def __init__(
        self, setup: Setup, dataset: Dataset | None = None, ship: Callable[[Report], None] = lambda report: None
    ) -> None:
        self.config, self.seed, self.partition = setup.config, setup.seed, setup.partition
        self.device = torch.device(setup.device)
        dataset = dataset or Dataset.load(setup.config.data)
        self.learner = build_learner(setup.config, dataset, setup.seed, setup.device)
        self.data = ClientData(setup.config, dataset, setup.partition, self.device, self.learner.dtype)
        self.context = make_context(setup.config, dataset, setup.partition, setup.seed, self.learner)
        self.method = make_method(setup.config, self.context)
        self.initial = self.learner.initial()
        self.store = open_store(setup.states)
        self._ship = ship

    # -- clients ------------------------------------------------------------------------------------------------------

    def client(self, number: int, round: int, state: State) -> Client:
        """The client as it stands in a round."""
        key = self._key(number, round)
        train, val, test = (self._split(number, part, key) for part in ("train", "val", "test"))
        return Client(
            id=number,
            samples=len(train),
            train=train,
            val=val,
            test=test,
            public=self.data.public(key),
            learner=self.learner,
            initial=self.initial,
            seed=self.seed,
            round=round,
            state=state,
        )

    def _split(self, number: int, part: str, key: tuple[int | str, ...]) -> Any:
        if number != POOL:
            return self.data.split([number], part, key)
        return self.data.split(range(len(self.partition.clients)) if part == "train" else [], part, key)

    def _key(self, number: int, round: int) -> tuple[int | str, ...]:
        return (self.seed, number, round) if number != POOL else (self.seed, round, "pool")

    def _in_round(self, client: Client, round: int) -> Client:
        client.round = round
        for split in (client.train, client.val, client.test, client.public):
            if split is not None:
                split.key = self._key(client.id, round)
        return client

    # -- work ---------------------------------------------------------------------------------------------------------

    def work(self, order: Order) -> Reply:
        """Every task of an order, in its order. A client that fails is reported and leaves no trace."""
        begun = time.perf_counter()
        for client in order.gone:
            self.store.drop(client)
        with seeds.preserved_streams():
            reports = [self._guarded(task, order) for task in order.tasks]
        busy = time.perf_counter() - begun
        train, evaluate = (sum(getattr(r, f"{part}_seconds") for r in reports) for part in ("fit", "eval"))
        return Reply(reports, train, evaluate, busy, os.getpid(), resident_mb())

    def _guarded(self, task: Task, order: Order) -> Report:
        report = Report(task.client)
        state = self.store.load(task.client, task.kept)
        client = self.client(task.client, order.number, state)
        try:
            if order.question:
                self._answer(client, order.question, report)
            else:
                self._task(client, task, order, report)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # a model that calls sys.exit must not end the run
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines()
            report.failure = (
                f"{type(error).__name__}: {text[0] if text else ''} ({Path(where.filename).name}:{where.lineno})"
            )
            report.upload = report.kept = None
        return report

    def _answer(self, client: Client, question: Message, report: Report) -> None:
        self._set_rate(client.round + 1)  # whoever trains for an answer does so at the start of the round to come
        report.answer = on_cpu(self.method.answer(client, on_device(question, self.device)))

    def _task(self, client: Client, task: Task, order: Order, report: Report) -> None:
        if not client.state:
            self.method.start(client)
        download = on_device(task.download, self.device)
        received = self._evaluate_received(task, order, client, download, report)
        if task.fit:
            self._fit(task, client, download, received, report)

    def _evaluate_received(
        self, task: Task, order: Order, client: Client, download: Message, report: Report
    ) -> Weights | None:
        """The received model, where it is what was evaluated: some methods compute for long to receive."""
        received, delivered = None, client.round
        with measured(report, "eval_seconds"):
            self._set_rate(max(1, delivered))
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
                self._in_round(client, delivered)
        return received

    def _fit(self, task: Task, client: Client, download: Message, received: Weights | None, report: Report) -> None:
        with measured(report, "fit_seconds"):
            if received is None:
                self._set_rate(max(1, client.round))
                received = self.method.receive(client, download)
            client = self._in_round(client, client.round + 1)
            self._set_rate(client.round)
            self.learner.ledger = ledger = Ledger()
            upload = self.method.fit(client, received, download)
        report.failure = self._not_finite(client, upload)
        if report.failure:
            return
        report.loss, report.steps, report.logged = ledger.loss, ledger.steps, dict(ledger.logged)
        if task.evaluate_fit:
            with measured(report, "eval_seconds"):
                assert client.fitted is not None
                report.scores["after_fit"] = self._scores(client.fitted, client)
        with measured(report, "fit_seconds"):
            # Last, so that whatever fails before leaves no trace.
            if client.state:
                report.kept = self.store.save(client.id, client.round, client.state)
            report.upload = on_cpu(upload)
            self._ship(report)

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


@contextmanager
def measured(report: Report, name: str) -> Iterator[None]:
    """Adds the seconds of a block that ends well to a report."""
    begun = time.perf_counter()
    yield
    setattr(report, name, getattr(report, name) + time.perf_counter() - begun)


def resident_mb() -> float:
    """Megabytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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
