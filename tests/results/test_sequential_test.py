"""Sequential tests of methods with known scores: what is told after which look, and who gets further seeds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedbench.results.plan import Entry, Plan
from fedbench.results.rotations import RotatedScores
from fedbench.results.sample_error import Deviations
from fedbench.results.sequential_test import (
    LEVEL,
    LOOKS,
    UNKNOWN,
    WEIGHTS,
    Rules,
    SequentialTest,
    judge,
    lacks_score,
    no_seeds_decide,
    scores_by_seed,
)
from fedbench.results.tables import LAST
from fedbench.tasks import load

FAST = 2000


def scores(means: dict[str, float], seeds: int = 40, spread: float = 1.2, number: int = 0) -> dict[str, list[float]]:
    """Of methods with these means; the samples' means are the true ones at no look in particular."""
    draw = np.random.default_rng(number)
    shared = draw.normal(0, 1.5, seeds)
    return {method: [*(mean + shared + draw.normal(0, spread, seeds))] for method, mean in means.items()}


def cut(full: dict[str, list[float]], seeds: dict[str, int] | int) -> dict[str, list[float]]:
    return {method: own[: seeds if isinstance(seeds, int) else seeds.get(method, 0)] for method, own in full.items()}


def run(full: dict[str, list[float]], rules: Rules, **more) -> SequentialTest:
    return judge(full, rules, rotations=FAST, **more)


def played(
    full: dict[str, list[float]], rules: Rules, known: dict[str, list[float]] | None = None
) -> list[SequentialTest]:
    """The states of a sequential test in which every method gets the seeds that it needs, look by look."""
    known = known or {method: [] for method in full}
    states = [run(known, rules)]
    while not states[-1].is_over:
        for method, count in states[-1].needs.items():
            known[method] = full[method][: max(count, len(known[method]))]
        states.append(run(known, rules))
    return states


MIXED = {"local": 90.0, "good": 93.0, "best": 96.0, "same": 90.1, "bad": 85.0}
RULES = Rules(1.0, 40)


def test_the_looks_spend_at_most_the_level():
    assert len(LOOKS) == len(WEIGHTS)
    assert sum(level for _, level in Rules(1.0, 90).looks()) <= LEVEL
    assert [n for n, _ in Rules(1.0, 30).looks()] == [5, 8, 12, 18, 27]


def test_nothing_is_said_before_the_first_look():
    test = run(cut(scores(MIXED), 4), RULES)
    assert (test.look, test.ending, test.over_local, test.out) == (0, None, {}, {})
    assert test.needs == dict.fromkeys(MIXED, 5)
    assert set(test.undecided.values()) == {UNKNOWN}


def test_a_race_tells_the_winner_and_all_from_local():
    test = run(scores(MIXED), RULES)
    assert (test.ending, test.leader, test.candidates) == ("winner", "best", ["best"])
    assert set(test.out) == {"local", "good", "same", "bad"}
    assert {method: told.relation for method, told in test.over_local.items() if method != "same"} == {
        "good": "better",
        "best": "better",
        "bad": "worse",
    }
    assert all(told.interval.low > 0 for method, told in test.over_local.items() if told.relation == "better")
    assert all(bound.low > 0 for _, bound in test.out.values())


def test_statements_depend_on_the_first_seeds_of_each_look_only():
    full = scores(MIXED)
    states = played(full, RULES)
    assert states[-1] == run(full, RULES)
    assert all(max(state.seeds.values(), default=0) == state.look for state in states)


@pytest.mark.parametrize("ahead", [1, 3, 7])
def test_seeds_in_advance_do_not_change_a_state(ahead):
    full, known = scores(MIXED), {method: [] for method in MIXED}
    for state in played(full, RULES)[:-1]:
        known = {m: full[m][: max(len(known[m]), state.seeds.get(m, 0))] for m in known}
        early = {m: full[m][: len(own) + ahead * (m == "bad")] for m, own in known.items()}
        assert run(early, RULES) == run(known, RULES) == state


