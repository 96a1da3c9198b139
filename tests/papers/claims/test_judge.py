"""What parts of a row mean, on made-up records."""

import pytest

from fedbench_papers.claims.judge import Terms, judge_row, only_accuracies
from fedbench_papers.claims.verdicts import FAILS, HOLDS, UNDECIDED
from tests.papers.claims.made import frames, level

ARMS = {
    "a": frames(agg=level(0.60, 0.61, 0.62), fit=level(0.40, 0.41, 0.42)),
    "b": frames(agg=level(0.50, 0.50, 0.53), fit=level(0.50, 0.52, 0.52)),
    "c": frames(agg=level(0.20, 0.21, 0.19)),
}


def pick(labels):
    return labels[-1]


def one(part: dict):
    (line,) = judge_row({"x": part}, ARMS, pick)
    return line


def test_terms():
    terms = Terms(ARMS, pick, "agg")
    means = lambda term: terms.value(term).groupby("seed").mean().round(6).tolist()  # noqa: E731
    assert means("a") == [60, 61, 62]
    assert means(["a", "b"]) == [10, 11, 9]
    assert means([["a", "b"], "c"]) == [-10, -10, -10]
    assert means({"mean": ["a", "b"]}) == [55, 55.5, 57.5]
    assert means(["a", {"best": ["c", "b"]}]) == [10, 11, 9]
    assert means({"accuracy": {"of": "a", "point": "fit"}}) == [40, 41, 42]
    assert means({"only_client": {"of": "c", "client": 1}}) == [20, 21, 19]


def test_both_points_are_judged_and_told_where_they_differ():
    line = one({"rule": "B", "delta": 5.0, "of": ["a", "b"]})
    assert (line.verdict.word, line.other) == (HOLDS, FAILS)
    assert line.best == pytest.approx(10)
    assert one({"rule": "B", "delta": 5.0, "of": ["a", "c"]}).other == ""
    assert (
        one({"rule": "B", "delta": 5.0, "point": "none", "of": {"accuracy": {"of": "a", "point": "fit"}}}).other == ""
    )


def test_every_rule():
    assert one({"rule": "T", "delta": 20.0, "of": ["a", "b"]}).verdict.word == HOLDS
    assert one({"rule": "N", "delta": 1.0, "of": ["b", "a"]}).verdict.word == FAILS
    assert one({"rule": "M", "delta": 1.0, "options": ["c", "b", "a"]}).verdict.word == HOLDS
    peak = one({"rule": "S", "delta": 1.0, "low": "c", "middle": "a", "high": "b", "others": []})
    assert peak.verdict.word == HOLDS
    assert "best a 61.0, b 51.0, c 20.0" in peak.verdict.note
    assert one({"rule": "K", "least": 1.0, "order": ["a", "b", "c"]}).verdict.word == HOLDS
    check = {"rule": "P", "check": "best_is_one_of", "point": "agg", "labels": ["a", "b"], "among": ["a"], "least": 3}
    assert one(check).verdict.word == HOLDS
    shown = one({"rule": "shown", "of": ["a", "b"]})
    assert (shown.verdict.word, shown.judged) == ("", False)
    assert shown.verdict.estimate.mean == pytest.approx(10)


def test_what_is_best_is_named():
    assert one({"rule": "B", "delta": 1.0, "of": ["a", {"best": ["c", "b"]}]}).verdict.note.endswith("seed: b")


def test_cases_come_to_one_verdict():
    cases = {"yes": {"of": ["a", "b"]}, "no": {"of": ["c", "b"]}}
    head, *below = judge_row({"x": {"rule": "B", "delta": 1.0, "cases": cases}}, ARMS, pick)
    assert (head.verdict.word, head.judged, head.case) == (FAILS, True, "")
    assert [(line.case, line.verdict.word, line.judged) for line in below] == [
        ("yes", HOLDS, False),
        ("no", FAILS, False),
    ]

    def word(**more):
        return judge_row({"x": {"rule": "B", "delta": 1.0, "cases": cases, **more}}, ARMS, pick)[0].verdict.word

    assert word(some=1) == FAILS, "one is reversed"
    assert word(most=1) == HOLDS
    assert word(most=2) == UNDECIDED


