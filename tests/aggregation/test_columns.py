"""Bits depend neither on threads nor on cores."""

import pytest
import torch
from threadpoolctl import threadpool_limits

from fedbench.aggregation import columns as module
from fedbench.aggregation.columns import GATHERED
from fedbench.aggregation.means import dot_products, group_means, masked_merge, mixtures
from fedbench.aggregation.packed import mask_overlaps, mask_to_bits


def vectors(count, size, dtype=torch.float32, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=stream).to(dtype) for _ in range(count)]


def masks(count, size, seed=1):
    stream = torch.Generator().manual_seed(seed)
    return [torch.rand(size, generator=stream) < 0.5 for _ in range(count)]


def groups(count, seed=2):
    made = torch.rand(count, count, generator=torch.Generator().manual_seed(seed)) < 0.4
    made[0] = False
    return made | torch.eye(count, dtype=torch.bool)


@pytest.mark.parametrize("size", [100, GATHERED, 5 * GATHERED + 77])
def test_bits_depend_neither_on_threads_nor_on_cores(size, monkeypatch):
    given_vectors, marked = vectors(23, size), groups(23)
    packed = torch.stack([mask_to_bits(m) for m in masks(23, size)])
    results = []
    for threads, cores in ((1, 1), (2, 1), (1, 2), (2, 5)):
        monkeypatch.setattr(module, "cores", lambda cores=cores: cores)
        torch.set_num_threads(threads)
        merged, out = [v.clone() for v in given_vectors], [torch.empty(size) for _ in range(23)]
        with threadpool_limits(threads):
            masked_merge(merged, packed, marked, [1 / 23] * 23)
            means, common = group_means(given_vectors, marked), mask_overlaps(packed)
            mixtures(given_vectors, dot_products(given_vectors), out)
        results.append([torch.stack(merged), torch.stack(means), common, torch.stack(out)])
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
