"""Sums in whole numbers: the same in any order, and N * 2^-55 from the weighted mean at most."""

import pytest
import torch

from fedbench.aggregation import exact
from fedbench.aggregation.exact import CHUNK, LIMIT, add_term, add_terms, add_together, fits, value
from fedbench.aggregation.means import weighted_mean


def rows(count: int, size: int, scale: float = 1.0) -> tuple[list[torch.Tensor], list[float]]:
    stream = torch.Generator().manual_seed(count)
    shares = torch.rand(count, generator=stream, dtype=torch.float64)
    return [scale * torch.randn(size, generator=stream) for _ in range(count)], (shares / shares.sum()).tolist()


def total(vectors, weights, order) -> torch.Tensor:
    made = torch.zeros(vectors[0].shape, dtype=torch.int64)
    for i in order:
        add_term(made, vectors[i], weights[i])
    return made


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_no_order_and_no_grouping_changes_a_bit(scale):
    vectors, weights = rows(90, 400, scale)
    whole = total(vectors, weights, range(90))
    assert torch.equal(whole, total(vectors, weights, reversed(range(90))))
    assert torch.equal(whole, sum(total(vectors, weights, range(start, 90, 7)) for start in range(7)))
    floats = [sum(w * v.double() for v, w in list(zip(vectors, weights, strict=True))[::step]) for step in (1, -1)]
    assert not torch.equal(*floats)  # which is why


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_it_is_the_weighted_mean(scale):
    vectors, weights = rows(1000, 50, scale)
    found = value(total(vectors, weights, range(1000)))
    expected = sum(w * v.double() for v, w in zip(vectors, weights, strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1000 * 2.0**-55)
    torch.testing.assert_close(found.float(), weighted_mean(vectors, weights), rtol=1e-6, atol=1e-9)


def test_the_largest_numbers_have_room():
    vector, made = torch.full((3,), LIMIT * (1 - 1e-7)) * torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3).long()
    assert fits(vector)
    for _ in range(1000):
        add_term(made, vector, 1e-3)
    torch.testing.assert_close(value(made), vector.double(), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("bad", [LIMIT, -LIMIT, float("inf"), float("nan")])
def test_what_does_not_fit_is_known_before(bad):
    assert fits(torch.tensor([1.0, -3.0]))
    assert not fits(torch.tensor([1.0, bad, 2.0]))
    assert fits(torch.tensor([]))


def test_long_vectors_and_matrices_are_added_piece_by_piece(monkeypatch):
    vectors, weights = rows(3, 24)
    whole = total(vectors, weights, range(3))
    monkeypatch.setattr(exact, "CHUNK", 7)
    assert torch.equal(whole, total(vectors, weights, range(3)))
    shaped = [vector.view(4, 6) for vector in vectors]
    assert torch.equal(whole.view(4, 6), total(shaped, weights, range(3)))
    assert CHUNK > 7


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_a_term_leaves_its_vector_as_it_was(kind):
    vector, made = torch.randn(5).to(kind), torch.zeros(5).long()
    before = vector.clone()
    add_term(made, vector, 0.25)
    assert torch.equal(vector, before)
    torch.testing.assert_close(value(made), 0.25 * vector.double(), rtol=0, atol=2.0**-55)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_vectors_added_together_give_the_bits_of_one_after_another(kind):
    """Those that do not fit stay out, wherever they are."""
    vectors, weights = rows(6, 40)
    vectors = [vector.to(kind).view(5, 8) for vector in vectors]
    vectors[1][0, 0], vectors[4][2, 3] = float("nan"), -LIMIT
    one, other = (torch.ones(5, 8, dtype=torch.int64) for _ in range(2))
    fitting = [True, False, True, True, False, True]
    assert add_terms(one, vectors, weights) == add_together(other, vectors, weights) == fitting
    assert torch.equal(one, other)
    assert not torch.equal(one, torch.ones_like(one))


@pytest.mark.parametrize("add", [add_terms, add_together])
def test_nothing_is_added_if_nothing_fits_or_is_there(add):
    total, bad = torch.zeros(2, dtype=torch.int64), torch.tensor([float("inf"), 0.0])
    assert add(total, [bad, bad], [0.5, 0.5]) == [False, False]
    assert total.tolist() == [0, 0]
    assert add(torch.zeros(0, dtype=torch.int64), [torch.zeros(0)] * 2, [0.5, 0.5]) == [True, True]
