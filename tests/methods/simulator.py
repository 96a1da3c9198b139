"""Rounds of a method on hand-made clients, by the real driver; and the tiny data and modules that this needs."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn

from fedbench import methods
from fedbench.aggregation.rules.mean import Mean
from fedbench.config import Config
from fedbench.data.partitions import Clients, Partition
from fedbench.engine.learner import Learner
from fedbench.methods.base import ModelFacts
from fedbench.methods.client import Client
from fedbench.methods.messages import Message, Upload
from fedbench.methods.server import Context
from fedbench.module import seeds
from fedbench.module.weights import Weights
from fedbench.runtime.build import RunParts, features_of
from fedbench.runtime.driver import Driver
from fedbench.runtime.exchange import ClientTask, Joining, Order, Relocation, Reply, Report, Setup
from fedbench.runtime.host import Host
from fedbench.runtime.hosts import torch_threads
from fedbench.runtime.observers.observers import Observers
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.observers.upload_traces import UploadTraces
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.server.placement import Home
from fedbench.runtime.states.store import MemoryStore
from fedbench.tasks import mean_of


@dataclass
class Data:
    """Images and labels of a client, gathered by index."""

    x: Tensor
    labels: Tensor
    key: tuple = (0, 0, 0)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], self.labels[index]

    def part(self, places: Tensor) -> "Data":
        return Data(self.x[places], self.labels[places], self.key)


class Mlp(LightningModule):
    """Six inputs, four classes; with BatchNorm and Dropout if asked. Every instance starts the same."""

    def __init__(self, norm: bool = False, classes: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        middle = [nn.BatchNorm1d(5)] if norm else []
        middle += [nn.Dropout(dropout)] if dropout else []
        self.body = nn.Sequential(nn.Linear(6, 5), *middle, nn.ReLU())
        self.head = nn.Linear(5, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self(x), y)


class Quadratic(LightningModule):
    """Loss (sum of a (w - b)^2) / 2, averaged over the samples; b is a sample's x, a its curvature."""

    def __init__(self, start=(0.0,), curvature=(1.0,)) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start))
        self.curvature = torch.tensor(curvature)

    def training_step(self, batch):
        x, _ = batch
        return (self.curvature.to(x) * (self.w - x) ** 2).sum(1).mean() / 2


class Product(LightningModule):
    """y = head * body * x at x = 1 with loss (y - 2)^2 / 2, from head = body = 1."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.body.weight)
        nn.init.ones_(self.head.weight)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch):
        x, _ = batch
        return (self(x) - 2).square().mean() / 2


def blobs(sizes, seed=0, classes=4, dtype=torch.float32, shift=0) -> list[Data]:
    """Clients with noisy points around one centre per class; `shift` permutes the labels of all of them."""
    stream = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 6, generator=torch.Generator().manual_seed(99)) * 1.5
    found = []
    for size in sizes:
        labels = torch.randint(classes, (size,), generator=stream)
        x = centres[labels] + torch.randn(size, 6, generator=stream)
        found.append(Data(x.to(dtype), (labels + shift) % classes))
    return found


def targets(*values, repeat=None) -> list[Data]:
    """For Quadratic: one client per value, whose samples all have that target."""
    repeat = repeat or [1] * len(values)
    rows = [torch.tensor([v if isinstance(v, tuple) else (v,)] * r) for v, r in zip(values, repeat, strict=True)]
    return [Data(x, torch.zeros(len(x), dtype=torch.int64)) for x in rows]


@dataclass
class Round:
    """What happened in a round, by client."""

    after_fit: dict[int, Any] = field(default_factory=dict)
    after_agg: dict[int, Any] = field(default_factory=dict)
    uploads: dict[int, Upload] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    traces: dict[tuple[int, str], float] = field(default_factory=dict)


class HandMadeData:
    """Hand-made clients as a host's data; without validation images and tests."""

    def __init__(self, clients: list[Data], public: Data | None) -> None:
        self.clients, self._public = clients, public

    def split(self, numbers: Sequence[int], part: str, key: tuple) -> Data:
        chosen = [self.clients[number] for number in numbers] if part == "train" else []
        empty = self.clients[0]
        x = torch.cat([d.x for d in chosen]) if chosen else empty.x[:0]
        labels = torch.cat([d.labels for d in chosen]) if chosen else empty.labels[:0]
        return Data(x, labels, key)

    def public(self, key: tuple) -> Data | None:
        return self._public and Data(self._public.x, torch.zeros_like(self._public.labels), key)


