"""Ranks are exact order statistics, with stated ties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.aggregation.ranks import above_quantile, kth_smallest, largest, min_max, quantile_rank


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
