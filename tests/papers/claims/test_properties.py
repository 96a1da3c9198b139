"""Properties that claims assert, on made-up records."""

import numpy as np
import pytest

from fedbench_papers.claims import properties
from fedbench_papers.claims.verdicts import FAILS, HOLDS, IDENTITY, PREMISE, TOO_FEW, UNDECIDED
from tests.papers.claims.made import SEEDS, frames, level


def test_the_best_option_is_among_some():
    arms = {"a": frames(agg=level(0.5, 0.5, 0.5)), "b": frames(agg=level(0.6, 0.4, 0.5))}
    assert properties.best_is_one_of(arms, "agg", ["a", "b"], ["b"], 2).word == HOLDS, "of equals the last"
    assert properties.best_is_one_of(arms, "agg", ["a", "b"], ["a"], 2).word == FAILS


def test_the_best_of_one_kind_needs_less():
    arms = {
        "o .1": frames(agg=level(0.5, 0.5, 0.5)),
        "o .001": frames(agg=level(0.6, 0.4, 0.6)),
        "f .5": frames(agg=level(0.7, 0.7, 0.7)),
        "f .9": frames(agg=level(0.1, 0.7, 0.1)),
    }
    ours, theirs = {"o .1": 0.1, "o .001": 0.001}, {"f .5": 0.5, "f .9": 0.9}
    found = properties.needs_less(arms, "agg", ours, theirs, 10)
    assert found.word == UNDECIDED
    assert found.note == "true in 2 of 3 seeds; best shares 0.001, 0.1, 0.001 against 0.5, 0.5, 0.5"
    assert properties.needs_less(arms, "agg", ours, theirs, 5).word == HOLDS


def test_the_head_takes_over_what_is_personal():
    def traces(sign: int) -> list[tuple]:
        return [
            (seed, t, client, f"personal_location/{layer}", 0.5 + sign * way * t / 100)
            for seed in SEEDS
            for t in range(1, 26)
            for client in (0, 1)
            for layer, way in (("head", 1), ("body.conv1", -1))
        ]

    def judge(sign: int):
        return properties.layers_part({"x": frames(agg=level(0.5), traces=traces(sign))}, "agg", "x")

    assert judge(1).word == HOLDS
    assert "last part of head 0.730" in judge(1).note  # the mean over rounds 21 to 25
    assert judge(-1).word == FAILS
    one = properties.layers_part({"x": frames(agg=level(0.5), traces=traces(1)[:1])}, "agg", "x")
    assert one.word == UNDECIDED, "of the first round alone"


def test_the_same_to_the_bit():
    one, other = frames(agg=level(0.5, 0.6)), frames([0], agg=level(0.5, 0.9))
    assert properties.same_numbers({"a": one, "b": other}, "agg", "a", "b").word == IDENTITY
    third = frames([0], agg=level(0.5 + 1e-15))
    assert properties.same_numbers({"a": one, "b": third}, "agg", "a", "b").word == FAILS


CLASSES = [[0, 1], [0, 1], [2, 3], [2, 3], [0, 2], [4, 5], [6, 7]]


def overlapping(value) -> dict:
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    rows = [(seed, 5, i, f"overlap/{j}", value(i, j)) for seed in SEEDS for i, j in pairs]
    return {"x": frames(agg=level(0.5), traces=rows)}


def test_overlap_goes_with_common_classes():
    shared = properties.common_classes(CLASSES)
    assert shared[0].tolist() == [2, 2, 0, 0, 1, 0, 0]
    judge = properties.alike_overlap
    assert judge(overlapping(lambda i, j: 0.5 + 0.1 * shared[i, j]), "agg", "x", CLASSES, [5, 15]).word == HOLDS
    assert judge(overlapping(lambda i, j: 0.5 - 0.1 * shared[i, j]), "agg", "x", CLASSES, [5, 15]).word == FAILS


def test_mantel_is_fair_where_nothing_goes_together():
    rng = np.random.default_rng(1)
    noise = [(m + m.T) / 2 for m in rng.random((40, 2, 8, 8)).reshape(80, 8, 8)]
    found = [properties.mantel(one, other, 99)[1] for one, other in zip(noise[::2], noise[1::2], strict=True)]
    assert 0.3 < np.mean(found) < 0.7
    assert properties.mantel(noise[0], noise[0], 99) == (pytest.approx(1), pytest.approx(0.01, abs=0.02))


def test_related_classes_overlap():
    judge = properties.related_overlap
    arms = overlapping(lambda i, j: 0.9 if {i, j} == {5, 6} else 0.5 + 0.01 * (i + j))
    assert judge(arms, "agg", "x", CLASSES, [5, 15], [5, 6]).word == HOLDS
    assert judge(arms, "agg", "x", CLASSES, [5, 15], [0, 2]).word == FAILS


