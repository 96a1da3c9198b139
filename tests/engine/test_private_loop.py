"""Private steps: clipping by hand, noise, Poisson batches, and what is refused."""

import pytest
import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.engine import private_loop
from fedbench.engine.fit import Amount, Fit, Loss, Move, PairedBatches, Step
from fedbench.engine.learner import Learner
from fedbench.engine.private_loop import PrivateSteps
from fedbench.errors import ConfigError
from tests.engine.conftest import Blobs, ConvNet, Net

PLAIN = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "batch_size": "full", "epochs": 1}


class Squares(LightningModule):
    """The mean of (w x)^2 / 2: the gradient of a sample is (w x) x."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w

    def training_step(self, batch, batch_idx):
        loss = self(batch[0]).square().mean() / 2
        self.log("train_loss", loss)
        return loss


class Rows:
    """Given inputs, of which the targets say nothing."""

    key = (0, 1, 2)

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], torch.zeros(len(index), dtype=torch.int64)


def private(module, clip: float = 1.0, noise: float = 0.0, optimizer: str = "sgd", **train) -> Learner:
    steps = PrivateSteps(clip, noise, "fedtest")
    return Learner(module, TrainConfig(**(PLAIN | train)), optimizer=optimizer, private=steps)


def squares(start: Tensor, x: Tensor, step: Step | None = None, move: Move | None = None, **more) -> Tensor:
    learner = private(Squares(start), precision="64-true", **more)
    return learner.fit(Fit(learner.initial(), Rows(x), move=move, step=step or Step())).params


START = torch.tensor([1.0, 0.0], dtype=torch.float64)
X = torch.tensor([[3.0, 4.0], [0.5, 0.0]], dtype=torch.float64)
"""Gradients (9, 12) of norm 15, and (0.25, 0) of norm 0.25."""


@pytest.mark.parametrize(
    ("clip", "mean"),
    [
        (5.0, [3.25 / 2, 4.0 / 2]),  # (3, 4) and (0.25, 0)
        (100.0, [9.25 / 2, 12.0 / 2]),  # both as they are
        (0.125, [0.2 / 2, 0.1 / 2]),  # (0.075, 0.1) and (0.125, 0)
    ],
)
def test_every_gradient_is_shortened_by_itself(clip, mean):
    found = squares(START, X, clip=clip)
    torch.testing.assert_close(found, START - torch.tensor(mean, dtype=torch.float64), rtol=0, atol=1e-15)


def test_a_gradient_of_zero_stays_zero():
    assert squares(START, torch.zeros(2, 2, dtype=torch.float64)).tolist() == [1.0, 0.0]


def test_a_pull_and_weight_decay_come_after_the_clipping():
    def pull(g, w, s):
        g.add_(w, alpha=10.0)

    found = squares(START, X, clip=5.0, step=Step(pull), weight_decay=0.5)
    expected = START - torch.tensor([3.25 / 2, 2.0], dtype=torch.float64) - 10.5 * START
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)


def test_frozen_entries_neither_move_nor_count_in_the_norm():
    free = torch.tensor([True, False])
    found = squares(START, X, clip=4.5, noise=0.1, move=Move(free))
    assert found[1] == 0
    calm = squares(START, X, clip=4.5, move=Move(free))  # (9) becomes (4.5)
    assert calm.tolist() == [1 - (4.5 + 0.25) / 2, 0.0]


def test_the_noise_has_the_asked_standard_deviation_and_is_divided_by_the_batch_size():
    size = 40_000
    found = squares(torch.zeros(size).double(), torch.zeros(8, size).double(), clip=0.5, noise=3.0)
    assert float(found.std()) == pytest.approx(3.0 * 0.5 / 8, rel=0.02)
    assert abs(float(found.mean())) < 5 * 3.0 * 0.5 / 8 / size**0.5


def test_two_fits_of_one_stream_have_noise_and_batches_of_their_own():
    learner = private(Squares(torch.zeros(50)), noise=1.0, batch_size=2)
    fit = Fit(learner.initial(), Rows(torch.zeros(20, 50)))
    first, second = learner.fit(fit).params, learner.fit(fit).params
    assert not torch.equal(first, second)
    learner.ledger.clear()
    assert torch.equal(first, learner.fit(fit).params), "the draws depend on more than client, round and steps"


def test_batches_are_poisson_samples():
    learner = private(Squares(torch.zeros(3)), batch_size=5, epochs=200)
    plan = learner.engine.plan(Fit(learner.initial(), Rows(torch.zeros(22, 3))))
    assert {len(epoch) for epoch in plan} == {5}  # ceil(22 / 5), as many as usual
    sizes = torch.tensor([len(batch) for epoch in plan for batch in epoch], dtype=torch.float64)
    rate = 5 / 22
    assert float(sizes.mean()) == pytest.approx(5, rel=0.04)
    assert float(sizes.var()) == pytest.approx(22 * rate * (1 - rate), rel=0.15)
    counts = torch.bincount(torch.cat([batch for epoch in plan for batch in epoch]), minlength=22)
    assert float((counts / len(sizes) - rate).abs().max()) < 5 * (rate * (1 - rate) / len(sizes)) ** 0.5


def test_the_sum_is_divided_by_the_expected_size_of_a_batch():
    learner = private(Squares(START), clip=5.0, batch_size=2, precision="64-true")
    fit = Fit(learner.initial(), Rows(X.repeat(2, 1)))
    with learner.engine.prepare(fit):
        learner.engine.run(fit, [[torch.tensor([0, 1, 2])]])  # three of four samples, where two are expected
        assert learner.flat.w.tolist() == [1 - 6.25 / 2, -8.0 / 2]


def test_an_empty_batch_is_a_step_of_noise_and_counts():
    learner = private(Squares(torch.zeros(3)), noise=1.0, batch_size=1)
    fit = Fit(learner.initial(), Rows(torch.zeros(4, 3)))
    with learner.engine.prepare(fit):
        learner.engine.run(fit, [[torch.tensor([], dtype=torch.int64)]])
        assert learner.ledger.steps == 1
        assert learner.ledger.loss is None
        assert learner.flat.w.abs().min() > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "module"])
def test_with_a_long_clip_and_no_noise_it_is_the_ordinary_training(optimizer, same):
    torch.manual_seed(7)
    keys = {"batch_size": "full", "epochs": 3, "precision": "64-true"}
    usual = TrainConfig().model_dump(exclude={"optimizer"})
    plain = Learner(Net(), TrainConfig(**keys), optimizer=optimizer)
    torch.manual_seed(7)
    own = private(Net(), clip=1e9, optimizer=optimizer, **{**usual, **keys})
    data = Blobs(18)
    data.dtype = torch.float64
    found, expected = (one.fit(Fit(one.initial(), data)).params for one in (own, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert own.ledger.loss == pytest.approx(plain.ledger.loss, abs=1e-12)


def test_gradients_held_a_few_at_a_time_have_the_same_sum(monkeypatch):
    def trained() -> Tensor:
        torch.manual_seed(7)
        learner = private(Net(), clip=0.3, batch_size=9)
        return learner.fit(Fit(learner.initial(), Blobs(18))).params

    whole = trained()
    monkeypatch.setattr(private_loop, "HELD", 2 * 53)  # two samples of the 53 numbers
    torch.testing.assert_close(trained(), whole, rtol=0, atol=1e-6)


def test_what_would_not_be_private_is_refused():
    learner, data = private(Net()), Blobs(18)
    start = learner.initial()
    line = "privacy.level = sample: fedtest trains by a loss of its own"
    with pytest.raises(ConfigError, match=line):
        learner.fit(Fit(start, data, loss=Loss(lambda net, batch, s: net(batch[0]).sum())))
    with pytest.raises(ConfigError, match=line):
        learner.fit(Fit(start, PairedBatches(data, data, 4)))
    with pytest.raises(ConfigError, match="fedtest makes gradient steps of its own"):
        learner.training(Fit(start, data, amount=Amount(steps=1)))
    for verb in ("loss", "gradient", "full_gradient", "squared_gradients"):
        with pytest.raises(ConfigError, match="fedtest takes losses or gradients of a client's samples"):
            getattr(learner, verb)(start, data)
    mixing = type("Mixing", (Net,), {"on_after_batch_transfer": lambda self, batch, place: batch})
    with pytest.raises(ConfigError, match="Mixing overrides on_after_batch_transfer, which could mix samples"):
        private(mixing())


def test_running_statistics_cannot_be_updated_by_single_samples():
    """Refused before by name; a model that hides them fails instead of training on."""
    learner = private(ConvNet(), batch_size=4)
    with pytest.raises(Exception, match=r"in-place operation|Expected more than 1"):
        learner.fit(Fit(learner.initial(), Blobs(18, (2, 6, 6))))
