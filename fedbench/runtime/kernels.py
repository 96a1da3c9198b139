"""CPU kernels of PyTorch in whose place another of its own does the same in half the time.

They are exchanged below autograd, for all of the process: derivatives, vmap and autocast never know, and the server
half computes with what the hosts compute with, whether they share its process or not.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedbench import processor

LEAST = 1 << 21
"""Multiplications of a matrix product from which on oneDNN is faster than MKL on an AMD processor with AVX-512."""

NARROW = 4
"""Rows or columns of a result below which it is not: such a product reads its inputs and hardly computes."""

ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


@cache
def install() -> torch.library.Library:
    """Exchange the kernels, once for a process; they stay for as long as the result lives."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("max_pool2d_with_indices_backward", max_pool2d_backward, allow_override=True)
    if ONEDNN is not None and processor.is_amd() and processor.has("avx512f"):
        library.impl("mm", mm, allow_override=True)
        library.impl("addmm", addmm, allow_override=True)
    return library


def mm(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` of two matrices.

    PyTorch's MKL stays with AVX2 on AMD's processors, oneDNN goes by what the processor can do.
    """
    if is_wide(left, right):
        return ONEDNN(left, right.t(), None, "none", [], "")
    return torch.mm(left, right, out=left.new_empty(0))


def addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * bias + alpha * left @ right`."""
    if beta == alpha == 1 and bias.shape == right.shape[1:] and is_wide(left, right):
        return ONEDNN(left, right.t(), bias, "none", [], "")
    return torch.addmm(bias, left, right, beta=beta, alpha=alpha, out=left.new_empty(0))


def is_wide(left: Tensor, right: Tensor) -> bool:
    """Whether this is a product of float32 matrices that is large enough."""
    if not left.dtype is right.dtype is torch.float32 or left.dim() != 2 or right.dim() != 2:
        return False
    (rows, inner), columns = left.shape, right.shape[1]
    return len(right) == inner and rows * inner * columns >= LEAST and min(rows, columns) >= NARROW


def max_pool2d_backward(grad: Tensor, images: Tensor, *options: Any) -> Tensor:
    """Gradient of max pooling, computed in the memory format of the images.

    PyTorch's goes by that of the gradient, which is another one before a Flatten, and copies all images twice.
    """
    if images.is_contiguous(memory_format=torch.channels_last):
        grad = grad.contiguous(memory_format=torch.channels_last)
    own = torch.ops.aten.max_pool2d_with_indices_backward.grad_input
    return own(grad, images, *options, grad_input=images.new_empty(0))
