"""Aggregators: exact where they promise it, in the order they promise, whatever the machine."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from fedbench import aggregators
from fedbench.aggregators import (
    COLUMNS,
    GATHERED,
    above_quantile,
    bits_to_mask,
    dot_products,
    elementwise_max,
    group_means,
    kth_smallest,
    largest,
    mask_counts,
    mask_overlaps,
    mask_to_bits,
    masked_mean,
    masked_merge,
    mean,
    min_max,
    mixtures,
    normalised,
    plurality,
    product,
    quantile_rank,
    simplex_minimum,
    vote,
    weighted_mean,
)

SIZES = [0, 1, 9, GATHERED, COLUMNS + 13, 2 * COLUMNS + GATHERED + 1]


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


def test_normalised():
    assert normalised([1, 3]) == [0.25, 0.75]


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
    weights = normalised([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
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


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_masks_survive_packing(values):
    mask = torch.tensor(values)
    packed = mask_to_bits(mask)
    assert packed.dtype == torch.uint8
    assert len(packed) == -(-len(values) // 8)
    assert torch.equal(bits_to_mask(packed, len(values)), mask)


@pytest.mark.parametrize("size", [1, 9, 64, 1000, 70_001, 150_000])
def test_overlaps_and_counts_are_exact(size):
    given_masks = masks(5, size)
    stacked = torch.stack(given_masks).to(torch.int64)
    packed = torch.stack([mask_to_bits(m) for m in given_masks])
    assert torch.equal(mask_overlaps(packed), stacked @ stacked.T)
    assert mask_counts(packed, size).tolist() == stacked.sum(0).tolist()


def test_counts_of_more_masks_than_a_byte_holds():
    assert mask_counts(mask_to_bits(torch.ones(3, dtype=torch.bool)).expand(600, -1), 3).tolist() == [600] * 3


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


@pytest.mark.parametrize("size", [100, GATHERED, 5 * GATHERED + 77])
def test_bits_depend_neither_on_threads_nor_on_cores(size, monkeypatch):
    given_vectors, marked = vectors(23, size), groups(23)
    packed = torch.stack([mask_to_bits(m) for m in masks(23, size)])
    results = []
    for threads, cores in ((1, 1), (2, 1), (1, 2), (2, 5)):
        monkeypatch.setattr(aggregators, "cpu_count", lambda cores=cores: cores)
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


def test_products_are_exact_sums():
    left, right = torch.randint(-9, 9, (7, 5)).double(), torch.randint(-9, 9, (5, 1001)).double()
    found = product(left, right)
    assert found.dtype == torch.float64
    assert torch.equal(found, (left[:, :, None] * right).sum(1))


@given(st.lists(st.sampled_from([0.0, -0.0, 1e-30, 0.5, 1.0, 7.0]), min_size=1, max_size=60), st.integers(0, 60))
def test_largest_is_a_stable_sort(values, count):
    count = min(count, len(values))
    order = torch.tensor(values).sort(descending=True, stable=True).indices[:count]
    assert largest(torch.tensor(values), count).nonzero().flatten().tolist() == order.sort().values.tolist()


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 7.0]), st.booleans()), min_size=1, max_size=60), st.integers(0, 60)
)
def test_the_largest_among_some(entries, count):
    values, among = (torch.tensor(column) for column in zip(*entries, strict=True))
    count = min(count, int(among.sum()))
    assert torch.equal(largest(values, count, among), largest(values.masked_fill(~among, -1), count))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [[0.0, -0.0, 0.0, 1.0], [torch.inf, 1e-45, 0.0, 3.0], [-1.0, -2.0, 5.0, -torch.inf]])
def test_largest_knows_every_kind_of_number(values, dtype):
    for count in (1, 2, 3):
        order = torch.tensor(values, dtype=dtype).sort(descending=True, stable=True).indices[:count]
        assert largest(torch.tensor(values, dtype=dtype), count).nonzero().flatten().tolist() == sorted(order.tolist())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_largest_is_the_same_on_a_gpu():
    scores = torch.randint(0, 50, (100_000,)).float()
    for count in (0, 1, 5000, 50_000, 100_000):
        assert torch.equal(largest(scores.cuda(), count).cpu(), largest(scores, count))


def test_votes_and_ties():
    ballots = [torch.tensor([[1, 0, 0], [0, 0, 1]]), torch.tensor([[0, 1, 0], [0, 1, 0]])]
    scores = vote(ballots, [torch.tensor([0.5, 0.25]), torch.tensor([0.5, 0.5])])
    assert scores.tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.25]]
    assert plurality(scores).tolist() == [0, 1]
    assert plurality(torch.tensor([[0.3, 0.1 + 0.2 + 1e-10, 0.1]])).tolist() == [0]
    assert plurality(torch.tensor([[0.3, 0.3 + 1e-8, 0.1]], dtype=torch.float64)).tolist() == [1]


def best_by_enumeration(matrix):
    """The best of the minima over the faces of the simplex, for definite matrices."""
    n, found = len(matrix), []
    for size in range(1, n + 1):
        for face in combinations(range(n), size):
            a = np.zeros(n)
            a[list(face)] = (x := np.linalg.solve(matrix[np.ix_(face, face)], np.ones(size))) / x.sum()
            found += [a] if (a >= 0).all() else []
    return min(found, key=lambda a: a @ matrix @ a)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_minimum_on_the_simplex(seed, scale):
    draw = np.random.default_rng(seed)
    n = 1 + seed % 7
    root = draw.normal(size=(n, n + 1)) * np.exp(draw.normal(size=(n, 1)))
    matrix = (root @ root.T) * scale
    found = simplex_minimum(matrix)
    assert found == pytest.approx(best_by_enumeration(matrix), abs=1e-8)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-14)
    order = draw.permutation(n)
    assert simplex_minimum(matrix[np.ix_(order, order)]) == pytest.approx(found[order], abs=1e-8)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[0], [0], [0], [0]], [0.25] * 4),
        ([[0, 0], [0, 0], [1, 1]], [0.5, 0.5, 0]),
        ([[0, 0], [0, 0], [-1, 1], [1, 0]], [0.5, 0.5, 0, 0]),
        ([[1], [-1], [2]], [None] * 3),
        ([[1, 0], [-1, 0], [0, 1], [0, -1], [5, 5]], [None] * 5),
        ([[1, 1], [1, 1], [1, 1], [4, 4]], [1 / 3, 1 / 3, 1 / 3, 0]),
    ],
)
def test_of_several_minima_the_shortest(points, expected):
    points = np.array(points, dtype=float)
    found = simplex_minimum(points @ points.T)
    shortest = simplex_minimum(points @ points.T + 1e-7 * np.eye(len(points)))  # which a little ridge finds too
    assert found == pytest.approx(shortest, abs=1e-5)
    assert all(e is None or e == pytest.approx(f, abs=1e-9) for e, f in zip(expected, found, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_twins_share_their_weight(seed):
    """Heads that are the same, in FedPAC's programme of one of the clients."""
    draw = np.random.default_rng(seed)
    kinds = draw.integers(0, 3, 5)
    heads, spreads = draw.normal(size=(3, 2))[kinds], (draw.random(3) * (draw.random(3) < 0.5))[kinds]
    away = heads[seed % 5] - heads
    matrix = away @ away.T + np.diag(spreads)
    found = simplex_minimum(matrix)
    assert all(np.ptp(found[kinds == kind]) < 1e-8 for kind in set(kinds))
    assert found == pytest.approx(simplex_minimum(matrix + 1e-8 * np.eye(5)), abs=1e-5)
    order = draw.permutation(5)
    assert simplex_minimum(matrix[np.ix_(order, order)]) == pytest.approx(found[order], abs=1e-8)


