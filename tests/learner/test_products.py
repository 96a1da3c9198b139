"""Products of parameters with their gradients: the short way by layers, and who takes it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedbench.learner.products import TensorProducts
from tests.learner.conftest import ConvNet, Net
from tests.learner.test_samples import IMAGE, LONG, SHORT, TOKENS, Called, flat


def cross_entropy(module, batch):
    return F.cross_entropy(module(batch[0]), batch[1])


def products(make, shape, loss=cross_entropy):
    torch.manual_seed(1)
    module = make()
    with torch.no_grad():
        module(torch.randn(2, *shape))  # gives lazy layers their shape
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    module.double().eval()
    like = torch.randn(2, *shape, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    return module, TensorProducts(module, [name for name, _ in module.named_parameters()], loss, like)


def check(module, found, shape, loss=cross_entropy):
    batch = torch.randn(7, *shape, dtype=torch.float64), torch.arange(7) % 4
    value, inner = found(batch)
    expected = loss(module, batch)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(expected, parameters, allow_unused=True, materialize_grads=True)
    assert torch.equal(value, expected.detach())
    by_hand = [(p * g).sum() for p, g in zip(parameters, gradients, strict=True)]
    assert torch.allclose(inner, torch.stack(by_hand), rtol=1e-9, atol=1e-12)
    assert inner.abs().sum() > 0


EITHER = {"groups", "same", "reflected", "all at once"}
"""What is a sum of W x and b nevertheless, though the rules for single samples leave it to the general way."""


@pytest.mark.parametrize("name", SHORT)
def test_by_layers(name):
    make, shape = SHORT[name]
    module, found = products(make, shape)
    assert found.layers is not None
    check(module, found, shape)


@pytest.mark.parametrize("name", LONG)
def test_the_general_way(name):
    make, shape = LONG[name]
    module, found = products(make, shape)
    assert (found.layers is None) or name in EITHER
    check(module, found, shape)


def test_what_comes_out_is_changed_in_place():
    """Where a unit is cut off its gradient is too; a leaky one goes on, with another number."""
    for unit, by_layers in ((nn.ReLU(inplace=True), True), (nn.LeakyReLU(0.3, inplace=True), False)):
        module, found = products(lambda: flat(nn.Linear(3, 5), unit), TOKENS)  # noqa: B023
        assert (found.layers is not None) == by_layers
        check(module, found, TOKENS)


def residual(zero):
    """A layer's output changed in place, behind something that is 0 at first."""

    def forward(m, x):
        inner = m.a(x)
        inner += m.b(inner.tanh().transpose(1, 2)).transpose(1, 2)
        return m.out(inner)

    made = Called(forward, a=nn.Linear(3, 3), b=nn.Linear(4, 4), out=flat())
    made.out(torch.randn(2, *TOKENS))
    for parameter in getattr(made, zero).parameters():
        nn.init.zeros_(parameter)
    return made


@pytest.mark.parametrize("zero", ["b", "out"])
def test_what_begins_with_zeros_is_tried_elsewhere(zero):
    module, found = products(lambda: residual(zero), TOKENS)
    assert found.layers is None
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    check(module, found, TOKENS)


@pytest.mark.parametrize("size", [0.01, 1e-5])
def test_a_loss_that_looks_at_parameters_goes_the_general_way(size):
    def loss(module, batch):
        return cross_entropy(module, batch) + size * sum(p.square().sum() for p in module.parameters())

    module, found = products(lambda: flat(nn.Conv2d(3, 5, 3), nn.ReLU()), IMAGE, loss)
    assert found.layers is None
    check(module, found, IMAGE, loss)


def test_a_loss_that_looks_at_parameters_later():
    size = 0.0

    def loss(module, batch):
        value = cross_entropy(module, batch)
        return value + size * sum(p.square().sum() for p in module.parameters()) if size else value

    module, found = products(lambda: flat(nn.Conv2d(3, 5, 3), nn.ReLU()), IMAGE, loss)
    assert found.layers is not None
    check(module, found, IMAGE, loss)
    size = 0.1
    check(module, found, IMAGE, loss)


def test_what_fails_on_noise_or_cannot_be_copied_goes_the_general_way():
    def picky(module, batch):
        if len(batch[0]) == 2:
            raise ValueError("noise")
        return cross_entropy(module, batch)

    make = lambda: flat(nn.Linear(3, 5), nn.ReLU())  # noqa: E731
    module, found = products(make, TOKENS, picky)
    assert found.layers is None
    check(module, found, TOKENS)

    def uncopied():
        made = Called(lambda m, x: m.inner(x), inner=make())
        made.stream = (n for n in range(3))
        return made

    module, found = products(uncopied, TOKENS)
    assert found.layers is None
    check(module, found, TOKENS)


def test_another_way_for_other_data():
    def forward(m, x):
        return m.out(m.a(m.a(x)) if len(x) > 2 else m.a(x))

    module, found = products(lambda: Called(forward, a=nn.Linear(3, 3), out=flat()), TOKENS)
    assert found.layers is not None
    check(module, found, TOKENS)


@pytest.mark.parametrize("kind", [Net, ConvNet])
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_of_a_learner(learner, blobs, kind, precision, same):
    data = blobs(9, (2, 6, 6) if kind is ConvNet else (6,))
    trained = learner(kind, precision=precision)
    data.dtype = trained.dtype
    batch = data.batch(torch.arange(9))
    weights = trained.initial()
    weights.params.mul_(0.7)
    value, inner = trained.loss_and_products(weights, batch)
    assert trained._products.layers is not None
    expected, gradient = trained.loss_and_gradient(weights, batch, lambda net, batch, s: net.training_step(batch, 0))
    assert torch.allclose(value, expected)
    tolerance = 1e-2 if precision == "bf16-mixed" else 1e-5
    by_hand = [(weights.params[s.start : s.stop] * gradient[s.start : s.stop]).sum() for s in trained.layout.params]
    assert torch.allclose(inner, torch.stack(by_hand), rtol=tolerance, atol=tolerance)
    assert same(trained.weights(), weights)
    assert trained.module.training
    again = trained.loss_and_products(weights.replace(params=trained.w), batch)
    assert torch.equal(again[1], inner)


def test_the_way_is_chosen_at_the_first_weights_whatever_is_asked_first(learner, blobs, same):
    trained = learner(Net)
    broken = trained.initial()
    broken.params.fill_(float("nan"))
    batch = blobs(9).batch(torch.arange(9))
    value, _ = trained.loss_and_products(broken, batch)
    assert value.isnan()
    assert trained._products.layers is not None
    assert trained.weights().params.isnan().all()
