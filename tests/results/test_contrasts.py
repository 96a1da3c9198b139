"""Methods against each other, beside what the statistics libraries say."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.results.contrasts import (
    block_ranks,
    contrast,
    family,
    holm,
    p_of,
    resampled_interval,
    resolution,
    seeds_for,
    too_few,
)
from fedbench.results.statistics import interval
from fedbench.results.tables import FinalScores
from fedbench.tasks import load

METRIC = load("classification").primary


def records(levels: dict[str, list[list[float]]]) -> FinalScores:
    """Scores of methods whose clients have these test accuracies, seed by seed."""
    metrics, clients = {}, {}
    for method, seeds in levels.items():
        rows = [(s, 1, "after_agg", np.mean(own), min(own)) for s, own in enumerate(seeds)]
        metrics[method] = pd.DataFrame(rows, columns=["seed", "round", "point", "test_accuracy", "test_worst_tenth"])
        metrics[method]["val_accuracy"] = np.nan
        each = [(s, 1, c, "after_agg", value) for s, own in enumerate(seeds) for c, value in enumerate(own)]
        clients[method] = pd.DataFrame(each, columns=["seed", "round", "client", "point", "test_accuracy"])
    return FinalScores.of(METRIC, metrics, clients)


DATA = records(
    {
        "local": [[0.5, 0.6], [0.5, 0.7], [0.4, 0.6]],
        "good": [[0.7, 0.8], [0.6, 0.9], [0.7, 0.7]],
        "same": [[0.5, 0.7], [0.6, 0.5], [0.4, 0.6]],
    }
)


@pytest.mark.parametrize("seeds", [2, 3, 6, 10])
def test_what_seeds_can_tell_is_where_the_paired_t_test_turns(seeds):
    spread = np.linspace(-1, 1, seeds)
    spread /= np.std(spread, ddof=1)
    least = resolution(seeds)
    assert p_of(spread + 1.001 * least) < 0.05 < p_of(spread + 0.999 * least)


@pytest.mark.parametrize(
    ("seeds", "line"), [(1, "one seed cannot tell methods apart: use 10"), (2, "by 9.0 times"), (3, "by 2.5 times")]
)
def test_too_few_seeds_are_said_with_what_they_can_tell(seeds, line):
    assert line in str(too_few(seeds))
    assert "\n" not in str(too_few(seeds))


def test_enough_seeds_are_not_spoken_of():
    assert too_few(7) is None


def test_a_contrast_is_the_paired_t_test_over_seeds():
    found = contrast(DATA, "good", "local", "after_agg")
    theirs = stats.ttest_rel([0.75, 0.75, 0.7], [0.55, 0.6, 0.5])
    assert found.gain.mean == pytest.approx(np.mean([0.2, 0.15, 0.2]))
    assert found.p == pytest.approx(theirs.pvalue)
    low, high = theirs.confidence_interval(0.95)
    assert (found.gain.low, found.gain.high) == (pytest.approx(low), pytest.approx(high))
    assert found.better_off.mean == 1.0
    assert found.resampled[0] < found.gain.mean < found.resampled[1]


def test_a_family_is_corrected_for_its_size():
    good, same = family(DATA, [("good", "local"), ("same", "local")], "after_agg")
    assert good.p_holm == pytest.approx(2 * good.p)
    assert same.p_holm == pytest.approx(same.p)
    assert (good.sign, same.sign) == (1, 0)


def test_one_seed_decides_nothing():
    one = records({"local": [[0.5, 0.6]], "good": [[0.7, 0.8]]})
    (found,) = family(one, [("good", "local")], "after_agg")
    assert (found.p, found.p_holm, found.resampled, found.resolves, found.sign) == (None, None, None, None, 0)


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@pytest.mark.parametrize(("values", "p"), [([0.0, 0.0, 0.0], 1.0), ([0.1, 0.1], 0.0), ([0.3], None)])
def test_values_without_spread_decide_by_themselves(values, p):
    assert p_of(values) == p


def test_resampling_knows_clients_and_seeds_and_repeats_itself():
    draw = np.random.default_rng(1)
    seeds = [draw.normal(0.1, 0.2, 50) for _ in range(4)]
    found = resampled_interval(seeds)
    assert found == resampled_interval(seeds)
    assert found[0] < np.mean([own.mean() for own in seeds]) < found[1]
    equal = [np.full(5, 0.1), np.full(5, 0.1)]
    assert resampled_interval(equal) == pytest.approx((0.1, 0.1))
    assert resampled_interval(seeds[:1]) is None


def test_so_many_seeds_would_tell_a_difference():
    gain = interval([0.01, 0.05, 0.03, -0.01])
    count, spread = seeds_for(gain), np.std(gain.values, ddof=1)
    assert stats.t.ppf(0.975, count - 1) * spread / np.sqrt(count) < gain.mean
    assert stats.t.ppf(0.975, count - 2) * spread / np.sqrt(count - 1) >= gain.mean
    assert seeds_for(interval([0.1])) is None
    assert seeds_for(interval([1e-9, 1.0, -1.0])) is None


def test_ranks_are_means_over_seeds_and_ties_share():
    means = {"a": [0.5, 0.5], "b": [0.7, 0.4], "c": [0.5, 0.9]}
    scores = records({method: [[value] for value in values] for method, values in means.items()})
    assert block_ranks(scores, ["a", "b", "c"], "after_agg") == {"a": 2.25, "b": 2.0, "c": 1.75}
