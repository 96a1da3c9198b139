"""Krum and multi-Krum."""

import pytest
import torch

from fedbench.aggregation.rules.krum import Krum, krum_scores, squared_distances
from fedbench.aggregation.rules.mean import Mean
from fedbench.errors import ConfigError
from tests.aggregation.rules.models import combine, random_models, scalars


def krum(byzantine: int = 1, select: int = 1) -> Krum:
    return Krum(Krum.Options(byzantine=byzantine, select=select), "krum")


FIVE = (0.0, 1.0, 3.0, 4.5, 90.0)


def test_scores_on_paper():
    # n - f - 2 = 2 nearest others of each: 1 + 9, 1 + 4, 2.25 + 4, 2.25 + 12.25, 85.5^2 + 87^2
    scores = krum_scores(squared_distances([m.params for m in scalars(*FIVE)]), 1)
    assert scores.tolist() == [10.0, 5.0, 6.25, 14.5, 14879.25]


def test_the_model_with_the_lowest_score_is_taken_whole():
    found = combine(krum(), scalars(*FIVE))
    assert (found.params.tolist(), found.buffers.tolist(), found.counters.tolist()) == ([1.0], [10.0], [1])


def test_multi_krum_averages_those_with_the_lowest_scores():
    found = combine(krum(select=3), scalars(*FIVE))  # scores 5, 6.25 and 10
    assert found.params.tolist() == [pytest.approx(4 / 3)]
    assert found.buffers.tolist() == [pytest.approx(40 / 3)]


def test_weights_do_not_count():
    assert combine(krum(), scalars(*FIVE), [0.01, 0.01, 0.01, 0.01, 0.96]).params.tolist() == [1.0]


def test_of_equal_scores_the_first_client_is_taken():
    assert combine(krum(0), scalars(5.0, 3.0, 5.0, 3.0)).params.tolist() == [5.0]


def test_multi_krum_of_all_is_the_plain_mean():
    models = random_models(5)
    found, expected = combine(krum(select=5), models), combine(Mean(), models)
    assert torch.equal(found.params, expected.params)
    assert torch.equal(found.buffers, expected.buffers)


def test_distances_keep_their_digits_beside_a_vector_far_away():
    stream = torch.Generator().manual_seed(0)
    near = [torch.randn(20_000, generator=stream) for _ in range(4)]
    found = squared_distances([torch.full((20_000,), 1e12), *near])
    expected = torch.stack([(a.double() - b.double()).square().sum() for a, b in [near[:2], near[1:3]]])
    assert torch.allclose(torch.stack([found[1, 2], found[2, 3]]), expected, rtol=1e-12)
    assert torch.equal(found, found.T)
    assert not found.diagonal().any()


@pytest.mark.parametrize(
    ("byzantine", "drawn", "hint"), [(1, 4, "at most 0"), (4, 10, "at most 3"), (0, 2, "take more clients")]
)
def test_too_few_participants_are_refused(byzantine, drawn, hint):
    with pytest.raises(ConfigError, match=hint):
        krum(byzantine).check(drawn, 1)
    assert krum(byzantine).check(2 * byzantine + 3, 1) == ()
    assert krum(byzantine).fewest == 2 * byzantine + 3


def test_more_models_than_participants_are_refused():
    with pytest.raises(ConfigError, match=r"aggregator\.select = 6: a round has 5 participants"):
        krum(1, 6).check(5, 1)
