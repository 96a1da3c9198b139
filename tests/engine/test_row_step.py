"""Steps on rows: what they compute and log, and which modules cannot be stacked."""

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.engine.fit import Loss
from fedbench.engine.row_step import RowStep, UnsupportedFitError, check_step

NAMES = ("body.0.weight", "body.0.bias", "head.weight", "head.bias")


def step_of(module: Any, loss: Loss | None = None) -> tuple[RowStep, list[list[Tensor]]]:
    """A step on four of six samples in which the last layer moves, and its tensors."""
    module.log = module.log_dict = lambda *args, **options: None
    own = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    needs = {name: torch.as_tensor(value) for name, value in (loss.needs if loss else {}).items()}
    draw = torch.Generator().manual_seed(1)
    batch = [torch.randn(4, 6, generator=draw), torch.tensor([0, 1, 2, 0])]
    moving, frozen = ([own[name] for name in part] for part in (NAMES[2:], NAMES[:2]))
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    step = RowStep(module, loss, [*NAMES[2:], *NAMES[:2], *buffers], [*needs], {})
    return step, [moving, [*frozen, *buffers.values()], batch, [*needs.values()]]


def stack_of(parts: list[list[Tensor]], width: int) -> list[list[Tensor]]:
    return [[torch.stack([tensor] * width) for tensor in part] for part in parts]


def run(step: RowStep, parts: list[list[Tensor]], stacked: bool = False) -> Any:
    moving, *others = parts
    with step.active():
        return step([[tensor.requires_grad_() for tensor in moving], *others], stacked=stacked)


@pytest.fixture
def module(net) -> Any:
    torch.manual_seed(0)
    return net()


def test_it_computes_what_the_module_does_on_the_tensors_that_it_is_given(module):
    step, parts = step_of(module)
    own = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    moved = [tensor + 1 for tensor in parts[0]]
    loss, gradients, logged = run(step, [moved, *parts[1:]])
    assert all(torch.equal(tensor, own[name]) for name, tensor in module.state_dict().items())
    for parameter, tensor in zip((module.head.weight, module.head.bias), moved, strict=True):
        parameter.data = tensor.detach().clone()
    expected = F.cross_entropy(module(parts[2][0]), parts[2][1])
    slopes = torch.autograd.grad(expected, [module.head.weight, module.head.bias])
    assert torch.equal(loss, expected.detach())
    assert all(torch.equal(a, b) for a, b in zip(gradients, slopes, strict=True))
    assert not logged


def test_in_a_stack_every_client_has_its_own(module):
    step, parts = step_of(module)
    rows = stack_of(parts, 3)
    rows[0][0][1] *= 2
    loss, gradients, _ = run(step, rows, stacked=True)
    first = run(step, parts)
    assert torch.allclose(loss[[0, 2]], first[0])
    assert not torch.allclose(loss[1], first[0])
    assert torch.allclose(gradients[0][2], first[1][0])


def test_tied_tensors_are_one(net):
    class Tied(net):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(6, 6)
            self.again = self.head = nn.Linear(6, 6)
            self.head.weight = self.body.weight

    module = Tied()
    step = RowStep(module, None, ["body.weight", "body.bias", "head.bias"], [], {})
    own = [tensor.detach() for tensor in (module.body.weight, module.body.bias, module.head.bias)]
    batch = [torch.randn(4, 6), torch.tensor([0, 1, 2, 0])]
    _, (found,), _ = run(step, [[own[0].clone()], own[1:], batch, []])
    (expected,) = torch.autograd.grad(F.cross_entropy(module(batch[0]), batch[1]), [module.body.weight])
    assert torch.equal(found, expected)


def counting(net: Any, batch: Any, s: Any) -> Tensor:
    s.count.add_(1)
    return s.mu * F.cross_entropy(net(batch[0]), batch[1])


@pytest.mark.parametrize("width", [None, 2])
def test_a_loss_writes_to_what_it_is_given_and_a_check_leaves_that_alone(width, module):
    loss = Loss(counting, count=torch.zeros(()), mu=2.0)
    step, parts = step_of(module, loss)
    check_step(step, parts, stacked=bool(width))
    parts = stack_of(parts, width) if width else parts
    count = parts[3][0]
    for number in range(3):
        assert torch.equal(count, torch.full_like(count, number))
        run(step, parts, stacked=bool(width))


@pytest.mark.parametrize("width", [None, 2])
def test_what_is_logged_comes_out(width, net):
    class Talks(net):
        def training_step(self, batch: Any) -> Tensor:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=True)
            self.log_dict({"half": loss / 2, "samples": len(batch[0])})
            return loss

    step, parts = step_of(Talks())
    check_step(step, parts, stacked=bool(width))
    loss, _, logged = run(step, stack_of(parts, width) if width else parts, stacked=bool(width))
    assert step.logs.calls == [("loss", {"prog_bar": True}), ("half", {}), ("samples", {})]
    for value, expected in zip(logged, (loss, loss / 2, torch.full_like(loss, 4)), strict=True):
        torch.testing.assert_close(value, expected, check_dtype=False)


def refused(module: Any) -> str:
    with pytest.raises(UnsupportedFitError) as caught:
        check_step(*step_of(module), stacked=True)
    return str(caught.value)


