"""Steps as lists of operations: what they compute and log, and what cannot be one."""

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbench.engine.fit import Loss
from fedbench.engine.traced import Shape, TracedStep, UntraceableError

NAMES = ("body.0.weight", "body.0.bias", "head.weight", "head.bias")


def traced(
    module: Any, loss: Loss | None = None, width: int | None = None, constants: Any = None
) -> tuple[TracedStep, list]:
    """The step of four of six samples in which the last layer moves, and its inputs."""
    module.log = module.log_dict = lambda *args, **options: None
    own = dict(module.named_parameters())
    needs = {name: torch.as_tensor(value) for name, value in (loss.needs if loss else {}).items()}
    shape = Shape(NAMES[2:], NAMES[:2], (), (*needs,), constants or {}, False, width)
    draw = torch.Generator().manual_seed(1)
    batch = [torch.randn(4, 6, generator=draw), torch.tensor([0, 1, 2, 0])]
    parts = [[own[n].detach() for n in NAMES[2:]], [own[n].detach() for n in NAMES[:2]], [], batch, [*needs.values()]]
    if width:
        parts = [[torch.stack([tensor.clone()] * width) for tensor in part] for part in parts]
    return TracedStep(module, loss, shape, parts), parts


@pytest.fixture
def module(net) -> Any:
    torch.manual_seed(0)
    return net()


def test_it_computes_what_the_module_does_on_the_tensors_that_it_is_given(module):
    step, parts = traced(module)
    for moved in (0.0, 1.0):
        moving = [tensor + moved for tensor in parts[0]]
        loss, gradients, logged = step(moving, *parts[1:])
        for own, tensor in zip((module.head.weight, module.head.bias), moving, strict=True):
            own.data = tensor.clone()
        expected = F.cross_entropy(module(parts[3][0]), parts[3][1])
        asked = torch.autograd.grad(expected, [module.head.weight, module.head.bias])
        assert torch.equal(loss, expected.detach())
        assert all(torch.equal(a, b) for a, b in zip(gradients, asked, strict=True))
        assert not logged


def test_in_a_stack_every_client_has_its_own(module):
    alone, parts = traced(module)
    stacked, whole = traced(module, width=3)
    whole[0][0][1] *= 2
    loss, gradients, _ = stacked(*whole)
    first = alone(*parts)
    assert torch.allclose(loss[[0, 2]], first[0])
    assert not torch.allclose(loss[1], first[0])
    assert torch.allclose(gradients[0][2], first[1][0])


def counting(net: Any, batch: Any, s: Any) -> Tensor:
    s.count.add_(1)
    return s.mu * F.cross_entropy(net(batch[0]), batch[1])


def test_a_loss_writes_to_what_it_is_given_and_tracing_leaves_that_alone(module):
    step, parts = traced(module, Loss(counting, count=torch.zeros(()), mu=2.0))
    count = parts[4][0]
    assert float(count) == 0
    for number in (1, 2):
        step(*parts)
        assert float(count) == number


def test_what_is_logged_comes_out(net):
    class Talks(net):
        def training_step(self, batch: Any) -> Tensor:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=True)
            self.log_dict({"half": loss / 2})
            return loss

    step, parts = traced(Talks())
    loss, _, logged = step(*parts)
    assert step.logged == [("loss", {"prog_bar": True}), ("half", {})]
    assert [float(value) for value in logged] == pytest.approx([float(loss), float(loss) / 2])


def refused(net: Any, step: Any, width: int | None = None) -> str:
    with pytest.raises(UntraceableError) as caught:
        traced(type("Own", (net,), {"training_step": step})(), width=width)
    return str(caught.value)


def test_what_cannot_be_traced_says_why(net):
    def asks(self, batch):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        return loss * 2 if loss.item() > 1 else loss

    def keeps(self, batch):
        self.last = 7
        return F.cross_entropy(self(batch[0]), batch[1])

    def draws(self, batch):
        return F.cross_entropy(self(F.dropout(batch[0], 0.5)), batch[1])

    def counts(self, batch):
        self.log("samples", len(batch[0]))
        return F.cross_entropy(self(batch[0]), batch[1])

    def skips(self, batch):
        return None

    assert refused(net, asks) == "it asks for a number that only a step has"
    assert ".item()" in refused(net, asks, width=2)
    assert refused(net, keeps) == "it changes attributes of the module that are no buffers"
    assert refused(net, draws) == "it draws random numbers"
    assert refused(net, draws, width=2) == "it draws random numbers"
    assert refused(net, counts) == "it logs 'samples', which is not a tensor"
    assert refused(net, skips) == "its training_step returns no loss"


