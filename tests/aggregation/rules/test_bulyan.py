"""Bulyan over Krum."""

import pytest
import torch

from fedbench.aggregation.rules.bulyan import Bulyan, mean_near_median, select
from fedbench.aggregation.rules.krum import squared_distances
from fedbench.aggregation.rules.mean import Mean
from fedbench.errors import ConfigError
from tests.aggregation.rules.models import combine, random_models, scalars

SEVEN = (0.0, 1.0, 3.0, 4.5, 5.0, 7.0, 90.0)


def bulyan(byzantine: int = 1) -> Bulyan:
    return Bulyan(Bulyan.Options(byzantine=byzantine), "bulyan")


def test_krum_selects_one_after_another():
    # The nearest 7 - 1 - 2 = 4 of each: 3 has 4 + 2.25 + 4 + 9 = 19.25, the least.
    squared = squared_distances([m.params for m in scalars(*SEVEN)])
    by_hand, left = [], list(SEVEN)
    while len(by_hand) < 5:
        count = max(1, len(left) - 3)
        score = {v: sum(sorted((v - w) ** 2 for w in left if w != v)[:count]) for v in left}
        by_hand.append(min(left, key=score.__getitem__))
        left.remove(by_hand[-1])
    assert by_hand[0] == 3.0
    assert [SEVEN[i] for i in select(squared, 1)] == sorted(by_hand)


def test_the_values_nearest_to_the_median_are_averaged():
    rows = [torch.tensor([v, -v]) for v in (0.0, 1.2, 3.0, 4.5, 5.0)]
    assert mean_near_median(rows, 3).tolist() == [pytest.approx(2.9), pytest.approx(-2.9)]
    even = [torch.tensor([v]) for v in (0.0, 2.0, 3.0, 9.0)]
    assert mean_near_median(even, 2).tolist() == [2.5]


def test_it_is_the_mean_of_the_middle_of_the_selected():
    chosen = sorted(SEVEN[i] for i in select(squared_distances([m.params for m in scalars(*SEVEN)]), 1))
    near = sorted(chosen, key=lambda v: abs(v - chosen[2]))[:3]
    assert combine(bulyan(), scalars(*SEVEN)).params.tolist() == [pytest.approx(sum(near) / 3)]


def test_with_nobody_to_fear_it_is_the_plain_mean():
    models = random_models(5)
    assert torch.allclose(combine(bulyan(0), models).params, combine(Mean(), models).params, atol=1e-6)


def test_one_value_far_away_in_one_entry_has_no_part():
    models = random_models(7, size=50)
    models[2].params[7] = 1e6
    assert combine(bulyan(), models).params.abs().max() < 10


def test_too_few_participants_are_refused():
    with pytest.raises(ConfigError, match=r"bulyan needs 4 f \+ 3 = 11 participants in a round and there are 10"):
        bulyan(2).check(10, 5)
    assert bulyan(2).fewest == 11
