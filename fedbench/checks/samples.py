"""The data with which methods are checked, beside the digits."""

from functools import cache

import torch
from torch.utils.data import TensorDataset


@cache
def few_images(train: bool = True) -> TensorDataset:
    """Three classes in turn, 36 images to train and 12 to test."""
    labels = torch.arange(36 if train else 12) % 3
    noise = torch.rand(len(labels), 1, 8, 8, generator=torch.Generator().manual_seed(int(train)))
    return TensorDataset(noise * 0.5 + labels[:, None, None, None] / 6, labels)


@cache
def real_images(train: bool = True) -> TensorDataset:
    """Ten classes in turn, 600 images to train and 150 to test, of real numbers.

    The digits' whole numbers move several parameters equally, and then rounding decides which of them moved more.
    """
    labels = torch.arange(600 if train else 150) % 10
    noise = torch.rand(len(labels), 1, 8, 8, generator=torch.Generator().manual_seed(int(train)))
    return TensorDataset(noise * 0.5 + labels[:, None, None, None] / 20, labels)


@cache
def odd_images(train: bool = True) -> TensorDataset:
    """Six classes of uneven size: two training images, just more than one batch, some."""
    sizes = (2, 10, 11, 20, 20, 20) if train else (3,) * 6
    labels = torch.tensor([label for label, size in enumerate(sizes) for _ in range(size)])
    stream = torch.Generator().manual_seed(int(train))
    images = torch.rand(len(labels), 1, 8, 8, generator=stream) * 0.5 + labels[:, None, None, None] / 12
    return TensorDataset(images, labels)
