"""Means are exact where they promise it, and added in the order that they promise."""

import numpy as np
import pytest
import torch

from fedbench.aggregation.columns import CHUNK_COLUMNS, GATHERED
from fedbench.aggregation.means import (
    dot_products,
    elementwise_max,
    group_means,
    masked_mean,
    masked_merge,
    mean,
    mixtures,
    normalise,
    product,
    trimmed_mean,
    weighted_mean,
)
from fedbench.aggregation.packed import mask_to_bits

SIZES = [0, 1, 9, GATHERED, CHUNK_COLUMNS + 13, 2 * CHUNK_COLUMNS + GATHERED + 1]


def vectors(count, size, dtype=torch.float32, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=stream).to(dtype) for _ in range(count)]


def masks(count, size, seed=1):
    stream = torch.Generator().manual_seed(seed)
    return [torch.rand(size, generator=stream) < 0.5 for _ in range(count)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("count", "cut"), [(1, 0), (4, 0), (4, 1), (5, 2)])
def test_trimmed_mean(size, count, cut):
    rows = vectors(count, size)
    kept = np.sort(np.stack([row.numpy() for row in rows]), axis=0)[cut : count - cut]
    found = trimmed_mean(rows, cut)
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), kept.mean(axis=0, dtype=np.float64), rtol=1e-6, atol=1e-7)


def test_trimmed_mean_of_equal_values_is_that_value():
    assert trimmed_mean([torch.tensor([2.0, torch.inf])] * 5, 1).tolist() == [2.0, torch.inf]


def groups(count, seed=2):
    made = torch.rand(count, count, generator=torch.Generator().manual_seed(seed)) < 0.4
    made[0] = False
    return made | torch.eye(count, dtype=torch.bool)


def test_normalised():
    assert normalise([1, 3]) == [0.25, 0.75]


@pytest.mark.parametrize("size", SIZES)
def test_weighted_mean_is_a_float64_sum_in_the_order_given(size):
    given_vectors, weights = vectors(5, size), [0.1, 0.2, 0.3, 0.15, 0.25]
    total = np.zeros(size)
    expected = torch.from_numpy(total)
    for vector, weight in zip(given_vectors, weights, strict=True):
        expected.add_(vector.double(), alpha=weight)
    assert torch.equal(weighted_mean(given_vectors, weights), expected.float())


def test_float32_would_lose_these_sums():
    assert float(mean([torch.tensor([v]) for v in (1e8, 1.0, -1e8, 1.0)])) == 0.5


def test_the_largest_counter_wins():
    assert elementwise_max([torch.tensor([1, 9]), torch.tensor([3, 2])]).tolist() == [3, 9]