class RecordingHost(Host):
    """The real host, which notes the models that it is to evaluate."""

    seen: Round

    def _score(self, task: ClientTask, client: Client, point: str, model: Any, report: Report) -> None:
        if point in ("after_fit", "new_clients"):
            self.seen.after_fit[client.id] = model


class LocalHosts:
    """As the driver's hosts: one host in this process, and what goes there and back."""

    count, device = 1, "cpu"

    def __init__(self, host: RecordingHost) -> None:
        self.host, self.remarks = host, list[str]()

    def exchange(self, orders: Sequence[Order], moves: Sequence[Relocation] = ()) -> list[Reply]:
        (order,) = orders
        shown = dict(idle_model=False, after_agg=False, global_model=False, after_fit=True)
        tasks = [replace(task, **shown) for task in order.tasks if task.train or order.extra]
        reply = self.host.work(replace(order, tasks=tasks))
        failures = {report.client: report.failure for report in reply.reports if report.failure}
        assert not failures, failures
        seen = self.host.seen
        for report in reply.reports:
            if report.upload is not None:
                seen.uploads[report.client], seen.up[report.client] = report.upload, report.upload.nbytes
                report.upload = copy.copy(report.upload)  # the server may write to what it received
                report.upload.tensors = {name: tensor.clone() for name, tensor in report.upload.tensors.items()}
        if not order.extra:
            seen.steps |= {report.client: report.steps for report in reply.reports}
            seen.down |= {task.client: task.message.nbytes for task in tasks}
        return [reply]


class Simulation(Driver):
    """Rounds of one method on hand-made clients, by the real driver and a host in this process.

    draw: the participants of a round, by default everyone. Options of the method are keyword arguments. log: what
    happened, round by round; states: what clients keep.
    """

    def __init__(
        self,
        method,
        clients,
        *,
        module=None,
        train=None,
        rounds=10,
        public=None,
        draw=None,
        seed=0,
        aggregator=None,
        classes=4,
        **options,
    ):
        kind = methods.load(method) if isinstance(method, str) else method
        defaults = {"lr": 0.1, "batch_size": 8, "epochs": 2, **kind.train_defaults}
        config = Config(train={**defaults, **(train or {})}, rounds=rounds, data={"val": 0}, checkpoint={"every": 0})
        self.train, self.draw = config.train, draw or (lambda t: range(len(clients)))
        chosen = kind.Options(**options)
        built = module or Mlp()
        another = lambda name: copy.deepcopy(plain)  # noqa: E731
        facts = lambda m, layout: ModelFacts(seed, classes, features_of(m, layout), another)  # noqa: E731
        plain = copy.deepcopy(built)
        adapt = lambda m, layout: kind.adapt_model(m, layout, chosen, facts(m, layout))  # noqa: E731
        optimizer = "sgd" if self.train.optimizer == "auto" else self.train.optimizer
        self.learner = Learner(built, self.train, optimizer=optimizer, adapt=adapt)
        cast = lambda d: Data(d.x.to(self.learner.dtype), d.labels)  # noqa: E731
        self.data, self.public = [cast(d) for d in clients], public and cast(public)
        context = Context(
            layout=self.learner.layout,
            train=self.train,
            seed=seed,
            planned_rounds=rounds,
            classes=classes,
            sizes=tuple(len(d) for d in self.data),
            public=len(public) if public else 0,
            **({"method": method} if isinstance(method, str) else {}),
            participants_per_round=len(list(self.draw(1))),
            aggregator=aggregator or Mean(),
            draw_model=lambda seed: self.learner.redraw(self.learner.initial(), "", seed),
            sample_shape=tuple(self.data[0].x.shape[1:]) if self.data else (),
        )
        run = ResolvedRun(config, None, kind, chosen, context.aggregator, self.learner.task)  # type: ignore[arg-type]
        parts = RunParts(run, 0, self.learner, context, kind(chosen, context), "mlp")
        self.host = RecordingHost(parts, HandMadeData(self.data, self.public), MemoryStore())
        setup, recorder = Setup(config, 0, Partition(Clients.of([]))), Recorder(Path("/nowhere"), self.learner.task)
        super().__init__(parts, setup, LocalHosts(self.host), recorder, lambda event: None, [])
        self.observers = Observers([UploadTraces()])
        self.calendar.participants = lambda round: sorted(self.draw(round))  # type: ignore[method-assign]
        self.log: list[Round] = []
        self.host.seen = Round()
        self._extra_pass(0)

    @property
    def states(self) -> dict[int, Any]:
        """By client, as a copy."""
        kept = {client: self.host.store.load(client, home.kept) for client, home in sorted(self.homes.of.items())}
        return {client: self.method.State(**state) for client, state in kept.items()}

    def keep(self, client: int, **state: Any) -> None:
        """Let a client hold this private state, as if it had trained."""
        round = max(1, self.record.number)
        nbytes = self.host.store.save(client, round, vars(self.method.State(**state)))
        self.homes.of[client] = Home(0, round, nbytes)

    def client(self, number: int, round: int) -> Client:
        """A client as it stands with its message after a round."""
        return self.host.client(ClientTask(number, self.message(number), self.homes.round_saved(number)), round)

    def message(self, number: int) -> Message:
        """What a client is sent now, as for the round after this one."""
        server = copy.copy(self.server)
        server.round = self.record.number + 1
        return self.method.send(server, number)

    def personal(self, number: int) -> Any:
        """The predictor of after_agg, now."""
        with torch_threads(1), seeds.preserved_streams():
            client = self.client(number, self.record.number)
            found = self.method.personal(client, self.method.receive(client), "after_agg")
        return copy.deepcopy(found) if isinstance(found, Weights) else found  # the server may write over what it sent

    def joined(self, data: Data, epochs: int) -> Any:
        """The model of a newcomer with this data after so many local epochs, as if the last round was the last."""
        number, server = self.context.clients, copy.copy(self.server)
        server.round, self.host.seen = self.record.number + 1, Round()
        self.host.data.clients = [*self.data, Data(data.x.to(self.learner.dtype), data.labels)]
        task = ClientTask(number, self.method.welcome(server, number), joining=Joining(epochs))
        with torch_threads(1):
            (report,) = self.host.work(Order(self.record.number, [task])).reports
        assert report.failure is None, report.failure
        return self.host.seen.after_fit[number]

    def round(self, evaluate: bool = True) -> Round:
        """The next round, and what the models after it are. Raises ValueError where that was the last one."""
        if self.record.number >= self.config.rounds:
            raise ValueError(
                f"the simulation has {self.config.rounds} rounds: Simulation(..., rounds=...) makes it longer"
            )
        self.seen = self.host.seen = Round()
        with torch_threads(1):
            self.exchange(self.record.number)
        self.seen.traces = dict(self.record.traces)
        if evaluate:
            self.seen.after_agg = {i: self.personal(i) for i in range(self.context.clients)}
        self.log.append(self.seen)
        return self.seen

    def run(self, rounds: int, evaluate: bool = True) -> "Simulation":  # type: ignore[override]
        for _ in range(rounds):
            self.round(evaluate)
        return self

    def _due(self, round: int) -> bool:
        """Traces are those of a round that is evaluated."""
        return True