def trusting(lambdas: dict[int, list[float]], public: float = 2.0) -> dict:
    """The same in all three seeds."""
    rows = [(t, c, "lambda", v) for c, values in lambdas.items() for t, v in enumerate(values, 2)]
    rows += [(t, c, "loss_private", 1.0) for c, values in lambdas.items() for t in range(2, len(values) + 2)]
    rows += [(t, c, "loss_public", public) for c, values in lambdas.items() for t in range(2, len(values) + 2)]
    return {"x": frames(agg=level(0.5), traces=[(seed, *row) for seed in SEEDS for row in rows])}


def test_little_trust_is_of_half_the_clients():
    judge = properties.little_trust
    assert judge(trusting({0: [0.5, 0.05], 1: [0.5, 0.5]}), "agg", "x").word == HOLDS
    assert judge(trusting({0: [0.5, 0.2], 1: [0.5, 0.5]}), "agg", "x").word == FAILS
    assert judge(trusting({0: [0.5, 0.05], 1: [0.5, 0.5]}, public=0.5), "agg", "x").word == FAILS


def test_one_is_shut_out_and_the_others_are_not():
    arms = trusting({0: [0.3, 0.05, 0.02], 1: [0.5, 0.4, 0.3], 2: [0.6, 0.5, 0.2]})
    assert properties.shut_out(arms, "agg", "x").note == "true in 3 of 3 seeds; from round 3, 3, 3"
    assert properties.shut_out(arms, "agg", "x", by=2).word == FAILS
    assert properties.others_trust(arms, "agg", "x").word == HOLDS
    later = trusting({0: [0.3, 0.05, 0.3], 1: [0.5, 0.4, 0.3]})
    assert properties.shut_out(later, "agg", "x").word == FAILS, "not to the end"
    assert properties.others_trust(trusting({0: [0.0, 0.0], 1: [0.5, 0.01]}), "agg", "x").word == FAILS


def test_bytes():
    arms = {"few": frames(agg=level(0.5), up=20.0), "many": frames(agg=level(0.5), up=4000.0)}
    assert properties.fewer_bytes(arms, "agg", ["few"], "many", 100).word == IDENTITY
    found = properties.fewer_bytes(arms, "agg", ["few"], "many", 200)
    assert found.word == FAILS, "more than the factor"
    assert "few: 10 bytes against 2,000, factor 200" in found.note


def test_bytes_of_two_arms():
    arms = {"masked": frames(agg=level(0.5), up=4125.0), "plain": frames(agg=level(0.5), up=4000.0)}
    found = properties.bytes_between(arms, "agg", "masked", "plain", [1.03, 1.035])
    assert found.word == IDENTITY
    assert "factor 1.0312" in found.note
    assert properties.bytes_between(arms, "agg", "masked", "plain", [1.032, 1.1]).word == FAILS
    assert properties.bytes_between(arms, "agg", "masked", "plain", [1.0, 1.03]).word == FAILS


def test_gradients_below_the_bound():
    values = {
        "lambda": (0.5, 0.5),
        "loss_private": (1.0, 1.0),
        "loss_public": (2.0, 2.0),
        "variance_private": (3.0, 6.0),
        "variance_public": (5.0, 1.0),
        "label_drift": (0.01, 0.02),
    }
    bound = 4 * 5 * 2 / 8 + 6 / (10 * 60) + np.e**2 * 5 / (10 * 50) + 0.04  # L = 5, T = 8

    def judge(mean: float):
        squares = {"gradient_norm_squared": (mean, mean)}
        rows = [
            (seed, t, client, name, both[t - 2])
            for seed in SEEDS
            for t in (2, 3)
            for client in (0, 1)
            for name, both in (values | squares).items()
        ]
        arms = {"x": frames(agg=level(0.5, 0.5, 0.5), traces=rows)}
        return properties.bounded_gradients(arms, "agg", "x", rate=0.1, images=60, public=50, steps=4)

    assert judge(0.999 * bound).word == HOLDS
    assert judge(1.001 * bound).word == FAILS
    assert "median client: 1 (largest 1)" in judge(bound).note


