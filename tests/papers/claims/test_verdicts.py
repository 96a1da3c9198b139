"""The rules of verdicts on differences made by hand: every branch."""

import pandas as pd
import pytest

from fedbench.results.statistics import NoValue, interval
from fedbench_papers.claims.verdicts import (
    AGAINST,
    FAILS,
    HOLDS,
    IDENTITY,
    PREMISE,
    TOO_FEW,
    TOWARDS,
    UNDECIDED,
    WEAKER,
    Verdict,
    alike,
    all_of,
    better,
    corrected_word,
    difference,
    identity_verdict,
    monotone,
    most_of,
    never_below,
    ordered,
    p_above,
    p_below,
    peaked,
    property_of,
    some_of,
)


def series(*means: float, spread: float = 0.0, clients: int = 4) -> pd.Series:
    """A number for every seed, spread evenly over its clients."""
    offsets = [spread * (i - (clients - 1) / 2) for i in range(clients)]
    index = pd.MultiIndex.from_product([range(len(means)), range(clients)], names=["seed", "client"])
    return pd.Series([mean + offset for mean in means for offset in offsets], index=index)


@pytest.mark.parametrize(
    ("means", "delta", "word"),
    [
        ((3.0, 3.2, 3.4), 1.0, HOLDS),  # 3.2 +- 0.50
        ((3.0, 3.2, 3.4), 3.6, HOLDS),  # the upper end is 3.70
        ((3.0, 3.2, 3.4), 3.8, WEAKER),
        ((-0.2, 0.0, 0.2), 0.6, FAILS),  # 0 +- 0.50
        ((-0.2, 0.0, 0.2), 0.4, UNDECIDED),
        ((-3.0, -3.2, -3.4), 1.0, FAILS),
        ((1.0, 5.0, 9.0), 1.0, TOWARDS),  # 5 +- 9.9, all of one sign, and clients agree
        ((-1.0, -5.0, -9.0), 1.0, AGAINST),  # the interval contains 0 and the margin
        ((2.0,), 1.0, UNDECIDED),
        ((2.0, 2.0), 1.0, UNDECIDED),
        ((2.0, 2.001), 1.0, UNDECIDED),  # an interval of two seeds would be above 0
    ],
)
def test_better(means, delta, word):
    assert better(series(*means), delta).word == word


def test_leaning_needs_the_clients_too():
    assert better(series(1.0, 5.0, 9.0, spread=30.0), 1.0).word == UNDECIDED
    assert better(series(0.0, 5.0, 9.0), 1.0).word == UNDECIDED


def test_equal_differences_have_the_p_of_the_sign_test():
    """Equal accuracies have no spread to test; three of them are a coin that fell three times on one side."""
    for seeds, word in ((3, TOWARDS), (5, TOWARDS), (6, HOLDS)):
        found = better(series(*[0.3] * seeds), 0.1)
        assert (found.word, found.p) == (word, 2.0**-seeds)
    assert better(series(0.1 + 0.2, 0.3, 0.3), 0.1).p == 1 / 8, "equal but for the last bit"
    assert better(series(0, 0, 0), 0.1).word == UNDECIDED
    assert alike(series(*[0.3] * 6), 0.5).word == HOLDS
    assert alike(series(*[0.3] * 5), 0.5).word == TOWARDS
    assert never_below(series(*[-3.0] * 5), 1.0).word == AGAINST
    assert never_below(series(*[-3.0] * 6), 1.0).word == FAILS


def test_p_is_one_sided():
    found = interval([1.0, 2.0, 4.0])  # mean 7/3, sd 1.5275: t = 2.6458 with 2 degrees of freedom
    assert p_above(found, 0.0) == pytest.approx(0.05904, abs=1e-5)
    assert p_below(found, 0.0) == pytest.approx(0.94096, abs=1e-5)
    assert p_above(interval([1.0, 2.0]), 0.0) == 1.0


def test_too_few_seeds_are_named_and_untested():
    for found in (better(series(1, 2), 1.0), alike(series(1, 2), 1.0), never_below(series(1, 2), 1.0)):
        assert (found.p, found.note) == (None, TOO_FEW)
    assert monotone([series(1, 1), series(2, 2), series(3, 3)], 1.0).word == UNDECIDED
    assert peaked(series(1, 1), series(5, 5.1), series(2, 2), 0.5).word == UNDECIDED
    assert property_of({0: True, 1: True}).word == UNDECIDED
    assert ordered(scores(a=[5, 5], b=[4, 4], c=[3, 3], d=[2, 2], e=[1, 1]), [*"abcde"], 0.8).word == UNDECIDED


def test_what_holds_before_the_correction_only_leans():
    assert [corrected_word(word, 0.2) for word in (HOLDS, WEAKER, FAILS, AGAINST)] == [TOWARDS, TOWARDS, FAILS, AGAINST]
    assert corrected_word(HOLDS, 0.04) == HOLDS
    assert corrected_word(HOLDS, None) == HOLDS
    assert [corrected_word(FAILS, 0.9, p) for p in (None, 0.04, 0.06)] == [FAILS, FAILS, AGAINST]
    assert corrected_word(HOLDS, 0.04, 1.0) == HOLDS