def equal(a: Weights, b: Weights) -> bool:
    """Bit for bit, buffers and counters too."""
    return all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("params", "buffers", "counters"))


def assert_same(a: Simulation, b: Simulation, points=("after_fit", "after_agg")) -> None:
    """Both simulations gave the same bits in all rounds, at these points."""
    assert len(a.log) == len(b.log) > 0
    for t, (one, other) in enumerate(zip(a.log, b.log, strict=True), 1):
        for point in points:
            left, right = getattr(one, point), getattr(other, point)
            assert left.keys() == right.keys()
            for client in left:
                assert equal(left[client], right[client]), f"round {t}, {point}, client {client}"


def assert_near(a: Simulation, b: Simulation, points=("after_fit", "after_agg"), tolerance=1e-12) -> None:
    """Both simulations gave the same numbers in all rounds, at these points, but for rounding."""
    assert len(a.log) == len(b.log) > 0
    for t, (one, other) in enumerate(zip(a.log, b.log, strict=True), 1):
        for point in points:
            left, right = getattr(one, point), getattr(other, point)
            assert left.keys() == right.keys()
            for client in left:
                for part in ("params", "buffers"):
                    apart = getattr(left[client], part) - getattr(right[client], part)
                    distance = float(apart.abs().max()) if len(apart) else 0.0
                    assert distance <= tolerance, f"round {t}, {point}, client {client}: {distance}"


def close(vector, values, digits=6) -> bool:
    """Equal to the printed digits."""
    vector = torch.as_tensor(vector, dtype=torch.float64).flatten()
    return torch.allclose(
        vector, torch.as_tensor(values, dtype=torch.float64).flatten(), rtol=0, atol=0.51 * 10**-digits
    )


def accuracy_of(learner: Learner, predictor: Any, data: Data) -> float:
    return mean_of(learner.evaluate(predictor, data), "accuracy")
