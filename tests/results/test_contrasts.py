"""Methods against each other, beside what the statistics libraries say."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fedbench.results.contrasts import (
    Contrast,
    block_ranks,
    by_rotations,
    contrast,
    family,
    holm,
    p_of,
    power,
    resampled_intervals,
    resolution,
    seeds_for,
    stricter,
    too_few,
)
from fedbench.results.outcomes import MetricOutcomes
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
        metrics[method]["clients"] = [len(own) for own in seeds]
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


def noisy(gains: dict[str, float], seeds: int, spread: float = 0.02) -> FinalScores:
    """Methods that are this much better than local training, with noise that local training adds to all."""
    draw = np.random.default_rng(5)
    local = draw.normal(0.5, spread, seeds)
    means = {name: 0.5 + gain + draw.normal(0, spread, seeds) for name, gain in gains.items()}
    return records({"local": [[v] for v in local], **{name: [[v] for v in own] for name, own in means.items()}})


@pytest.mark.parametrize("seeds", [3, 6, 10])
def test_what_seeds_can_tell_is_where_the_paired_t_test_turns(seeds):
    spread = np.linspace(-1, 1, seeds)
    spread /= np.std(spread, ddof=1)
    least = resolution(seeds)
    assert p_of(spread + 1.001 * least) < 0.05 < p_of(spread + 0.999 * least)


@pytest.mark.parametrize(
    ("seeds", "line"),
    [
        (1, "one seed cannot tell methods apart: use 10"),
        (2, "two seeds cannot tell methods apart: use 10"),
        (3, "by 2.5 times"),
    ],
)
def test_too_few_seeds_are_said_with_what_they_can_tell(seeds, line):
    assert line in str(too_few(seeds))
    assert "\n" not in str(too_few(seeds))


def test_enough_seeds_are_not_spoken_of():
    assert too_few(7) is None


def test_a_contrast_is_the_paired_t_test_over_seeds():
    found = contrast(DATA, "good", "local", "after_agg")
    theirs = stats.ttest_rel([0.75, 0.75, 0.7], [0.55, 0.6, 0.5])
    assert found.interval.mean == pytest.approx(np.mean([0.2, 0.15, 0.2]))
    assert found.p == pytest.approx(theirs.pvalue)
    low, high = theirs.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == (pytest.approx(low), pytest.approx(high))
    assert found.better_off.mean == 1.0
    assert found.resampled[0] < found.interval.mean < found.resampled[1]


def test_a_family_over_the_same_seeds_is_corrected_less_than_by_holm_and_not_below_p():
    gains = {"a": 0.03, "b": 0.02, "c": 0.01, "d": 0.0, "e": 0.0}
    found = family(noisy(gains, 8), [(name, "local") for name in gains], "after_agg")
    strict = holm([one.p for one in found])
    assert all(one.p <= one.p_adjusted for one in found)
    assert sum(one.p_adjusted for one in found) < sum(strict)
    assert {one.comparisons for one in found} == {5}


def test_the_best_against_all_others_is_corrected_like_all_others_against_it():
    gains = {"a": 0.03, "b": 0.02, "c": 0.01}
    scores, others = noisy(gains, 6), ["local", "b", "c"]
    ahead = family(scores, [("a", name) for name in others], "after_agg")
    behind = family(scores, [(name, "a") for name in others], "after_agg")
    assert [one.p_adjusted for one in ahead] == [one.p_adjusted for one in behind]
    assert [one.simultaneous for one in ahead] == [one.simultaneous for one in behind]


def test_a_family_over_different_seeds_is_corrected_by_holm():
    levels = {"local": [[0.5], [0.52], [0.49], [0.51]], "good": [[0.7], [0.75], [0.71], [0.7]]}
    scores = records({**levels, "same": [[0.5], [0.53], [0.48]]})
    good, same = family(scores, [("good", "local"), ("same", "local")], "after_agg")
    assert (good.seeds, same.seeds) == ((0, 1, 2, 3), (0, 1, 2))
    assert [good.p_adjusted, same.p_adjusted] == pytest.approx(holm([good.p, same.p]))
    assert good.simultaneous == pytest.approx(interval(good.interval.values, 0.975).half)


def test_one_contrast_alone_keeps_its_p():
    (found,) = family(DATA, [("good", "local")], "after_agg")
    assert found.p_adjusted == found.p
    assert found.sign == 1


def test_every_process_adjusts_p_to_the_same_bits():
    code = """