def test_the_p_of_a_part_does_not_depend_on_its_verdict():
    """Else undecided parts would leave the family of tests."""
    cases = {"yes": {"of": ["a", "b"]}, "no": {"of": ["b", "b"]}}
    head, *below = judge_row({"x": {"rule": "B", "delta": -1.0, "cases": cases}}, ARMS, pick)
    assert not head.verdict.holds
    assert head.verdict.p == max(line.verdict.p for line in below)


def test_what_is_shown_does_not_count():
    assert not one({"rule": "B", "shown": True, "delta": 1.0, "of": ["a", "b"]}).judged


def test_runs_that_are_too_short_for_a_reading_leave_it_undecided():
    arms = {"a": frames(agg=level(0.5, 0.6), curves={0: [0.5], 1: [0.6]}, losses={0: [1.0], 1: [1.0]})}
    terms = [{"roughness": {"of": "a"}}, {"roughness": {"of": "a"}}]
    asked = {"x": {"rule": "B", "delta": 1.0, "of": terms}, "y": {"rule": "shown", "of": terms[0]}}
    first, second = judge_row(asked, arms, pick)
    assert (first.verdict.word, first.verdict.note) == (UNDECIDED, "too few rounds to read this")
    assert (second.verdict.word, second.verdict.estimate) == ("", None)


def test_best_rounds_are_for_accuracies_alone():
    assert only_accuracies(["a", {"best": ["b", "c"]}])
    assert not only_accuracies([{"decline": {"of": "a"}}, "b"])


def test_seeds_that_are_degenerate_are_left_out():
    """One of five, whose difference is another one."""
    first, second = level(0.9, 0.91, 0.92, 0.91, 0.1), level(0.5, 0.5, 0.51, 0.5, 0.5)
    arms = {"a": frames(range(5), agg=first, traces=[(4, 1, -1, "degenerate", 1.0)]), "b": frames(range(5), agg=second)}

    (found,) = judge_row({"p": {"rule": "B", "delta": 1.0, "of": ["a", "b"]}}, arms, max)

    assert found.verdict.word == "holds"
    assert found.verdict.estimate.mean == pytest.approx(40.75)
    assert "seeds 4 left out, where a is degenerate" in found.verdict.note
    assert found.best == pytest.approx(40.75)


def test_a_part_whose_runs_are_degenerate_is_not_judged():
    marked = [(seed, 1, -1, "degenerate", 1.0) for seed in (0, 1, 2)]
    plain = {"a": frames(agg=level(0.9, 0.91, 0.92)), "b": frames(agg=level(0.5, 0.5, 0.51))}
    ill = {**plain, "a": frames(agg=level(0.9, 0.91, 0.92), traces=marked)}
    parts = {"p": {"rule": "B", "delta": 1.0, "of": ["a", "b"]}, "s": {"rule": "shown", "of": ["a", "b"]}}
    words = [[line.verdict.word for line in judge_row(parts, arms, max)] for arms in (plain, ill)]
    assert words == [["holds", ""], ["not judged: degenerate", ""]]
    cases = {"rule": "B", "delta": 1.0, "cases": {"one": {"of": ["a", "b"]}, "other": {"of": ["b", "b"]}}}
    words = [line.verdict.word for line in judge_row({"p": cases}, ill, max)]
    assert words == ["not judged: degenerate", "not judged: degenerate", "undecided"], "the other case has no a"
    (whole, *_) = judge_row({"p": {**cases, "some": 1}}, ill, max)
    assert whole.verdict.word != "holds", "the degenerate case does not count"