def steep(squares: dict[int, float], seeds=SEEDS):
    """Two rounds of two clients whose loss is 1 at a lambda of 0; squares: of client 0's gradient, by seed."""
    known = {"lambda": 0.0, "loss_private": 1.0, "loss_public": 0.0, "variance_private": 0.0, "variance_public": 0.0}
    rows = [
        (seed, t, client, name, value)
        for seed in seeds
        for t in (2, 3)
        for client in (0, 1)
        for name, value in {**known, "label_drift": 0.0, "gradient_norm_squared": squares[seed] * (client == 0)}.items()
    ]
    arms = {"x": frames(seeds, agg=level(*[0.5] * len(seeds)), traces=rows)}
    return properties.bounded_gradients(arms, "agg", "x", rate=0.1, images=60, public=50, steps=8)


def test_losses_that_are_too_rough_for_the_step_are_no_evidence_against_the_bound():
    """The bound is 2 / (0.1 * 16) = 1.25; losses smooth enough allow 1 / (0.1 (1 + e)) = 2.69."""
    most = 1 / (0.1 * (1 + np.e))
    assert steep(dict.fromkeys(SEEDS, 1.2)).word == HOLDS
    assert steep(dict.fromkeys(SEEDS, 1.3)).word == FAILS, "smooth enough, and above the bound"
    found = steep(dict.fromkeys(SEEDS, 1.001 * most))
    assert found.word == PREMISE
    assert "without 1 of 2, 1 of 2, 1 of 2 clients, whose losses are less smooth than the rate asks for" in found.note
    assert steep(dict.fromkeys(SEEDS, 0.999 * most)).word == FAILS
    assert steep({0: 1.2, 1: 1.2, 2: 5.0}).word == PREMISE, "in one seed"
    assert steep({0: 1.3, 1: 1.3, 2: 5.0}).word == FAILS, "the other two speak against it"
    assert steep({0: 5.0, 1: 5.0}, (0, 1)).note.startswith(TOO_FEW)


def test_a_larger_lambda_allows_a_larger_gradient():
    one, three = (properties.rough_losses(*map(np.array, (5.0, lam, 1.0)), 0.1) for lam in (0.5, 1.0))
    assert (bool(one), bool(three)) == (True, False)


def test_points_that_change_the_order():
    def judge(agg: float, fit: float, seeds: int = 3):
        others = {"agg": level(*[0.7] * seeds), "fit": level(*[0.7] * seeds)}
        arms = {"g": frames(agg=level(*[agg] * seeds), fit=level(*[fit] * seeds)), "l": frames(**others)}
        return properties.points_differ(arms, "agg", ["g", "l"], "g", "l")

    assert judge(0.2, 0.8).word == HOLDS
    assert judge(0.2, 0.25).word == FAILS
    assert judge(0.2, 0.8, seeds=2).word == UNDECIDED


def test_two_estimators():
    def judge(*seconds: float, seeds: int = 3):
        """Of two methods with the same mean, by their accuracy on the class that stands last, which varies a little."""
        arms = {
            name: frames(
                agg=level(0.7 + i / 1000, *[0.7] * (seeds - 1)),
                sizes=(200, 200),
                classes={seed: [[1.4 - s - seed * 1e-4, s + seed * 1e-4]] * 2 for seed in range(seeds)},
            )
            for i, (name, s) in enumerate(zip("ab", seconds, strict=True))
        }
        return properties.estimators_differ(arms, "agg", ["a", "b"], 32)

    assert judge(0.74, 0.74).word == HOLDS, "0.4 points"
    assert judge(0.74, 0.74, seeds=2).note.startswith(TOO_FEW)
    assert judge(0.72, 0.69).word == HOLDS, "they swap"
    assert judge(0.72, 0.72).word == UNDECIDED
    assert judge(0.7, 0.7).word == FAILS
    assert judge(0.72, 0.72).note.startswith("signed mean +0.22; largest 0.22; neighbours swap in 0 seeds; shuffled 0.")


def test_a_shuffled_order_moves_the_mean_over_batches():
    many, whole = (frames(agg={0: [0.7] * 2}, sizes=(n, n)) for n in (200, 128))
    one = 100 * np.sqrt(0.21 * 8 * (192 / 199)) * (1 / 8 - 1 / 32) / 7 * np.sqrt(2 / np.pi)  # of a normal one
    assert properties.shuffled_gap(many, "agg", 32) == pytest.approx(one / np.sqrt(2), rel=0.1)
    assert properties.shuffled_gap(whole, "agg", 32) == pytest.approx(0)


def test_plain_and_pooled_means():
    def of(*clients: float):
        return frames(agg=dict.fromkeys(SEEDS, clients), sizes=(10, 90))

    assert properties.means_differ({"a": of(1.0, 0.0), "b": of(0.3, 0.5)}, "agg", ["a", "b"]).word == HOLDS
    assert properties.means_differ({"a": of(1.0, 0.0), "b": of(0.9, 0.0)}, "agg", ["a", "b"]).word == FAILS