from tests.results.test_contrasts import family, noisy
found = family(noisy({"a": 0.03, "b": 0.02, "c": 0.01}, 7), [(name, "local") for name in "abc"], "after_agg")
print([one.p_adjusted.hex() + one.simultaneous.hex() for one in found])
"""
    said = {subprocess.check_output([sys.executable, "-c", code], env=process_environment(n)) for n in (1, 2)}
    assert len(said) == 1


def process_environment(threads: int) -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(threads)}


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(seeds):
    few = records({"local": [[0.5, 0.6]] * seeds, "good": [[0.7, 0.8]] * seeds, "same": [[0.5, 0.6]] * seeds})
    found, _ = family(few, [("good", "local"), ("same", "local")], "after_agg", margin=0.5)
    assert (found.p, found.p_adjusted, found.relation, found.seeds_needed) == (None, None, "open", None)


def test_differences_that_coincide_but_for_rounding_are_the_same():
    """0.3 - 0.2 and 0.9 - 0.8 are different floats."""
    scores = records({"local": [[0.2], [0.8], [0.5]], "good": [[0.3], [0.9], [0.6]], "fine": [[0.3], [0.8], [0.5]]})
    good, fine = family(scores, [("good", "local"), ("fine", "local")], "after_agg")
    assert good.interval.values == (0.1, 0.1, 0.1)
    assert (good.p, good.sign) == (0.25, 0)
    assert good.p_adjusted == pytest.approx(0.34, abs=0.01)
    assert fine.p_adjusted >= fine.p == pytest.approx(stats.ttest_1samp([0.1, 0, 0], 0).pvalue)


def test_who_differs_by_less_than_the_margin_is_equal():
    gains = {"good": 0.2, "near": 0.0}
    scores, asked = noisy(gains, 12, spread=0.005), [(name, "local") for name in gains]
    for margin, relation in ((None, "open"), (0.0005, "open"), (0.02, "equal")):
        good, near = family(scores, asked, "after_agg", margin)
        assert (good.relation, near.relation) == ("better", relation)
    assert near.simultaneous > near.interval.half


def test_a_pair_in_two_families_has_the_stricter_correction():
    gain = interval([0.1, 0.2, 0.3])
    one = Contrast(
        "a", "b", gain, resampled=None, p=0.02, better_off=gain, p_adjusted=0.04, simultaneous=0.3, comparisons=2
    )
    other = Contrast(
        "b", "a", gain, resampled=None, p=0.02, better_off=gain, p_adjusted=0.06, simultaneous=0.2, comparisons=5
    )
    for found in (stricter(one, other), stricter(other, one)):
        assert (found.p_adjusted, found.simultaneous, found.comparisons) == (0.06, 0.3, 5)


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    values = np.random.default_rng(0).random(12) / 8
    assert holm(values.tolist()) == multipletests(values, method="holm")[1].tolist()


@pytest.mark.parametrize(("values", "p"), [([0.0, 0.0, 0.0], 1.0), ([0.1] * 6, 2**-5), ([0.1, 0.2], None)])
def test_values_without_spread_have_the_p_of_their_signs(values, p):
    assert p_of(values) == p


def test_resampling_knows_clients_and_seeds_and_repeats_itself():
    draw = np.random.default_rng(1)
    seeds = [draw.normal(0.1, 0.2, 50) for _ in range(4)]
    (found,) = resampled_intervals([seeds])
    assert resampled_intervals([seeds]) == [found]
    assert found[0] < np.mean([own.mean() for own in seeds]) < found[1]
    equal = [np.full(5, 0.1), np.full(5, 0.1)]
    even, one = resampled_intervals([equal, seeds[:1]])
    assert even == pytest.approx((0.1, 0.1))
    assert one is None


def test_so_many_seeds_tell_a_difference_in_four_of_five_studies():
    gain = interval([0.01, 0.05, 0.03, -0.01])
    draw, effect = np.random.default_rng(2), gain.mean / gain.sd
    for comparisons in (1, 11):
        count = seeds_for(gain, comparisons)
        p = stats.ttest_1samp(draw.normal(effect, 1, (20_000, count)), 0, axis=1).pvalue
        assert (p < 0.05 / comparisons).mean() == pytest.approx(power(effect, count, 0.05 / comparisons), abs=0.01)
        assert power(effect, count - 1, 0.05 / comparisons) < 0.8 <= power(effect, count, 0.05 / comparisons)
    assert seeds_for(interval([100.0, 100.1, 99.9]), 1000) == 3
    assert seeds_for(interval([1e-9, 1.0, -1.0])) is None


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.2], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]])
def test_without_a_spread_nobody_knows_how_many_seeds_are_needed(values):
    assert seeds_for(interval(values)) is None


def test_ranks_are_means_over_seeds_and_ties_share():
    means = {"a": [0.5, 0.5], "b": [0.7, 0.4], "c": [0.5, 0.9]}
    scores = records({method: [[value] for value in values] for method, values in means.items()})
    assert block_ranks(scores, ["a", "b", "c"], "after_agg") == {"a": 2.25, "b": 2.0, "c": 1.75}


def test_ranks_are_shared_where_scores_differ_by_rounding_errors_only():
    scores = records({"a": [[0.1 + 0.2], [0.4]], "b": [[0.3], [0.4]]})
    assert block_ranks(scores, ["a", "b"], "after_agg") == {"a": 1.5, "b": 1.5}


@pytest.mark.parametrize(("effect", "seeds", "level"), [(0.5, 10, 0.05), (1.2, 5, 0.05 / 29), (2.0, 3, 0.01)])
def test_power_is_that_of_the_noncentral_t(effect: float, seeds: int, level: float) -> None:
    expected = stats.nct.sf(stats.t.isf(level / 2, seeds - 1), seeds - 1, effect * np.sqrt(seeds))
    assert power(effect, seeds, level) == pytest.approx(float(expected), rel=1e-9)


def with_outcomes(spread: float, rows: int = 20, seeds: int = 8) -> FinalScores:
    """A method that is better than local training on some rows and worse on others, the same ones in every seed."""
    draw, both = np.random.default_rng(2), {"local": [], "good": []}
    bonus = 0.5 + draw.normal(0, spread, rows)
    for _ in range(seeds):
        local = draw.normal(0, 0.1, rows)
        both["local"].append(local)
        both["good"].append(local + bonus + draw.normal(0, 0.3))
    plain = records({name: [[own.mean()] for own in seeds_of] for name, seeds_of in both.items()})
    place = np.zeros(rows, int), np.arange(rows), np.arange(rows)
    kept = {
        name: {(seed, "after_agg"): MetricOutcomes(*place, own) for seed, own in enumerate(seeds_of)}
        for name, seeds_of in both.items()
    }
    return FinalScores(plain.metric, plain.rows, plain.clients, kept)


def test_rows_that_differ_alike_in_all_seeds_widen_intervals_and_p():
    same, apart = (contrast(with_outcomes(spread), "good", "local", "after_agg") for spread in (0.0, 3.0))
    alone = interval(apart.interval.values)
    assert same.interval.half == pytest.approx(interval(same.interval.values).half, rel=1e-6)
    assert apart.interval.half > 2 * alone.half
    assert apart.p > p_of(apart.interval.values)
    assert apart.relation_alone == "open"
    assert contrast(DATA, "good", "local", "after_agg").interval.samples is None


def test_no_number_of_seeds_tells_what_rows_leave_open():
    (apart,) = family(with_outcomes(3.0), [("good", "local")], "after_agg")
    assert (apart.seeds_needed, apart.needs_samples) == (None, True)
    (same,) = family(with_outcomes(0.0), [("good", "local")], "after_agg")
    assert same.seeds_needed is not None
    assert not same.needs_samples


def test_the_error_of_a_family_is_that_of_seeds_and_rows():
    (found,) = family(with_outcomes(3.0), [("good", "local")], "after_agg")
    t = stats.t.ppf(0.975, len(found.interval.values) - 1)
    error = np.sqrt(
        np.var(found.interval.values, ddof=1) / len(found.interval.values) + found.interval.samples.variance
    )
    (one,) = by_rotations([found])
    assert one.simultaneous == pytest.approx(t * error, rel=0.05)
    assert one.p_adjusted >= found.p