def test_what_fails_by_a_test_has_its_p():
    worse, same = series(-2.0, -2.2, -1.9), series(0.1, -0.1, 0.0)
    for found in (better(worse, 1.0), alike(worse, 1.0), never_below(worse, 0.5)):
        assert found.word == FAILS
        assert found.p_fails is not None
        assert found.p_fails < 0.05
    assert better(worse, 1.0).p_fails == pytest.approx(p_below(interval([-2.0, -2.2, -1.9]), 1.0))
    assert alike(same, 1.0).p_fails > 0.5
    flank = better(difference(same, same + 2), 1.0).p_fails
    assert peaked(same + 2, same, same - 2, 1.0).p_fails == pytest.approx(2 * flank), "of the lower of two flanks"
    assert property_of({0: False, 1: False, 2: False}).p_fails is None


def test_an_identity_needs_one_seed_and_allows_no_exception():
    assert identity_verdict({0: True}).word == IDENTITY
    assert identity_verdict({0: True, 1: True, 2: False}).word == FAILS
    assert identity_verdict({}).word == UNDECIDED


def test_the_interval_has_the_seed_as_its_unit():
    few, many = (better(series(1.0, 2.0, 3.0, clients=n), 1.0).estimate for n in (2, 200))
    assert few.low == many.low
    assert few.low == pytest.approx(2 - 2.484, abs=1e-3)  # 2.48 times a standard deviation of 1, three seeds


def test_the_opposite_is_noted():
    assert better(series(-3.0, -3.2, -3.4), 1.0).reverse
    assert not better(series(-0.2, 0.0, 0.2), 0.6).reverse
    assert better(series(-3.0, -3.2, -3.4), 1.0).p > 0.99


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ((0.1, 0.2, 0.3), HOLDS),
        ((3.0, 3.1, 3.2), FAILS),
        ((-3.0, -3.1, -3.2), FAILS),
        ((0.8, 1.0, 1.2), UNDECIDED),
        ((-0.9, 0.1, 0.9), TOWARDS),  # 0.03 +- 2.2: every seed is within the margin
        ((1.1, 5.0, 9.0), AGAINST),
        ((-1.1, -5.0, -9.0), AGAINST),
        ((-2.0, 0.0, 2.0), UNDECIDED),
        ((0.1, 0.1), UNDECIDED),
    ],
)
def test_alike(means, word):
    assert alike(series(*means), 1.0).word == word


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ((-0.5, -0.4, -0.3), HOLDS),
        ((5.0, 5.1, 5.2), HOLDS),
        ((-3.0, -3.1, -3.2), FAILS),
        ((-1.6, -1.0, -0.4), UNDECIDED),
        ((-0.9, 3.0, 9.0), TOWARDS),
        ((-1.1, -5.0, -9.0), AGAINST),
        ((-2.0, 0.0, 2.0), UNDECIDED),
        ((0.1, 0.2), UNDECIDED),
    ],
)
def test_never_below(means, word):
    assert never_below(series(*means), 1.0).word == word


def test_a_peak_needs_both_flanks():
    low, middle, high = series(1, 1.1, 1.2), series(5, 5.2, 5.1), series(2, 2.1, 2.3)
    assert peaked(low, middle, high, 0.5).word == HOLDS
    assert peaked(low, middle, high, 9.0).word == WEAKER
    assert peaked(low, high, middle, 0.5).word == FAILS
    assert peaked(low, middle, series(2, 9, 4), 0.5).word == UNDECIDED
    found = peaked(low, middle, high, 0.5)
    assert found.estimate.mean == pytest.approx(2.9667, abs=1e-3)  # the smaller of the flanks
    assert found.note == "lower flank holds; upper flank holds"


def test_the_flank_that_decides_is_the_one_that_is_told():
    """The upper one is lower, but wide: undecided."""
    low, middle, high = series(2.1, 2.2, 2.2), series(1.1, 1.0, 1.2), series(0, 2, 7)
    found = peaked(low, middle, high, 0.5)
    assert found.note == "lower flank does not hold; upper flank undecided"
    assert (found.word, found.estimate.mean) == (FAILS, pytest.approx(-3.2 / 3))
    assert found.estimate.high < 0.5


def test_monotone_is_pages_test():
    up = [series(1, 2, 3), series(2, 3, 4), series(3, 4, 5)]
    assert monotone(up, 1.0).word == HOLDS
    assert monotone(up, 1.0).p == pytest.approx(1 / 6**3)
    down = monotone(up[::-1], 1.0)
    assert (down.word, down.reverse) == (FAILS, True)
    mixed = [series(1, 3, 2), series(3, 1, 2), series(2, 2.5, 1)]
    assert monotone(mixed, 9.0).word == FAILS, "the last is surely not so far above the first"
    assert monotone(mixed, 0.1).word == UNDECIDED
    assert monotone([series(1.0), series(2.0), series(3.0)], 1.0).word == UNDECIDED, "one seed"