def count(counts: dict[str, int]) -> float:
    counts["n"] += 1
    return float(counts["n"])


def own_step(step):
    """A training_step of Net with something done before the loss."""

    def training_step(self, batch, batch_idx):
        value = step(self, batch_idx)
        return F.cross_entropy(self(batch[0]), batch[1]) * (value if isinstance(value, float) else 1)

    return training_step


@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda net, number: number % 2, "it asks for the number of the batch"),
        (lambda net, number: number == 0, "it asks for the number of the batch"),
        (lambda net, number: bool(number), "it asks for the number of the batch"),
        (lambda net, number: f"{number}", "it asks for the number of the batch"),
        (lambda net, number: net.current_epoch, "it asks for self.trainer"),
        (lambda net, number: net.trainer.max_epochs, "it asks for self.trainer"),
        (lambda net, number: random.random(), "it draws random numbers"),
        (lambda net, number: np.random.rand(), "it draws random numbers"),
        (lambda net, number: net.seen.append(1), "it changes attributes of the module that are no buffers"),
        (lambda net, number: net.total.add_(1), "it changes attributes of the module that are no buffers"),
        (lambda net, number: setattr(net, "centre", net.centre + 1), "it puts other tensors in its buffers' places"),
        (lambda net, number: count(net.counts), "it does something else in every step"),
        (lambda net, number: next(net.rates), "it does something else in every step"),
        (lambda net, number: net.stream.normal(), "it does something else in every step"),
    ],
)
def test_what_is_another_one_in_every_step_is_not_held_for_good(step, why, width, net):
    class Own(net):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.total = [], torch.zeros(())
            self.counts, self.rates, self.stream = {"n": 0}, iter([0.1, 0.2, 0.3]), np.random.default_rng(0)
            self.register_buffer("centre", torch.zeros(2))

        training_step = own_step(step)

    module = Own()
    trainer = module._trainer
    with pytest.raises(UntraceableError) as caught:
        traced(module, width=width)
    assert str(caught.value) == why
    assert module._trainer is trainer
    assert (module.counts, next(module.rates), module.seen) == ({"n": 0}, 0.1, []), "tracing leaves no trace"
    assert float(module.total) == 0


@pytest.mark.parametrize("width", [None, 2])
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
def test_numbers_of_the_example_are_not_held_for_good(numbers, width, net):
    def training_step(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1]) * numbers(batch)

    assert refused(net, training_step, width)


def test_a_module_that_cannot_be_copied_says_so(net):
    class Held(net):
        def __init__(self) -> None:
            super().__init__()
            self.files = (line for line in ())

    with pytest.raises(UntraceableError, match=r"the module cannot be copied .TypeError: .*generator"):
        traced(Held())


def test_a_number_of_the_batch_that_nobody_asks_for_is_no_obstacle(net):
    step, parts = traced(type("Own", (net,), {"training_step": own_step(lambda net, number: None)})())
    assert torch.isfinite(step(*parts)[0])


def test_batch_normalisation_changes_its_statistics_in_place(net):
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
    shape = Shape((*own,), (), (*kept,), (), {}, False, None)
    step = TracedStep(module, None, shape, [[p.detach() for p in own.values()], [], copies, [x, y], []])
    assert all(torch.equal(a, b) for a, b in zip(copies, kept.values(), strict=True)), "tracing changes nothing"
    step([p.detach() for p in own.values()], [], copies, [x, y], [])
    module(x)
    assert all(torch.equal(a, b) for a, b in zip(copies, kept.values(), strict=True))


def test_a_function_that_holds_on_to_the_module_is_refused(net):
    class Held(net):
        def __init__(self) -> None:
            super().__init__()
            self.features = lambda x: self.body(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x))

    with pytest.raises(UntraceableError, match="a function that holds on to the module"):
        traced(Held())