@pytest.mark.parametrize("size", SIZES)
def test_masked_mean_is_the_mean_over_those_who_take_part(size):
    given_vectors, given_masks, weights = vectors(3, size), masks(3, size), [0.2, 0.3, 0.5]
    otherwise = torch.full((size,), 7.0)
    found = masked_mean(given_vectors, given_masks, weights, otherwise)
    shares = torch.stack(given_masks).double() * torch.tensor(weights, dtype=torch.float64)[:, None]
    mean_of_some = (torch.stack(given_vectors).double() * shares).sum(0) / shares.sum(0)
    nobody = ~torch.stack(given_masks).any(0)
    assert torch.equal(found[nobody], otherwise[nobody])
    assert torch.allclose(found[~nobody].double(), mean_of_some[~nobody], rtol=0, atol=1e-6)
    assert otherwise.eq(7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_mean_where_all_take_part_is_the_weighted_mean(dtype):
    weights = normalise([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    given_vectors = vectors(10, 1000, dtype)
    found = masked_mean(given_vectors, [torch.ones(1000, dtype=torch.bool)] * 10, weights, torch.zeros(1000).to(dtype))
    assert torch.equal(found, weighted_mean(given_vectors, weights))


@pytest.mark.parametrize("size", SIZES)
def test_group_means(size):
    given_vectors, marked = vectors(4, size), groups(4)
    found = group_means(given_vectors, marked)
    for i, vector in enumerate(found):
        members = [v for j, v in enumerate(given_vectors) if marked[i, j]]
        assert torch.allclose(vector, mean(members), rtol=0, atol=1e-6)
    assert torch.equal(found[0], given_vectors[0])


def test_infinite_entries_of_a_group_are_no_business_of_others():
    rows = [torch.tensor([-torch.inf, 1.0]), torch.tensor([-torch.inf, 2.0]), torch.tensor([3.0, torch.inf])]
    groups = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    found = group_means(rows, groups)
    assert [row.tolist() for row in found] == [[-torch.inf, 1.5], [-torch.inf, 1.5], [3.0, torch.inf]]


def test_a_group_of_one_is_untouched_by_what_others_hold():
    rows = [torch.tensor([-0.0, 1.0]), torch.tensor([float("inf"), float("nan")])]
    own = group_means(rows, torch.tensor([[True, False], [False, True]]))[0]
    assert torch.equal(own, rows[0])
    assert torch.signbit(own).tolist() == [True, False]


@pytest.mark.parametrize("size", [1, 9, GATHERED, 3 * GATHERED + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_merge_joins_both_means(size, dtype):
    given_vectors, given_masks, marked = vectors(5, size, dtype), masks(5, size), groups(5)
    weights = [0.1, 0.2, 0.3, 0.15, 0.25]
    common, own = weighted_mean(given_vectors, weights), group_means(given_vectors, marked)
    masked_merge(given_vectors, torch.stack([mask_to_bits(m) for m in given_masks]), marked, weights)
    for i in range(5):
        assert torch.equal(given_vectors[i], torch.where(given_masks[i], own[i], common))


@pytest.mark.parametrize("size", [1, 9, GATHERED, 3 * GATHERED + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dot_products(size, dtype):
    given_vectors = vectors(5, size, dtype)
    stacked = torch.stack(given_vectors).double()
    found = dot_products(given_vectors)
    assert found.dtype == torch.float64
    tolerance = 3e-6 if dtype == torch.float32 else 1e-13
    assert torch.allclose(found, stacked @ stacked.T, rtol=0, atol=tolerance * max(10, size))


@pytest.mark.parametrize("seed", range(5))
def test_dot_products_are_symmetric_to_the_bit(seed):
    found = dot_products(list(torch.rand(6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))))
    assert torch.equal(found, found.T)


def test_dot_products_keep_the_distances_of_close_vectors():
    base, stream = torch.randn(100_000) * 10, torch.Generator().manual_seed(0)
    close = [base + 1e-4 * torch.randn(100_000, generator=stream) for _ in range(3)]
    found = dot_products(close)
    for i, j in ((0, 1), (1, 2)):
        exact = (close[i].double() - close[j].double()).square().sum()
        assert float(found[i, i] + found[j, j] - 2 * found[i, j]) == pytest.approx(float(exact), rel=1e-4)


@pytest.mark.parametrize("size", [0, 1, 9, GATHERED, 3 * GATHERED + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixtures(size, dtype):
    given_vectors, out = vectors(4, size, dtype), [torch.empty(size, dtype=dtype) for _ in range(4)]
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0, 1, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.75, 0.25]]).double()
    mixtures(given_vectors, weights, out)
    for row, found in zip(weights.tolist(), out, strict=True):
        assert torch.allclose(found, weighted_mean(given_vectors, row), rtol=0, atol=1e-6)
    assert torch.equal(out[1], given_vectors[1])


def test_products_are_exact_sums():
    left, right = torch.randint(-9, 9, (7, 5)).double(), torch.randint(-9, 9, (5, 1001)).double()
    found = product(left, right)
    assert found.dtype == torch.float64
    assert torch.equal(found, (left[:, :, None] * right).sum(1))
