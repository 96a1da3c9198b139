"""The coordinate-wise trimmed mean."""

import pytest
import torch
from scipy.stats import trim_mean

from fedbench.aggregation.rules.mean import Mean
from fedbench.aggregation.rules.trimmed_mean import TrimmedMean
from tests.aggregation.rules.models import combine, model, random_models, scalars


def trimmed(share: float) -> TrimmedMean:
    return TrimmedMean(TrimmedMean.Options(share=share), "trimmed-mean")


def test_the_smallest_and_largest_of_every_entry_are_left_out():
    models = [model([1.0, 80.0]), model([3.0, 2.0]), model([1e6, 4.0]), model([-1e6, 6.0]), model([5.0, -70.0])]
    assert combine(trimmed(0.2), models).params.tolist() == [3.0, 4.0]  # (1 + 3 + 5) / 3, (2 + 4 + 6) / 3


def test_buffers_likewise_and_the_largest_counter():
    found = combine(trimmed(0.25), scalars(1.0, 2.0, 4.0, 1e6))
    assert (found.buffers.tolist(), found.counters.tolist()) == ([30.0], [3])


def test_weights_do_not_count():
    assert combine(trimmed(0.25), scalars(1.0, 2.0, 4.0, 9.0), [0.7, 0.1, 0.1, 0.1]).params.tolist() == [3.0]


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.3, 10), (0.29, 100), (0.49, 5)])
def test_as_scipy_on_long_vectors(share, count):
    models = random_models(count, 23_000)
    rows = torch.stack([m.params for m in models]).double()
    share_in_floats = share + 1e-9  # of 0.29 times 100 SciPy would cut 28
    expected = torch.from_numpy(trim_mean(rows.numpy(), share_in_floats, axis=0))
    assert torch.allclose(combine(trimmed(share), models).params.double(), expected, rtol=1e-6, atol=1e-7)


def test_without_a_share_it_is_the_plain_mean():
    models = random_models(7)
    found, expected = combine(trimmed(0.0), models), combine(Mean(), models)
    assert torch.equal(found.params, expected.params)
    assert torch.equal(found.buffers, expected.buffers)


@pytest.mark.parametrize("count", range(1, 12))
def test_the_largest_share_leaves_somebody(count):
    found = combine(trimmed(0.49), scalars(*map(float, range(count)))).params
    assert found.tolist() == [pytest.approx((count - 1) / 2)]


def test_a_share_that_leaves_out_nobody_is_told():
    assert ["leaves out none" in line for line in trimmed(0.1).check(9, 3)] == [True]
    assert [*trimmed(0.1).check(10, 3), *trimmed(0.0).check(9, 3)] == []