def test_a_matrix_without_numbers_is_refused():
    with pytest.raises((np.linalg.LinAlgError, ValueError)):
        simplex_minimum(np.full((3, 3), np.nan))


def test_min_max():
    assert min_max(torch.tensor([0.1, 0.5, 0.9, 0.3], dtype=torch.float64)).tolist() == pytest.approx([0, 0.5, 1, 0.25])
    assert min_max(torch.full((3,), 2.0)).tolist() == [0, 0, 0]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.data())
def test_the_kth_smallest(values, data):
    k = data.draw(st.integers(1, len(values)))
    assert float(kth_smallest(torch.tensor(values, dtype=torch.float64), k)) == sorted(values)[k - 1]


def test_ranks_of_quantiles_are_exact():
    assert [quantile_rank(100, q) for q in (0, 0.07, 0.29, 0.999, 1)] == [0, 7, 29, 100, 100]
    assert [quantile_rank(101, q, "linear") for q in (0, 0.07, 0.29, 0.999, 1)] == [1, 8, 30, 100, 101]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.integers(0, 20))
def test_above_a_quantile(values, twentieths):
    scores, q = torch.tensor(values, dtype=torch.float64), twentieths / 20
    reached = [x for x in values if 20 * sum(v <= x for v in values) >= twentieths * len(values)]
    least = min(reached) if twentieths else float("-inf")
    assert above_quantile(scores, q).tolist() == [v > least for v in values]
