"""Why a method that a test finds better may not be the best."""

import pytest

from fedbench.report.doubts import doubts, doubts_of_lead, with_doubt
from fedbench.report.study import Study
from fedbench.results.verdict import Bound, Verdict
from tests.report.test_answer import CLEAR, EDGE

BATCHES = {"evaluate": {"accuracy": "batches", "batch_size": 9}}


@pytest.fixture
def study(make_comparison) -> Study:
    return Study.load(make_comparison(CLEAR, spread=0.0))


def test_a_loser_may_have_a_better_candidate_than_its_best(study):
    assert doubts(study, "fedcac", "fedper", 0.1) == ""
    study.plan.ends = {"fedper": ["train.lr"]}
    assert doubts(study, "fedcac", "fedper", 0.1) == EDGE.format("fedper")
    assert doubts(study, "fedcac", "fedper", -0.1) == ""
    study.plan.ends, study.plan.untried = {}, {"fedper": ["train.lr"]}
    assert doubts(study, "fedcac", "fedper", 0.1).startswith("not all neighbours of the best candidate of fedper were")


def test_methods_must_have_had_the_same_budget(study):
    entries = study.plan.entries
    study.plan.entries = [e for e in entries if not (e.label == "fedper" and e.values == {"train.lr": 1.0})]
    assert doubts(study, "fedcac", "fedper", 0.1) == "fedcac was tuned over 3 candidates and fedper over 2"


def test_numbers_must_be_whole_alike_and_not_degenerate(study, make_comparison):
    study.summaries["fedper"]["degenerate"] = True
    assert doubts(study, "fedcac", "fedper", 0.1) == "fedper is degenerate"
    study.summaries["fedper"]["complete"] = False
    assert doubts(study, "fedcac", "fedper", 0.1) == "the runs of fedper are not complete"
    mixed = Study.load(make_comparison(CLEAR, name="mixed", asked={"local": BATCHES}))
    said = "fedper is scored by the mean over samples and local by the mean over batches of 9"
    assert doubts(mixed, "fedper", "local", 0.1) == said


def test_nobody_leads_over_a_method_that_failed(make_comparison):
    study = Study.load(make_comparison(CLEAR, fail={"fedper": (0, 1, 2)}))
    assert doubts_of_lead(study, "fedcac", ["local"]) == "fedper failed"


def test_only_what_is_decided_has_a_doubt(study):
    study.plan.ends = {"fedper": ["train.lr"]}
    found = Verdict("fedcac", "fedper", Bound(0.1, 0.05, 0.2, 0.01, 5))
    assert with_doubt(study, found).doubt == EDGE.format("fedper")
    assert with_doubt(study, Verdict("fedcac", "fedper", Bound(0.1, -0.05, 0.2, 0.01, 5))).doubt == ""
