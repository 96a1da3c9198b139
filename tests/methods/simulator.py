"""A simulator that drives the hooks of a method in one process, and the tiny data and modules that it needs."""

import copy
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn

from fedbench import methods
from fedbench.config import TrainConfig
from fedbench.learner.learner import Learner
from fedbench.learner.weights import Weights
from fedbench.methods.base import POOL, Client, Context, Server, Upload


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


class Mlp(LightningModule):
    """Six inputs, four classes; with BatchNorm if asked. Every instance starts the same."""

    def __init__(self, norm: bool = False, classes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(1)
        middle = [nn.BatchNorm1d(5)] if norm else []
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

    after_fit: dict[int, Weights] = field(default_factory=dict)
    after_agg: dict[int, object] = field(default_factory=dict)
    uploads: dict[int, Upload] = field(default_factory=dict)
    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    traces: dict = field(default_factory=dict)


class Simulation:
    """Rounds of one method on given clients, in the order of the harness.

    draw: the participants of a round, by default everyone. Options of the method are keyword arguments.
    """

    def __init__(
        self, method, clients, *, module=None, train=None, rounds=10, public=None, draw=None, seed=0, **options
    ):
        kind = methods.load(method) if isinstance(method, str) else method
        defaults = {"lr": 0.1, "batch_size": 8, "epochs": 2, **kind.train_defaults}
        self.train = TrainConfig(**{**defaults, **(train or {})})
        chosen = kind.Options(**options)
        adapt = partial(kind.adapt_model, options=chosen, seed=seed)
        self.learner = Learner(module or Mlp(), self.train, adapt=adapt)
        cast = lambda d: Data(d.x.to(self.learner.dtype), d.labels)  # noqa: E731
        self.data, self.public = [cast(d) for d in clients], public and cast(public)
        self.data.append(Data(torch.cat([d.x for d in self.data]), torch.cat([d.labels for d in self.data])))  # POOL
        self.draw = draw or (lambda t: range(len(clients)))
        self.context = Context(
            layout=self.learner.layout,
            train=self.train,
            seed=seed,
            rounds=rounds,
            classes=4,
            sizes=tuple(len(d) for d in self.data[:-1]),
            public=len(public) if public else 0,
            drawn=len(list(self.draw(1))),
        )
        self.method = kind(chosen, self.context)
        self.method.check()
        self.states: dict[int, dict] = {}
        self.log: list[Round] = []
        self.server = Server(self.context, self.learner.initial())
        self.method.open(self.server)
        self.ask()

    def client(self, number: int, round: int) -> Client:
        key = (0, round, "pool") if number == POOL else (0, number, round)
        train = Data(self.data[number].x, self.data[number].labels, key)
        public = self.public and Data(self.public.x, torch.zeros_like(self.public.labels), key)
        state = copy.deepcopy(self.states.get(number, {}))
        made = Client(number, len(train), train, None, None, public, self.learner, self.server.initial, 0, round, state)
        if not made.state:
            self.method.start(made)
        return made

    def personal(self, number: int):
        """The predictor of after_agg, now."""
        self._rate(max(1, self.server.round))
        self.server.round += 1
        download = self.method.download(self.server, number)
        self.server.round -= 1
        found = self.method.personal(self.client(number, self.server.round), download)
        return found.clone() if isinstance(found, Weights) else found  # the server may write over what it sent

    def fit(self, number: int, download, seen: Round) -> Upload:
        t, method = self.server.round, self.method
        client = self.client(number, t - 1)
        received = method.receive(client, download)
        self._rate(t)
        fresh = self.client(number, t)
        fresh.state = client.state
        upload = method.fit(fresh, received, download)
        self.states[number] = fresh.state
        seen.after_fit[number], seen.uploads[number] = fresh.fitted, upload
        seen.up[number], seen.down[number] = upload.wire_bytes(), download.wire_bytes()
        # The server may write to what it received.
        return replace(upload, tensors={name: tensor.clone() for name, tensor in upload.tensors.items()})

    def round(self, evaluate: bool = True) -> Round:
        server, method, seen = self.server, self.method, Round()
        server.round += 1
        server.participants = sorted(self.draw(server.round))
        method.prepare(server)
        trainers = method.trainers(server.participants)
        downloads = {i: method.download(server, i) for i in trainers}
        uploads = [self.fit(i, downloads[i], seen) for i in sorted(trainers)]
        method.aggregate(server, uploads)
        self.ask()
        seen.traces = {(u.client, name): v for u in uploads for name, v in u.traces.items()} | method.traces(server)
        if evaluate:
            seen.after_agg = {i: self.personal(i) for i in range(self.context.clients)}
        self.log.append(seen)
        return seen

    def ask(self) -> None:
        self._rate(self.server.round + 1)
        question = self.method.survey(self.server)
        if question is not None:
            clients = range(self.context.clients)
            self.method.conclude(
                self.server, {i: self.method.answer(self.client(i, self.server.round), question) for i in clients}
            )

    def run(self, rounds: int, evaluate: bool = True) -> "Simulation":
        for _ in range(rounds):
            self.round(evaluate)
        return self

    def _rate(self, round: int) -> None:
        self.learner.lr_factor = self.train.lr_decay ** (round - 1)


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


def close(vector, values, digits=6) -> bool:
    """Equal to the printed digits."""
    vector = torch.as_tensor(vector, dtype=torch.float64).flatten()
    return torch.allclose(vector, torch.tensor(values, dtype=torch.float64).flatten(), rtol=0, atol=0.51 * 10**-digits)