def test_an_interrupted_race_ends_as_if_it_had_not_been():
    full = scores(MIXED)
    states = played(full, RULES)
    for state in states:
        assert run(cut(full, state.seeds), RULES) == state
        assert played(full, RULES, cut(full, state.seeds))[-1] == states[-1]


@pytest.mark.parametrize("number", range(4))
def test_the_order_of_methods_decides_nothing(number):
    full = scores({"local": 90.0, "a": 90.5, "b": 91.5, "c": 92.0, "d": 92.2}, number=number)
    test, turned = run(full, RULES), run(dict(reversed(full.items())), RULES)
    assert (test.ending, test.look, test.seeds, test.needs) == (turned.ending, turned.look, turned.seeds, turned.needs)
    assert (test.candidates, {*test.out}, {*test.given_up}) == (turned.candidates, {*turned.out}, {*turned.given_up})
    assert {m: told.relation for m, told in test.over_local.items()} == {
        m: told.relation for m, told in turned.over_local.items()
    }


@pytest.mark.parametrize("number", range(6))
def test_a_raised_maximum_keeps_what_was_told(number):
    full = scores({"local": 90.0, "a": 90.6, "b": 91.2, "c": 92.0, "d": 92.2, "e": 89.9}, seeds=90, number=number)
    before, after = run(full, RULES), run(full, replace(RULES, most=90))
    assert {m: told.relation for m, told in before.over_local.items()}.items() <= {
        m: told.relation for m, told in after.over_local.items()
    }.items()
    assert before.out.keys() <= after.out.keys()
    assert before.ending != "winner" or after.ending == "winner"


def test_a_raised_maximum_asks_for_more_seeds_of_what_is_open():
    full = scores({"local": 90.0, "near": 90.7}, number=3)
    states = played(full, replace(RULES, most=8))
    assert states[-1].is_over
    assert states[-1].undecided
    assert run(cut(full, states[-1].seeds), RULES).needs == {"local": 12, "near": 12}


def test_failed_methods_take_no_part():
    full = scores(MIXED)
    full["best"] = full["best"][:3]
    test = run(full, RULES, failed=["best"])
    assert (test.ending, test.leader) == ("winner", "good")
    assert "best" not in {*test.candidates, *test.over_local, *test.out, *test.seeds}
    assert run(full, RULES).needs == dict.fromkeys(MIXED, 5)
    del full["best"]
    assert test == run(full, RULES)


def test_methods_within_the_margin_of_each_other_tie():
    test = run(scores({"local": 85.0, "a": 90.0, "b": 90.1, "c": 90.0}, spread=0.5), RULES)
    assert (test.ending, {*test.candidates}, {*test.out}) == ("tie", {"a", "b", "c"}, {"local"})
    assert all(-1 < bound.low <= 0 <= bound.high < 1 for bound in test.behind.values())


def test_a_leader_may_be_best_or_within_the_margin_of_the_best():
    full = scores({"local": 85.0, "a": 90.0, "b": 89.75}, spread=1.2, number=1)
    test = run(full, RULES)
    assert (test.ending, test.candidates) == ("within", ["a", "b"])
    assert test.behind["b"].high < 1
    assert test.behind["b"].low <= -1


def test_a_question_that_the_maximum_does_not_answer_stays_open():
    full = scores({"local": 90.0, "a": 90.4, "b": 90.2}, spread=3.0)
    test = run(full, RULES)
    assert (test.ending, test.over_local, test.is_over) == ("open", {}, True)
    assert test.look < 40
    assert {*test.given_up} == {"a", "b"}
    assert all(chance < 0.2 for chance in test.given_up.values())


def test_the_most_that_a_candidate_may_be_ahead_is_the_same_for_all():
    test = run(scores({"local": 90.0, "a": 90.4, "b": 90.2, "c": 90.3}, spread=3.0), RULES)
    assert [*test.behind] == test.candidates[1:]
    assert len({bound.high for bound in test.behind.values()}) == 1
    assert all(bound.low <= min(0, bound.mean) for bound in test.behind.values())