def scores(**values):
    """Scores over seeds by label; a number is that of three seeds."""
    return {label: series(*(own if isinstance(own, list) else [own] * 3)) for label, own in values.items()}


def test_order_of_means():
    published = ["a", "b", "c", "d", "e"]
    assert ordered(scores(a=5, b=4, c=3, d=2, e=1), published, 0.8).word == HOLDS
    assert ordered(scores(a=4, b=5, c=3, d=2, e=1), published, 0.8).word == HOLDS  # one swap of neighbours: 0.8
    assert ordered(scores(a=4, b=5, c=3, d=1, e=2), published, 0.8).word == UNDECIDED
    assert ordered(scores(a=1, b=2, c=3, d=4, e=5), published, 0.8).word == FAILS
    assert ordered(scores(a=5, b=4, c=3, d=2, e=1), published, 0.8).p == pytest.approx(1 / 120)
    assert ordered(scores(a=5, b=5, c=5), ["a", "b", "c"], 0.8).p is None, "no order"


def test_a_published_order_is_refuted_by_pairs_that_are_surely_the_other_way_round():
    """With ten pairs, two that are swapped leave tau at 0.6 at most."""
    published, noise = ["a", "b", "c", "d", "e"], [0.0, 0.01, 0.02, -0.01, 0.03, -0.02]
    surely = {label: [mean + (k + 1) * shift for shift in noise] for k, (label, mean) in enumerate(BEST_IS_THIRD)}
    found = ordered(scores(**surely), published, 0.8)
    assert found.word == FAILS
    assert found.note.endswith("surely the other way round: a < b, a < c")
    assert ordered(scores(**surely), published, 0.6).word == HOLDS
    perhaps = {**surely, "a": [mean + 40 * shift for mean, shift in zip(surely["a"], noise, strict=True)]}
    assert ordered(scores(**perhaps), published, 0.8).word == UNDECIDED


BEST_IS_THIRD = (("a", 3.5), ("b", 4.0), ("c", 3.8), ("d", 2.0), ("e", 1.0))


def test_properties():
    assert property_of({0: True, 1: True, 2: True}).word == HOLDS
    assert property_of({0: True, 1: False, 2: False}).word == FAILS
    assert property_of({0: True, 1: True, 2: False}).word == UNDECIDED
    assert property_of({0: True, 1: True, 2: False}, least=2).word == HOLDS
    assert property_of({}).word == UNDECIDED


def test_several_verdicts():
    holds, weaker, fails, opens = Verdict(HOLDS), Verdict(WEAKER), Verdict(FAILS), Verdict(UNDECIDED)
    reverse = Verdict(FAILS, reverse=True)
    assert [all_of(v) for v in ([holds, holds], [holds, weaker], [holds, opens], [opens, fails])] == [
        HOLDS,
        WEAKER,
        UNDECIDED,
        FAILS,
    ]
    towards, against = Verdict(TOWARDS), Verdict(AGAINST)
    assert all_of([holds, towards]) == TOWARDS
    assert all_of([opens, towards]) == UNDECIDED
    assert all_of([holds, opens, against]) == AGAINST
    assert all_of([Verdict(IDENTITY), Verdict(IDENTITY)]) == IDENTITY
    assert all_of([Verdict(IDENTITY), holds]) == HOLDS
    assert some_of([towards, fails, opens], 1) == TOWARDS
    assert some_of([towards, against], 1) == UNDECIDED
    assert most_of([holds, towards, opens], 2) == TOWARDS
    assert most_of([reverse, against, holds], 2) == AGAINST
    assert some_of([holds, fails, opens], 1) == HOLDS
    assert some_of([weaker, fails], 1) == WEAKER
    assert some_of([holds, reverse], 1) == FAILS, "reversed in none"
    assert some_of([opens, fails], 1) == UNDECIDED
    assert some_of([opens, fails], 2) == FAILS, "two can hold no more"
    assert most_of([holds, holds, opens], 2) == HOLDS
    assert most_of([reverse, reverse, holds], 2) == FAILS
    assert most_of([reverse, holds, opens], 2) == UNDECIDED


def test_a_premise_that_is_not_met_is_neither_for_nor_against():
    premise, holds, fails, opens = map(Verdict, (PREMISE, HOLDS, FAILS, UNDECIDED))
    assert not premise.holds
    assert not premise.fails
    assert corrected_word(PREMISE, None) == PREMISE
    assert all_of([premise, holds]) == all_of([premise, opens]) == PREMISE
    assert all_of([premise, fails]) == FAILS
    assert some_of([premise, premise], 1) == most_of([premise, premise], 2) == PREMISE
    assert some_of([premise, holds], 1) == HOLDS
    assert some_of([premise, fails], 1) == UNDECIDED
    assert most_of([premise, holds, holds], 2) == HOLDS


def test_what_only_one_side_has_is_left_out():
    assert len(difference(series(1, 2, 3), series(1, 2))) == 8
    with pytest.raises(NoValue):
        better(difference(series(1), series(1).iloc[:0]), 1.0)
