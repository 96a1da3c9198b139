"""Exchanged kernels compute what PyTorch's own do, and are exchanged only where they are faster."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from fedbench import processor
from fedbench.runtime import kernels

needs_onednn = pytest.mark.skipif(kernels.ONEDNN is None, reason="this PyTorch has no product of oneDNN")
FORMS = {
    "rows": lambda m: m,
    "columns": lambda m: m.t().contiguous().t(),
    "every second": lambda m: torch.stack([m, m], 2).flatten(1)[:, ::2],
    "part": lambda m: F.pad(m, (3, 5, 2, 1))[2:-1, 3:-5],
}


def matrices(rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(rows * inner + columns)
    return tuple(torch.randn(*shape, generator=draw) for shape in [(rows, inner), (inner, columns), (columns,)])


@needs_onednn
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("shape", [(50, 1600, 64), (4, 1024, 600), (700, 9, 400), (3, 5, 7)])
def test_a_product_is_that_of_float64(first, second, shape):
    left, right, bias = matrices(*shape)
    exact = left.double() @ right.double()
    left, right = FORMS[first](left), FORMS[second](right)
    for found, expected in ((kernels.mm(left, right), exact), (kernels.addmm(bias, left, right), exact + bias)):
        assert found.is_contiguous()
        assert (found - expected).abs().max() < 2e-6 * shape[1] ** 0.5 * 4


@needs_onednn
def test_only_large_products_of_float32_are_other_ones():
    called: list[tuple[int, ...]] = []
    left, right, bias = matrices(128, 128, 128)
    given = [
        (left.double(), right.double(), bias.double()),
        (left.bfloat16(), right.bfloat16(), bias.bfloat16()),
        (left[:, :-1], right[:-1], bias),
        (left[:3].repeat(1, 400), right.repeat(400, 1), bias),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "ONEDNN", lambda *what: called.append(what[0].shape))
        for a, b, c in given:
            assert torch.equal(kernels.mm(a, b), torch.mm(a, b, out=a.new_empty(0)))
            assert torch.equal(kernels.addmm(c, a, b), torch.addmm(c, a, b, out=a.new_empty(0)))
        for more in ({"beta": 0.5}, {"alpha": 2}):
            assert torch.equal(kernels.addmm(bias, left, right, **more), torch.addmm(bias, left, right, **more))
        kernels.addmm(bias[:, None], left, right)
        assert called == []
        kernels.mm(left, right), kernels.addmm(bias, left, right)
    assert called == [(128, 128)] * 2


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (5, 6)), ((300, 400), (500, 600)), ((3, 4), (4,)), ((4,), (4, 3))]
)
def test_what_does_not_fit_is_refused_in_pytorchs_words(left, right):
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|must be a matrix"):
        kernels.mm(torch.zeros(left), torch.zeros(right))


def test_derivatives_know_nothing_of_it():
    kernels.install()
    x, weight, bias = (0.2 * values for values in matrices(128, 300, 256))
    loss = lambda x, w, b: F.linear(x, w, b).tanh().square().mean()  # noqa: E731
    found = {}
    for dtype in (torch.float32, torch.float64):
        given = [values.to(dtype).requires_grad_() for values in (x.clone(), weight.t().clone(), bias.clone())]
        first = torch.autograd.grad(loss(*given), given, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), given)
        one = lambda w, x, b: loss(x[None], w, b)  # noqa: E731
        single = vmap(grad(one), in_dims=(None, 0, None))(given[1].detach(), given[0].detach(), given[2].detach())
        found[dtype] = [part.detach().double() for part in (*first, *second, single.mean(0))]
    for rounded, exact in zip(*found.values(), strict=True):
        assert (rounded - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("window", [dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1)])
@pytest.mark.parametrize("batch", [(5,), ()])
def test_max_pooling_has_the_same_gradient_in_every_format(window, batch):
    kernels.install()
    images = torch.randn(*batch, 8, 9, 11)
    weights = torch.randn_like(F.max_pool2d(images, **window))
    formats = [torch.contiguous_format, torch.channels_last] if batch else [torch.contiguous_format]
    found = []
    for of_images in formats:
        for of_gradient in formats:
            leaf = images.clone(memory_format=of_images).requires_grad_()
            F.max_pool2d(leaf, **window).backward(weights.contiguous(memory_format=of_gradient))
            assert leaf.grad.stride() == leaf.stride()
            found.append(leaf.grad)
    assert all(torch.equal(found[0], other) for other in found[1:])
    _, places = F.max_pool2d(images, **window, return_indices=True)
    by_hand = torch.zeros_like(images).flatten(-2).scatter_add(-1, places.flatten(-2), weights.flatten(-2))
    assert torch.allclose(found[0].flatten(-2), by_hand)


@needs_onednn
@pytest.mark.parametrize(
    ("described", "products"),
    [
        ({"vendor_id": "AuthenticAMD", "flags": "fma avx2 avx512f"}, True),
        ({"vendor_id": "AuthenticAMD", "flags": "fma avx2"}, False),
        ({"vendor_id": "GenuineIntel", "flags": "fma avx2 avx512f"}, False),
        ({"Features": "asimd bf16"}, False),
        ({}, False),
    ],
)
def test_products_are_exchanged_where_that_is_faster(described, products, monkeypatch):
    names: list[str] = []
    monkeypatch.setattr(torch.library.Library, "impl", lambda self, name, *_, **__: names.append(name))
    monkeypatch.setattr(processor, "described", lambda: described)
    kernels.install.__wrapped__()
    assert names == ["max_pool2d_with_indices_backward", *(["mm", "addmm"] if products else [])]