def test_contrasts_given_up_get_no_more_seeds():
    full = scores({"local": 90.0, "a": 94.0, "b": 93.9, "far": 90.7}, number=5)
    full["far"] = [*np.array(full["local"]) + 0.7 + np.tile([6.0, -6.0], 20)]
    states = played(full, RULES)
    later = [state for state in states if "far" in state.given_up]
    assert later
    assert all("far" not in state.needs for state in later if "far" in state.out)
    assert later[-1].seeds["far"] < 40


def test_contrasts_given_up_keep_their_share_of_the_level():
    full = scores({"local": 90.0, "a": 91.2, "far": 90.6}, spread=1.3, number=3)
    full["far"] = [*np.array(full["local"]) + 0.7 + np.tile([6.0, -6.0], 20)]
    test = run(cut(full, 18), RULES)
    assert ({*test.given_up}, {*test.undecided}) == ({"far"}, {"a", "far"})
    (level,) = [level for n, level in RULES.looks() if n == 18]
    alone = RotatedScores(np.array([full["local"][:18], full["a"][:18]]).T, FAST)
    bound = test.undecided["a"]
    assert (bound.high - bound.mean) / bound.error == pytest.approx(alone.critical([1], 0, level / 2), rel=1e-3)


def test_local_training_runs_while_a_contrast_is_open_or_while_it_may_be_the_best():
    for number in range(4):
        full = scores({"local": 90.0, "a": 93.0, "b": 93.2, "c": 90.6}, number=number)
        for state in played(full, RULES):
            wanted = set(state.undecided) - set(state.given_up)
            may_be_best = state.ending is None and "local" in state.candidates
            assert state.is_over or ("local" in state.needs) == bool(wanted or may_be_best)


def test_a_verdict_that_does_not_hold_without_an_outlying_seed_is_withheld():
    draw = np.random.default_rng(60)
    local, gaps = draw.normal(90, 1.5, 40), draw.normal(0.5, 0.6, 40)
    gaps[2] = 3.0
    full, rules = {"local": [*local], "other": [*(local + gaps)]}, Rules(0.0, 40)
    test = run(cut(full, 27), rules)
    assert test.withheld["local", "other"] == "better"
    assert test.undecided["other"].low < 0
    assert test.over_local == {}
    assert test.needs == {"local": 40, "other": 40}
    ordinary = run(cut(full | {"other": [*(local + np.where(gaps == 3, 1.5, gaps))]}, 27), rules)
    assert not any(question == "local" for question, _ in ordinary.withheld)


def test_who_is_behind_only_by_an_outlying_seed_may_still_be_the_best():
    draw = np.random.default_rng(5)
    shared = draw.normal(0, 1.5, 40)
    local, other = 90 + shared + draw.normal(0, 0.8, 40), 90.9 + shared + draw.normal(0, 0.8, 40)
    local[4] -= 5
    full = {"local": [*local], "other": [*other]}
    test = run(cut(full, 27), RULES)
    assert test.withheld == {("best", "local"): "behind other"}
    assert test.candidates == ["other", "local"]
    assert test.out == {}


def test_a_margin_of_zero_tells_no_equality():
    full = scores({"local": 90.0, "a": 90.0, "b": 95.0})
    test = run(full, Rules(0.0, 40))
    assert {told.relation for told in test.over_local.values()} == {"better"}
    assert (test.ending, test.leader) == ("winner", "b")
    tied = run(scores({"local": 90.0, "a": 95.0, "b": 95.0}), Rules(0.0, 40))
    assert tied.ending == "open"


def test_scores_that_are_equal_to_the_bit_are_equal_within_any_margin():
    full = scores({"local": 90.0, "a": 95.0})
    full |= {"twin": [*full["a"]], "sibling": [score + 2.0**-44 for score in full["local"]]}
    test = run(full, RULES)
    assert test.over_local["sibling"].relation == "equal"
    assert test.over_local["sibling"].interval.mean == 0
    assert (test.ending, {*test.candidates}) == ("tie", {"a", "twin"})
    strict = run(full, Rules(0.0, 40))
    assert "sibling" in strict.undecided
    assert strict.ending == "open"


