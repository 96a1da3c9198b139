"""Masks packed eight entries per byte, as they are transferred, and their overlaps."""

import numpy as np
import torch
from torch import Tensor

from fedbench.aggregation.columns import GATHERED, by_columns, sum_by_columns


def bits_to_mask(bits: Tensor, size: int) -> Tensor:
    """Unpacks a mask to bool `[size]` (the inverse of `mask_to_bits`)."""
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), count=size).view(bool))


def mask_to_bits(mask: Tensor) -> Tensor:
    """Packs a bool mask `[N]` eight entries per byte: uint8 `[ceil(N / 8)]`."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def unpack_columns(packed: np.ndarray, columns: slice) -> np.ndarray:
    """Columns of n packed masks, from a multiple of 8 on, as bytes 0 and 1 `[n, c]`."""
    part = packed[:, columns.start // 8 : -(-columns.stop // 8)]
    return np.unpackbits(part, axis=1, count=columns.stop - columns.start)


def mask_overlaps(masks: Tensor) -> Tensor:
    """The number of common ones of each two masks, int64 `[n, n]`; the diagonal counts a mask's ones.

    masks: packed, uint8 `[n, bytes]`, with 0 in the padding.
    """
    packed, zeros = masks.cpu().numpy(), np.zeros((len(masks), len(masks)), np.int64)
    return torch.from_numpy(
        sum_by_columns(lambda columns: _common(packed[:, columns]), zeros, packed.shape[1], 1 << 14)
    )


def _common(packed: np.ndarray) -> np.ndarray:
    """Counts in words of eight bytes."""
    size, width = packed.shape
    padded = np.zeros((size, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = packed
    words, counts = padded.view(np.uint64), np.zeros((size, size), np.int64)
    for i, row in enumerate(words):
        counts[i, i:] = np.bitwise_count(words[i:] & row).sum(1, dtype=np.uint32)  # int64 is slower
    return counts + np.triu(counts, 1).T


def mask_counts(masks: Tensor, size: int) -> np.ndarray:
    """How many of the packed masks, uint8 `[n, ceil(size / 8)]`, are 1 at each element: int64 `[size]`."""
    out, packed = np.zeros(size, np.int64), masks.cpu().numpy()

    def part(columns: slice) -> None:
        bits = unpack_columns(packed, columns)
        for start in range(0, len(bits), 255):  # sums of 255 bits fit in a byte, which is fastest
            out[columns] += bits[start : start + 255].sum(0, dtype=np.uint8)

    by_columns(part, size, GATHERED)
    return out
