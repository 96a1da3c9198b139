"""The answer in one sentence: a winner only where it is one, in the words that the numbers allow."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fedbench.report.answer import (
    ahead_of_all,
    best_for_sure,
    compared_answer,
    comparison_answer,
    gain_text,
    lead,
    sequential_answer,
    settings_answer,
    study_answer,
)
from fedbench.report.in_python import answer_of
from fedbench.report.leaderboard import leaderboard
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.report.theme import LIGHT
from fedbench.results.contrasts import Contrast
from fedbench.results.plan import Plan
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import interval
from fedbench.results.verdict import Bound, Verdict
from fedbench.tasks import load
from tests.report.conftest import judged
from tests.report.reading import Make, page_of
from tests.report.test_settings_tables import write_matrix

CLEAR = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9, "centralized": 0.95}
FEW = {"local": 0.6, "fedper": 0.7, "fedcac": 0.8}
SEQUENTIAL = {"seeds": range(5), "spread": 0.01, "stopping_rule": {"margin": 2.0, "most": 5}}
EDGE = "the best candidate of {} is at the edge of its search range (train.lr = 0.01)"
FIVE = (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"gain": 0.1, "seeds": FIVE},
            "points above local training (95\u00a0% interval +N to +N): collaboration helped.",
        ),
        (
            {"gain": -0.12, "seeds": FIVE},
            "points below local training (95\u00a0% interval −N to −N): collaboration did not help.",
        ),
        (
            {"gain": 0.02, "skew": 0.05},
            "(95\u00a0% interval −N to +N); the interval includes 0, so with 3 seeds it is undecided whether "
            "collaboration helped.",
        ),
        ({"seeds": (0,)}, "(one seed, so no interval): it is undecided whether collaboration helped."),
        ({"gain": 0.1, "seeds": (0, 1)}, "): two seeds cannot decide whether collaboration helped."),
        (
            {"gain": 0.1, "seeds": FIVE, "ends": {"local": ["train.lr"]}},
            "; but the best candidate of local is at the edge of its search range (train.lr = 0.02), so it is "
            "undecided whether collaboration helped.",
        ),
        ({"final": False}, "won on validation (83.7\u00a0%); its final runs are not finished yet."),
    ],
)
def test_a_grid_says_whether_collaboration_helped(make_grid: Make, options, words) -> None:
    folder = make_grid(**options)
    if "ends" in options:
        plan = Plan.read(folder)
        replace(plan, spaces={**plan.spaces, "local": {"train.lr": [0.01, 0.02]}}).write(folder)
    said = study_answer(Study.load(folder), [])
    assert re.sub(r"\d+\.\d(?= to|\))", "N", said).endswith(words), said


def test_a_search_is_no_grid(make_grid: Make) -> None:
    folder = make_grid(gain=0.1)
    replace(Plan.read(folder), search="random").write(folder)
    assert " won the search with " in page_of(folder).answer


def test_local_training_is_not_compared_with_itself(make_grid: Make) -> None:
    folder = make_grid(gain=0.1)
    study = Study.load(folder)
    study.plan.subject = "local"
    assert "local training" not in compared_answer(study).partition(" reached ")[2]
    assert compared_answer(study).endswith("after aggregation.")


def test_a_grid_whose_cells_all_failed_says_so(make_grid: Make) -> None:
    page = page_of(make_grid(space={"method.tau": [0.1, 0.3], "method.beta": [5]}, fail=(0, 1)))
    assert page.answer == "No candidate finished: 2 of 2 failed, so there is no answer."
    assert "table" not in page.sections
    assert "RuntimeError: client 3: loss is nan" in page.text


def test_points_that_tie_on_validation_are_said(make_grid: Make) -> None:
    folder = make_grid(space={"method.tau": [0.1, 0.3]})
    plan = Plan.read(folder)
    tied = lambda e: e.role == "candidate" and e.label == "fedcac"  # noqa: E731
    plan.entries = [replace(e, scores={"val": 0.8}) if tied(e) else e for e in plan.entries]
    plan.choices["fedcac"] = {"method.tau": 0.1}
    plan.write(folder)
    line = "Chosen as the first of candidates with equal validation scores: fedcac (tau=0.1; also tau=0.3), "
    page = page_of(folder)
    assert line in page.text
    assert page.answer.startswith("fedcac with tau = 0.1 is the first of 2 candidates with the same validation ")
    assert "won the grid" not in page.text
    assert page.charts["grid-0"]["data"][0]["marker"]["color"] == [LIGHT["c1"]] * 2


def test_a_grid_whose_final_runs_failed_says_so(make_grid: Make) -> None:
    folder = make_grid(final=False, space={"method.tau": [0.1, 0.3]})
    plan = Plan.read(folder)
    plan.entries = [replace(e, status="failed", error="boom") if e.role == "final" else e for e in plan.entries]
    plan.write(folder)
    assert page_of(folder).answer.endswith("; its final runs failed.")


def test_no_interval_promises_more_than_everything(make_run: Make) -> None:
    page = page_of(make_run(level=0.995, seeds=(0, 1)))
    low, high = map(
        float, re.findall(r"after aggregation \(95 % interval (\d+\.\d) % to (\d+\.\d) %\)", page.answer)[0]
    )
    assert 0 <= low < 98.1 < high <= 100
    assert not re.search(r"1\d\d\.[1-9]", page.answer)


def test_a_run_that_is_not_over_says_how_far_it_is(make_run: Make) -> None:
    page = page_of(make_run(done=4))
    assert page.answer.startswith("So far, after round 4 of 6, fedcac reached ")
    assert "this run is not complete" in page.text


@pytest.fixture
def said(make_comparison):
    """The answer of a comparison of methods with these levels, which is also that of best_for_sure."""

    def ask(levels=CLEAR, margin=None, **more) -> str:
        study = Study.load(make_comparison(levels, **{"spread": 0.0, **more}))
        rows = leaderboard(study, margin)
        words, best = comparison_answer(study, rows), best_for_sure(study, rows)
        assert (best is not None) == words.endswith("it is the best of them on this data.")
        assert best is None or words.startswith(f"{best} reached")
        assert ("but" in words) == (best is None and ahead_of_all(study, rows) is not None)
        return words

    return ask


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ": it is the best of them on this data."),
        ({"seeds": (0,)}, "; one seed is not enough to decide."),
        ({"seeds": (0, 1)}, "; two seeds cannot decide."),
        ({"ends": {"fedper": ["train.lr"]}}, f"; but {EDGE.format('fedper')}, so no winner is named."),
        ({"ends": {"fedcac": ["train.lr"]}}, ": it is the best of them on this data."),
        ({"fail": {"fedper": (0, 1, 2)}}, "; but fedper failed, so no winner is named."),
        (
            {"fail": {"fedper": (1,)}, "seeds": (0, 1, 2, 3)},
            "; but 1 of 4 seeds of fedper failed, so no winner is named.",
        ),
        (
            {"levels": {"local": 0.5, "fedper": 0.80, "fedcac": 0.801}, "spread": 0.08},
            "; with 3 seeds it cannot be told from fedper.",
        ),
        (
            {
                "levels": {"local": 0.7, "fedper": 0.702, "fedcac": 0.9, "ditto": 0.9},
                "spread": 0.002,
                "seeds": range(8),
                "margin": 0.03,
            },
            "ditto; equal within 3.0 points to it: ditto.",
        ),
    ],
)
def test_a_comparison_names_a_winner_only_if_it_beats_every_rival(said, options, words):
    assert said(**options).endswith(words)


def test_where_all_failed_there_is_no_answer(said):
    failed = {"local": (0, 1), "fedcac": (0, 1)}
    assert said({"local": 0.6, "fedcac": 0.9}, fail=failed, seeds=(0, 1)) == "Every method failed."


def test_a_lead_over_common_seeds_may_be_a_lag():
    behind = interval([-0.02, -0.01, -0.03])
    found = Contrast("fedcac", "fedper", behind, resampled=None, p=None, better_off=behind)
    metric = load("classification").primary
    assert lead(metric, found).startswith("2.0 points behind fedper (95")
    assert lead(metric, replace(found, interval=interval([0.02, 0.01, 0.03]))).startswith("2.0 points ahead of fedper")


def test_a_sequential_test_is_answered_by_its_state(sequential):
    study = sequential(margin=50.0)
    state = {"look": 8, "candidates": ["fedcac", "fedper"], "seeds": {"fedcac": 8}}
    for more, words in (
        ({"ending": "tie"}, "; equal to it within 50 points: fedper, decided after 8 seeds."),
        ({"ending": "within"}, " and is best or within 50 points of the best; fedper may be better (8 seeds)."),
        ({"ending": "open"}, ", but fedper may be better by 50 points or more (8 seeds)."),
        ({"ending": None}, ", and fedper may still be the best."),
        ({"ending": "winner"}, ": it is the best, decided after 8 seeds."),
        ({"look": 0, "needs": {"fedcac": 5}}, "Not decided yet: the first look is at 5 seeds."),
        ({"look": 0}, "Nothing can be decided: there is no run to compare fedcac with."),
        ({"candidates": []}, "No method has been evaluated yet."),
    ):
        assert sequential_answer(study, SequentialTest(**{**state, **more})).endswith(words)
    out = SequentialTest(**state, ending="winner", out={"fedper": ("fedcac", Bound(0.1, 0.05, 0.2, 0.01, 8))})
    study.plan.ends = {"fedper": ["train.lr"]}
    assert sequential_answer(study, out).endswith(f"after 8 seeds; but {EDGE.format('fedper')}, so no winner is named.")


def test_a_grid_that_adds_seeds_has_the_answer_of_its_sequential_test(sequential):
    study = sequential()
    study.plan.subject = "fedcac"
    assert study_answer(study, []) == sequential_answer(study, study.sequential_test)


def test_settings_name_a_winner_where_it_leads_often_enough(tmp_path):
    levels = {"local": 0.5, "fedper": 0.8}
    survey = SettingsStudy.load(write_matrix(tmp_path, levels, levels, spread=0.0, seeds=tuple(range(4))))
    assert survey.ranking.groups == []
    assert settings_answer(survey) == (
        "fedper has the best mean rank over 2 settings: 1.00 of 2, ahead of local (2.00, p = 0.008)."
    )
    doubted = judged(survey, "alpha=0.5", ends={"local": ["train.lr"]})
    assert settings_answer(doubted).endswith(f"; but in alpha=0.5 {EDGE.format('local')}, so no winner is named.")


def test_settings_with_sequential_tests_are_answered_one_by_one(tmp_path):
    survey = SettingsStudy.load(write_matrix(tmp_path, FEW, FEW, asked={"": {"rounds": 2, "clients": 4}}, **SEQUENTIAL))
    first, second = survey.studies
    state = {"look": 5, "candidates": ["fedcac", "fedper"], "seeds": dict.fromkeys(FEW, 5)}
    for more, words in (
        ({"ending": "tie"}, "fedcac leads, equal to it within 2 points: fedper"),
        ({"ending": "within"}, "fedcac is best or within 2 points of the best, and fedper may be better"),
        ({"ending": "open"}, "it is undecided: fedcac and fedper may be the best"),
        ({"needs": {"fedper": 8}}, "it is not decided yet: fedcac and fedper may be the best"),
        ({"look": 0, "needs": {"fedper": 8}}, "nothing is decided yet"),
        ({"look": 0}, "nothing can be decided"),
    ):
        said = settings_answer(judged(survey, first, test=SequentialTest(**{**state, **more})))
        assert said == f"In {first} {words}; in {second} fedcac is the best."
    doubted = judged(survey, first, ends={"fedper": ["train.lr"]})
    assert settings_answer(doubted).startswith(f"In {first} fedcac beats all others, but {EDGE.format('fedper')}; in ")


@pytest.mark.parametrize("label", ["centralized", "centralized ft_epochs=1"])
@pytest.mark.parametrize("rule", [None, {"margin": 2.0, "most": 5}])
def test_what_pools_the_data_never_competes_whatever_its_label(make_comparison: Make, label: str, rule: Any) -> None:
    folder = make_comparison({**FEW, label: 0.95}, seeds=FIVE, spread=0.01, **({"stopping_rule": rule} if rule else {}))
    survey = SettingsStudy.load(folder)
    study, rows = survey.first_study, survey.rows
    assert [row.label for row in rows] == ["fedcac", "fedper", "local", label]
    assert (rows[-1].rank, rows[-1].behind, rows[-1].tone) == (None, None, "baseline")
    assert best_for_sure(study, rows) == "fedcac"
    said = answer_of(folder)
    assert said.startswith("fedcac ")
    assert label not in said.splitlines()[0]
    assert said.splitlines()[0] in page_of(folder).text
    if rule:
        assert label not in {
            *study.sequential_test.candidates,
            *study.sequential_test.out,
            *study.sequential_test.over_local,
            *study.sequential_test.needs,
        }


def test_a_rival_that_lacks_a_seed_may_be_better_than_the_winner_of_a_sequential_test(make_comparison: Make) -> None:
    levels = {"local": 0.6, "fedper": 0.7, "fedcac": 0.9}
    said = answer_of(make_comparison(levels, fail={"fedcac": (3,)}, **SEQUENTIAL))
    assert said.startswith("fedper reached ")
    assert said.endswith("decided after 5 seeds; but 1 of 5 seeds of fedcac failed, so no winner is named.")
    study = Study.load(make_comparison(levels, fail={"fedcac": (3,)}, **SEQUENTIAL))
    board = {row.label: row.standing.who_is_best for row in leaderboard(study)}
    assert board["fedper"] == "ahead of all, but in doubt"


def test_a_method_with_nobody_to_compare_with_is_not_the_best(make_comparison: Make) -> None:
    alone = {"fedper": 0.6, "centralized": 0.9}
    assert answer_of(make_comparison(alone, **SEQUENTIAL)).endswith("; there is nothing to compare it with.")


def test_the_best_of_a_grid_is_ahead_of_all_and_not_behind_all(make_grid: Make) -> None:
    for gain, best in ((0.2, "fedcac"), (-0.2, None)):
        study = Study.load(make_grid(gain=gain, seeds=FIVE))
        assert ahead_of_all(study, leaderboard(study)) == best


def test_the_best_mean_may_be_behind_over_common_seeds(make_comparison: Make) -> None:
    study = Study.load(make_comparison({"fedper": 0.7, "fedcac": 0.8}, seeds=FIVE))
    first, rival = leaderboard(study)
    assert ", the best of 2 methods and " in comparison_answer(study, [first, rival])
    vars(rival)["behind"] = replace(rival.behind, interval=interval([-0.02, -0.03, -0.025]))
    said = comparison_answer(study, [first, rival])
    assert ", the best mean of 2 methods, but over the seeds of both it is 2.5 points behind fedper (" in said
    assert said.endswith("), so no winner is named.")


def test_equal_differences_over_few_seeds_may_be_chance():
    gain, metric = interval([0.01] * 3), load("classification").primary
    said = gain_text(metric, gain, Verdict("fedcac", "local", gain))
    assert said.endswith("; all seeds show the same, so with 3 seeds it is undecided whether collaboration helped.")
