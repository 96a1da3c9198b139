"""Charts of the score against the number of tuned points."""

from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np
import pytest

from fedbench.report.page import chart_sections
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.report.tuning_budget import budget_charts, budget_curves, budgets, chances_of_best, tuning_budget
from fedbench.results.plan import Entry, Plan
from fedbench.tasks import load

SCORES = {"fedcac": [(0.7, 0.6), (0.9, 0.5), (0.8, 0.8)], "local": [(0.5, 0.4), (0.6, 0.5), (0.7, 0.6), (0.8, 0.7)]}


def entry(label: str, place: int, val: float | None, test: float | None, seed: int = 0) -> Entry:
    scores = {"val": val, "test": test}
    return Entry("candidate", label, {"train.lr": place}, seed, f"run/{label}{place}{seed}", "done", None, scores)


def study_of(*more: Entry, **scores: list[tuple[float | None, float | None]]) -> Study:
    tried = [entry(label, place, *own) for label, every in scores.items() for place, own in enumerate(every)]
    finals = [Entry("final", label, {}, 0, f"final/{label}") for label in scores]
    study = Study(None, Plan("compare", None, {}, [*tried, *more, *finals]), {})
    study.__dict__["metric"] = load("classification").primary
    return study


def test_every_tuned_method_has_a_curve_as_long_as_its_budget():
    validation, test = budget_charts(study_of(**SCORES))
    assert [validation.id, test.id] == ["budget", "budget-test"]
    assert "fedcac 90" in validation.words
    assert "local 80" in validation.words
    found = budgets(study_of(**SCORES))
    assert found["fedcac"].validation == pytest.approx([0.8, (0.9 * 2 + 0.8) / 3, 0.9])
    assert found["fedcac"].test == pytest.approx([1.9 / 3, (0.5 * 2 + 0.8) / 3, 0.5])
    assert len(found["local"].validation) == 4


def test_curves_are_in_percent_by_the_number_of_points():
    study = study_of(**SCORES)
    fig = budget_curves(study, {label: budget.validation for label, budget in budgets(study).items()}, "validation")
    (fedcac,) = [trace for trace in fig.data if trace.name == "fedcac"]
    assert list(fedcac.x) == [1, 2, 3]
    assert list(fedcac.y) == pytest.approx([80, 86.667, 90], abs=1e-3)
    assert fig.layout.yaxis.title.text == "validation accuracy, %"


def test_tuning_seeds_are_averaged_and_unfinished_points_left_out():
    failed = replace(entry("ditto", 2, None, None), status="failed")
    study = study_of(
        entry("ditto", 0, 0.8, 0.8, 1),
        entry("ditto", 1, 0.9, 0.9, 1),
        failed,
        ditto=[(0.6, 0.4), (0.5, 0.5)],
    )
    assert budgets(study)["ditto"].validation == pytest.approx([0.7, 0.7])
    assert budgets(study)["ditto"].test == pytest.approx([0.65, 0.6])


def test_without_tests_scores_or_tuning_there_is_no_chart():
    assert [chart.id for chart in budget_charts(study_of(local=[(0.5, None), (0.6, 0.5)]))] == ["budget"]
    assert budget_charts(study_of(local=[(0.5, 0.4)])) == []


def test_pages_of_comparisons_and_grids_show_it(make_comparison, a_grid):
    folder = make_comparison({"local": 0.7, "fedper": 0.8}, seeds=(0,), asked={"": {"rounds": 1}})
    for study, section in ((folder, "tuning"), (a_grid, "grid")):
        by_id = {part.id: [chart.id for chart in part.charts] for part in chart_sections(SettingsStudy.load(study))}
        assert by_id[section][-2:] == ["budget", "budget-test"]


def test_the_best_of_k_points_drawn_without_replacement():
    # Of 1 2 4: one point is 7/3 on average; of two the best is 2 once and 4 twice; of three it is 4.
    assert tuning_budget([2, 4, 1]).validation == pytest.approx([7 / 3, 10 / 3, 4])


def test_less_is_better_for_errors():
    assert tuning_budget([2, 4, 1], higher=False).validation == pytest.approx([7 / 3, 4 / 3, 1])


def test_the_test_score_is_that_of_the_point_chosen_on_validation():
    # The point with the best validation, 4, has a bad test score of 0.
    assert tuning_budget([2, 4, 1], [5, 0, 3]).test == pytest.approx([8 / 3, 5 / 3, 0])
    assert tuning_budget([2, 4, 1]).test is None


def test_of_equal_points_the_first_one_is_chosen():
    assert tuning_budget([1, 1], [7, 3]).test == pytest.approx([5, 7])
    assert tuning_budget([1, 1], [7, 3], higher=False).test == pytest.approx([5, 7])


def test_it_is_the_mean_over_all_choices_of_points():
    values = np.random.default_rng(0).normal(size=6)
    each = [np.mean([max(own) for own in combinations(values, k)]) for k in range(1, 7)]
    assert tuning_budget(values).validation == pytest.approx(each)


def test_chances_of_many_points_stay_exact():
    chances = chances_of_best(300)
    assert chances.sum(1) == pytest.approx(np.ones(300))
    assert chances[99, 199] == pytest.approx(comb(199, 99) / comb(300, 100), rel=1e-9)
