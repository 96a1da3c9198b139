"""The lines under an answer say what is known against local training, what is open and why, and what is promised."""

from dataclasses import replace

import pytest

from fedbench.report.leaderboard import leaderboard
from fedbench.report.notes import (
    comparison_notes,
    detectable_line,
    guarantee,
    left_open,
    sequential_notes,
    settings_notes,
)
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.results.contrasts import Contrast
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import interval
from fedbench.results.verdict import Bound, Verdict
from fedbench.tasks import load
from tests.report.conftest import judged
from tests.report.test_answer import CLEAR, EDGE, FEW, SEQUENTIAL
from tests.report.test_settings_tables import write_matrix

METRIC = load("classification").primary


@pytest.fixture
def said(make_comparison):
    def ask(levels=CLEAR, margin=None, **more) -> list[str]:
        study = Study.load(make_comparison(levels, **{"spread": 0.0, **more}))
        return comparison_notes(study, leaderboard(study, margin))

    return ask


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "Better than local training: fedcac and fedper."),
        ({"seeds": (0, 1)}, "Undecided: fedcac and fedper."),
        ({"ends": {"local": ["train.lr"]}}, f"fedcac and fedper: ahead or behind, but {EDGE.format('local')}."),
        (
            {
                "levels": {"local": 0.7, "fedper": 0.702, "fedcac": 0.9},
                "spread": 0.002,
                "seeds": range(8),
                "margin": 0.03,
            },
            "Better than local training: fedcac; equal within 3.0 points to local training: fedper.",
        ),
        (
            {"levels": {"local": 0.7, "fedper": 0.702, "fedcac": 0.9}, "spread": 0.002, "seeds": range(8)},
            "Better than local training: fedcac; undecided: fedper.",
        ),
    ],
)
def test_methods_are_grouped_by_their_verdicts_over_local(said, options, line):
    notes = said(**options)
    assert notes[0] == line
    assert ("Better" in line) == any("Better than" in note for note in notes)


def test_what_failed_is_named_with_its_reason(said):
    assert "Failed, so not compared: fedper." in said(fail={"fedper": (0, 1, 2)})
    some = said(fail={"fedper": (1,)}, seeds=(0, 1, 2, 3))
    assert "Scored on the remaining seeds only: fedper (3 of 4 seeds)." in some
    both = said({"local": 0.6, "fedcac": 0.9}, fail={"local": (0, 1), "fedcac": (0, 1)}, seeds=(0, 1))
    why = ["local failed: RuntimeError: boom.", "fedcac failed: RuntimeError: boom."]
    assert both == ["Failed, so not compared: local and fedcac.", *why]


def test_with_few_seeds_it_is_said_where_intervals_do_not_hold(said):
    for count, few in ((1, False), (2, True), (4, True), (5, False)):
        notes = said({"local": 0.6, "fedcac": 0.9}, seeds=tuple(range(count)), name=f"of {count}")
        assert any("in 89\u00a0% if one seed in ten is an outlier" in note for note in notes) == few


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
    found = Contrast(
        *("fedcac", "local", interval(values)),
        resampled=None,
        p=0.01,
        better_off=better,
        p_adjusted=p_adjusted,
        comparisons=comparisons,
    )
    assert words in left_open(found)
    assert bool(words) == bool(left_open(found))


def test_two_methods_with_the_same_scores_are_said_to_be_so():
    zero = interval([0.0, 0.0, 0.0])
    same = Contrast("a", "b", zero, resampled=None, p=1.0, better_off=zero)
    assert detectable_line(METRIC, same) == "a and b have the same score in every seed."
    apart = replace(same, interval=interval([0.01, 0.02, 0.03]), p=0.07)
    assert detectable_line(METRIC, apart).startswith("Between the first two, these seeds cannot tell differences below")


def test_tuned_points_are_a_premise_only_where_something_was_tuned(sequential):
    study = sequential()
    assert "given the chosen candidates and the clients, and if differences" in guarantee(study)
    study.plan.entries = [entry for entry in study.plan.entries if entry.role == "final"]
    assert "given the clients, and if differences" in guarantee(study)


def test_a_sequential_test_says_what_is_told_open_given_up_and_withheld(sequential):
    study, bound = sequential(), Bound(-0.01, -0.02, 0.0, 0.003, 8)
    study.plan.ends = {"local": ["train.lr"]}
    state = SequentialTest(
        look=8,
        over_local={"fedper": Verdict("fedper", "local", Bound(0.1, 0.05, 0.15, 0.01, 8))},
        undecided={"ditto": bound, "fedcac": bound, "apfl": bound},
        given_up={"ditto": 0.1},
        withheld={("local", "fedcac"): "better", ("best", "fedper"): "behind fedcac"},
        candidates=["fedcac", "fedper"],
        behind={"fedper": bound},
        ending="open",
        needs={"apfl": 12},
        needs_samples={("best", "fedcac")},
    )
    notes = sequential_notes(study, state)
    assert notes[:-1] == [
        "Difference from fedcac: fedper (\u22122.0 to +0.0).",
        f"fedper: better than local training, but {EDGE.format('local')}.",
        "Undecided against local training: fedcac (\u22122.0 to +0.0) and apfl (\u22122.0 to +0.0).",
        "Given up against local training, because 8 seeds would decide it with a probability below 20\u00a0%: ditto "
        "(\u22122.0 to +0.0).",
        "Who is best stays open, because more seeds cannot decide this over the same test samples; more test "
        "samples can.",
        "Withheld, because it does not hold without an outlying seed: fedcac, better than local training.",
        "Withheld, because it does not hold without an outlying seed: fedper, behind fedcac.",
        "Stopped before it was decided; the same command continues with 12 seeds of 1 method.",
    ]
    assert notes[-1] == guarantee(study)
    study.plan.ends = {}
    assert "Better than local training: fedper (+5.0 to +15.0)." in sequential_notes(study, state)
    assert sequential_notes(study, SequentialTest(candidates=["fedcac"], needs={"fedcac": 5})) == []


def test_settings_say_where_a_method_is_better_than_local_training(tmp_path):
    small = {"": {"rounds": 2, "clients": 4}}
    survey = SettingsStudy.load(write_matrix(tmp_path, FEW, {**FEW, "fedper": 0.5}, asked=small, **SEQUENTIAL))
    better, worse, promise = settings_notes(survey)
    assert better == "Better than local training: fedcac in every setting; fedper in alpha=0.1."
    assert worse == "Worse than local training: fedper in alpha=0.5."
    assert "of all 2 together with at most 10\u00a0%" in promise
    first = survey.studies["alpha=0.1"].sequential_test
    both = judged(survey, *survey.studies, test=first)
    assert settings_notes(both)[0] == "Better than local training: fedcac and fedper in every setting."
    doubted = settings_notes(judged(survey, "alpha=0.1", ends={"local": ["train.lr"]}))
    assert doubted[0] == "Better than local training: fedcac in alpha=0.5."
    assert f"fedper in alpha=0.1: better than local training, but {EDGE.format('local')}." in doubted
    going = settings_notes(judged(survey, "alpha=0.1", test=replace(first, needs={"fedper": 8})))
    line = "Stopped in alpha=0.1 before it was decided; the same command continues with 8 seeds of 1 method."
    assert line in going
    assert (
        settings_notes(judged(survey, *survey.studies, test=SequentialTest(candidates=["local"], needs={"local": 5})))
        == []
    )