def with_step(net: Any, step: Any) -> Any:
    return type("Own", (net,), {"training_step": step})()


def test_what_cannot_be_stacked_says_why(net):
    def asks(self, batch):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        return loss * 2 if loss.item() > 1 else loss

    def keeps(self, batch):
        self.last = 7
        return F.cross_entropy(self(batch[0]), batch[1])

    def draws(self, batch):
        return F.cross_entropy(self(F.dropout(batch[0], 0.5)), batch[1])

    def tells(self, batch):
        self.log("samples", "four")
        return F.cross_entropy(self(batch[0]), batch[1])

    def skips(self, batch):
        return None

    assert ".item()" in refused(with_step(net, asks))
    assert refused(with_step(net, keeps)) == "it changes attributes of the module that are no buffers"
    assert refused(with_step(net, draws)) == "it draws random numbers"
    assert refused(with_step(net, tells)) == "it logs 'samples', which is not a number"
    assert refused(with_step(net, skips)) == "its training_step returns no loss"


def count(counts: dict[str, int]) -> float:
    counts["n"] += 1
    return float(counts["n"])


def own_step(step):
    """A training_step of Net with something done before the loss."""

    def training_step(self, batch, batch_idx):
        value = step(self, batch_idx)
        return F.cross_entropy(self(batch[0]), batch[1]) * (value if isinstance(value, float) else 1)

    return training_step


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda net, number: number % 2, "it uses the number of the batch"),
        (lambda net, number: number == 0, "it uses the number of the batch"),
        (lambda net, number: bool(number), "it uses the number of the batch"),
        (lambda net, number: f"{number}", "it uses the number of the batch"),
        (lambda net, number: net.current_epoch, "it uses self.trainer"),
        (lambda net, number: net.trainer.max_epochs, "it uses self.trainer"),
        (lambda net, number: random.random(), "it draws random numbers"),
        (lambda net, number: np.random.rand(), "it draws random numbers"),
        (lambda net, number: net.seen.append(1), "it changes attributes of the module that are no buffers"),
        (lambda net, number: net.total.add_(1), "it changes attributes of the module that are no buffers"),
        (lambda net, number: setattr(net, "centre", net.centre + 1), "it puts other tensors in its buffers' places"),
        (lambda net, number: count(net.counts), "it changes attributes of the module that are no buffers"),
        (lambda net, number: next(net.rates), "it changes attributes of the module that are no buffers"),
        (lambda net, number: net.stream.normal(), "it changes attributes of the module that are no buffers"),
    ],
)
def test_what_clients_of_one_step_could_not_have_of_their_own(step, why, net):
    class Own(net):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.total = [], torch.zeros(())
            self.counts, self.rates, self.stream = {"n": 0}, iter([0.1, 0.2, 0.3]), np.random.default_rng(0)
            self.register_buffer("centre", torch.zeros(2))

        training_step = own_step(step)

    module = Own()
    trainer = module._trainer
    drawn = random.getstate()
    assert refused(module) == why
    assert random.getstate() == drawn
    assert module._trainer is trainer
    assert (module.counts, next(module.rates), module.seen) == ({"n": 0}, 0.1, []), "a check leaves no trace"
    assert float(module.total) == 0


@pytest.mark.parametrize(
    "numbers",
    [
        lambda batch: float(batch[1].numpy().max()),
        lambda batch: float(max(batch[1].tolist())),
        lambda batch: float(len(torch.unique(batch[1]))),
        lambda batch: float(len(batch[1][batch[1] > 0])),
        lambda batch: float(bool(batch[0].sum() > 0)),
    ],
    ids=["numpy", "list", "unique", "chosen", "asked"],
)
def test_what_depends_on_the_numbers_of_a_client(numbers, net):
    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1]) * numbers(batch)

    assert refused(with_step(net, training_step))


def test_a_module_that_cannot_be_copied_says_so(net):
    class Held(net):
        def __init__(self) -> None:
            super().__init__()
            self.files = (line for line in ())

    assert refused(Held()).startswith("the module cannot be copied (TypeError: ")


def test_a_number_of_the_batch_that_nobody_asks_for_is_no_obstacle(net):
    module = with_step(net, own_step(lambda net, number: None))
    check_step(*step_of(module), stacked=True)


@pytest.mark.parametrize("width", [None, 2])
def test_batch_normalisation_changes_its_statistics_in_place(width, net):
    class Normed(net):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU())

    torch.manual_seed(0)
    module = Normed().train()
    module.log = module.log_dict = lambda *args, **options: None
    own, kept = dict(module.named_parameters()), dict(module.named_buffers())
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    copies = [tensor.clone() for tensor in kept.values()]
    step = RowStep(module, None, [*own, *kept], [], {})
    parts = [[p.detach().clone() for p in own.values()], copies, [x, y], []]
    check_step(step, parts, stacked=True)
    assert all(torch.equal(a, b) for a, b in zip(copies, kept.values(), strict=True)), "a check changes nothing"
    parts = stack_of(parts, width) if width else parts
    run(step, parts, stacked=bool(width))
    assert all(torch.equal(a, b) for a, b in zip(copies, kept.values(), strict=True)) == bool(width)
    module(x)
    for changed, expected in zip(parts[1], kept.values(), strict=True):
        torch.testing.assert_close(changed[-1] if width else changed, expected)