def test_two_methods_are_enough():
    test = run(scores({"local": 90.0, "a": 93.0}), RULES)
    assert (test.ending, test.leader, test.over_local["a"].relation) == ("winner", "a", "better")
    assert test.look < 40


def test_a_race_needs_no_local_training():
    test = run(scores({"a": 90.0, "b": 93.0, "c": 90.0}), RULES)
    assert (test.ending, test.leader) == ("winner", "b")
    assert (test.over_local, test.undecided, test.given_up) == ({}, {}, {})


def test_local_training_alone_gets_no_seeds():
    assert run({"local": []}, RULES).is_over
    assert run({"local": [], "a": []}, RULES, failed=["a"]).is_over
    assert run({}, RULES).is_over


def shared_rows(full: dict[str, list[float]], moves: dict[str, float]) -> dict[str, list[Deviations]]:
    """Two rows that move a method's score by as much in every seed, one up and one down."""
    rows = np.array([3, 9])
    return {method: [Deviations(rows, np.array([1.0, -1]) * moves[method]) for _ in full[method]] for method in full}


def test_rows_that_seeds_share_widen_intervals_by_their_part():
    full = scores(MIXED, 5)
    moves = dict.fromkeys(MIXED, 0.0) | {"good": 2.0}
    plain, found = run(full, RULES), run(full, RULES, samples=shared_rows(full, moves))
    (_, one), (_, other) = (
        (test.over_local.get("good"), test.undecided.get("good") or test.over_local["good"].interval)
        for test in (plain, found)
    )
    assert other.samples**2 == pytest.approx(2 * 2.0**2), "the variance of two rows, in every pair of seeds"
    assert other.error**2 == pytest.approx(one.error**2 + other.samples**2)
    assert (found.over_samples, plain.over_samples) == (True, False)
    assert found.undecided.keys() | found.over_local.keys() == plain.undecided.keys() | plain.over_local.keys()


def test_what_no_seeds_decide_is_given_up_and_said():
    full = scores({"local": 90.0, "good": 93.0})
    assert run(full, RULES).over_local["good"].relation == "better"
    moves = {"local": 0.0, "good": 2.0}
    test = run(full, RULES, samples=shared_rows(full, moves))
    assert test.look == 12, "the first look at which anything is given up"
    assert test.given_up.keys() == {"good"}
    assert test.needs_samples == {("local", "good"), ("best", "good")}
    assert test.ending == "open"
    bound = test.undecided["good"]
    assert no_seeds_decide(bound, 2, RULES)
    assert not no_seeds_decide(replace(bound, samples=0.0), 2, RULES)
    assert not no_seeds_decide(replace(bound, samples=0.1), 2, RULES), "clearly better on these rows"


def test_what_was_told_of_local_training_bounds_the_difference_from_it():
    draw = np.random.default_rng(0)
    local = 80 + draw.normal(size=12)
    levels = {
        "local": local,
        "near": local + 0.05 * draw.normal(size=12),
        "noisy": local - 0.4 + 3.5 * draw.normal(size=12),
    }
    test = run(levels, Rules(1.0, 12))
    assert (test.leader, test.over_local["near"].relation) == ("local", "equal")
    told, behind = test.over_local["near"].interval, test.behind["near"]
    assert told.low <= behind.low <= behind.high <= told.high < 1.0
    assert test.behind["noisy"].high >= 1.0


def test_a_finished_seed_without_a_finite_score_is_no_gap_that_more_runs_fill():
    entries = [Entry("final", "a", {}, seed, f"a{seed}", "done", None) for seed in range(3)]
    plan = Plan("compare", None, {}, entries, {})
    column = f"test_{load('classification').primary.name}"
    for last, lacks in ((0.5, False), (np.nan, True)):
        rows = pd.DataFrame({"seed": [0, 1, 2], column: [0.5, 0.6, last]})
        scores = SimpleNamespace(metric=load("classification").primary, rows={("a", plan.point, LAST): rows})
        assert lacks_score(plan, scores, "a") == lacks
        assert scores_by_seed(plan, scores, "a") == [0.5, 0.6, 0.5][: 2 if lacks else 3]
