"""The words of a comparison: a winner only where it is one."""

from dataclasses import replace

import pytest

from fedbench.report.leaderboard import leaderboard
from fedbench.report.study import Study
from fedbench.report.verdicts import (
    best_for_sure,
    comparison_answer,
    comparison_notes,
    detectable_line,
    join_words,
    lead,
    left_open,
)
from fedbench.results.contrasts import Contrast
from fedbench.results.statistics import interval
from fedbench.tasks import load

CLEAR = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9, "centralized": 0.95}


@pytest.fixture
def said(make_comparison):
    """Answer and notes of a comparison of methods with these levels."""

    def ask(levels=CLEAR, **more) -> tuple[str, list[str]]:
        study = Study.load(make_comparison(levels, **{"spread": 0.0, **more}))
        rows = leaderboard(study)
        answer, best = comparison_answer(study, rows), best_for_sure(study, rows)
        assert (best is not None) == ("it is the best" in answer)
        assert best is None or answer.startswith(f"{best} reached")
        return answer, comparison_notes(study, rows)

    return ask


def test_a_winner_beats_every_rival(said):
    answer, notes = said()
    assert answer.startswith("fedcac reached ")
    assert "the best of 3 methods" in answer
    assert answer.endswith("it is the best of them on this data.")
    assert "Better than local training: fedcac and fedper." in notes[0]


def test_a_lead_over_common_seeds_may_be_a_lag():
    gain = interval([-0.02, -0.01, -0.03])
    found = Contrast("fedcac", "fedper", gain, None, None, gain)
    assert lead(load("classification").primary, found).startswith("2.0 points behind fedper (95")
    ahead = replace(found, gain=interval([0.02, 0.01, 0.03]))
    assert lead(load("classification").primary, ahead).startswith("2.0 points ahead of fedper (95")


def test_what_cannot_be_told_apart_is_named(said):
    answer, notes = said({"local": 0.5, "fedper": 0.80, "fedcac": 0.801}, spread=0.08)
    assert "with 3 seeds it cannot be told from" in answer
    assert any("these seeds can detect differences of" in note for note in notes)


def test_with_few_seeds_it_is_said_where_intervals_do_not_hold(said):
    for count, few in ((1, False), (2, True), (4, True), (5, False)):
        _, notes = said({"local": 0.6, "fedcac": 0.9}, seeds=tuple(range(count)), name=f"of {count}")
        assert any("in 89\u00a0% if one seed in ten is an outlier" in note for note in notes) == few


def test_one_seed_decides_nothing(said):
    assert said(seeds=(0,))[0].endswith("one seed is not enough to decide.")


def test_two_seeds_decide_nothing_and_that_is_said(said):
    answer, notes = said(seeds=(0, 1))
    assert answer.endswith("; two seeds cannot decide.")
    assert "Undecided: fedcac and fedper." in notes
    assert not any("can detect" in note for note in notes)


def test_who_is_within_the_margin_is_called_equal(make_comparison):
    levels = {"local": 0.7, "fedper": 0.702, "fedcac": 0.9, "ditto": 0.9}
    study = Study.load(make_comparison(levels, spread=0.002, seeds=tuple(range(8))))
    rows = leaderboard(study, margin=0.03)
    assert comparison_answer(study, rows).endswith("ditto; equal within 3.0 points to it: ditto.")
    notes = comparison_notes(study, rows)
    assert "; equal within 3.0 points to local training: fedper." in notes[0]
    assert "equal" not in " ".join(comparison_notes(study, leaderboard(study)))


def test_no_winner_where_a_rival_may_not_be_at_its_best(said):
    answer, _ = said(ends={"fedper": ["train.lr"]})
    assert answer.endswith(
        "but the best candidate of fedper is at the edge of its search range (train.lr = 0.01), so no winner is named."
    )
    assert said(ends={"fedcac": ["train.lr"]})[0].endswith("it is the best of them on this data.")


def test_no_winner_over_local_where_local_lies_at_an_end(said):
    _, notes = said(ends={"local": ["train.lr"]})
    assert not any("Better than" in note for note in notes)
    assert "fedcac and fedper: ahead or behind, but the best candidate of local is at the edge" in " ".join(notes)


def test_no_winner_where_budgets_differ(make_comparison):
    study = Study.load(make_comparison(CLEAR, spread=0.0))
    study.plan.entries = [e for e in study.plan.entries if not (e.label == "fedper" and e.values == {"train.lr": 1.0})]
    assert "fedcac was tuned over 3 candidates and fedper over 2" in comparison_answer(study, leaderboard(study))


def test_no_winner_over_a_rival_that_failed(said):
    answer, notes = said(fail={"fedper": (0, 1, 2)})
    assert "the best of 2 methods" in answer
    assert answer.endswith("but fedper failed, so no winner is named.")
    assert "Failed, so not compared: fedper." in notes


def test_no_winner_over_a_rival_that_lacks_seeds(said):
    answer, notes = said(fail={"fedper": (1,)}, seeds=(0, 1, 2, 3))
    assert "the best of 3 methods" in answer
    assert answer.endswith("but 1 of 4 seeds of fedper failed, so no winner is named.")
    assert "Scored on the remaining seeds only: fedper (3 of 4 seeds)." in notes


def test_no_winner_while_a_rival_is_on_its_way(make_comparison):
    study = Study.load(make_comparison(CLEAR, spread=0.0))
    study.summaries["fedper"]["complete"] = False
    assert comparison_answer(study, leaderboard(study)).endswith(
        "but the runs of fedper are not complete, so no winner is named."
    )


def test_where_all_failed_there_is_no_answer(said):
    answer, notes = said({"local": 0.6, "fedcac": 0.9}, fail={"local": (0, 1), "fedcac": (0, 1)}, seeds=(0, 1))
    assert answer == "Every method failed."
    why = ["local failed: RuntimeError: boom.", "fedcac failed: RuntimeError: boom."]
    assert notes == ["Failed, so not compared: local and fedcac.", *why]


def test_a_long_list_is_cut():
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b", "c"]) == "a, b and c"
    assert join_words(list("abcdefghi")) == "a, b, c, d, e and 4 others"


@pytest.mark.parametrize(
    ("values", "p_adjusted", "comparisons", "words"),
    [
        ([4.0, 4.5, 5.0], 0.01, 1, ""),
        (
            [0.1, 4.5, 9.0],
            0.2,
            1,
            "; the observed one would need about 10 seeds to show with a probability of 80",
        ),
        (
            [0.1, 4.5, 9.0],
            0.2,
            11,
            "; the observed one would need about 18 seeds to show with a probability of 80",
        ),
        ([4.0, 4.5, 5.0], 0.2, 1, ""),
        ([0.0, 0.0, 0.0], 1.0, 1, ""),
    ],
)
def test_why_a_difference_is_left_open(values, p_adjusted, comparisons, words):
    better = interval([1.0] * 3)
    found = Contrast("fedcac", "local", interval(values), None, 0.01, better, p_adjusted, comparisons=comparisons)
    assert words in left_open(found)
    assert bool(words) == bool(left_open(found))


def test_two_methods_with_the_same_scores_are_said_to_be_so():
    same = Contrast("a", "b", interval([0.0, 0.0, 0.0]), None, 1.0, interval([0.0, 0.0, 0.0]))
    metric = load("classification").primary
    assert detectable_line(metric, same) == "a and b have the same score in every seed."
    apart = Contrast("a", "b", interval([0.01, 0.02, 0.03]), None, 0.07, interval([1.0, 1.0, 1.0]))
    assert detectable_line(metric, apart).startswith("Between the first two, these seeds can detect differences of 2.5")
