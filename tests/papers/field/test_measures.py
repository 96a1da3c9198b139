"""What a comparison measured, as rows of the record."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.report.leaderboard import leaderboard
from fedbench.report.study import Study
from fedbench.results.contrasts import contrast
from fedbench.results.plan import Entry
from fedbench.results.statistics import interval
from fedbench_papers.field import measures
from fedbench_papers.field.measures import about, beside_recorded, doubt_of, heterogeneity, looks_of, measure
from fedbench_papers.field.record import FIELD_FILE, FieldRecord
from fedbench_papers.field.standings import Field
from tests.papers.field.made import GAIN
from tests.papers.field.small import score_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("field")]


def test_its_numbers_are_those_of_the_comparison(out):
    study = Study.load(out / "field" / "digits")
    field = Field(FieldRecord.read(out / "field" / FIELD_FILE))
    for label in ("fedper", "local"):
        scores = study.last_rows(label).set_index("seed")["test_accuracy"].to_dict()
        assert field.by_seed("digits", label, "score", "after_agg") == scores
    verdict = next(row.over_local for row in leaderboard(study) if row.label == "fedper")
    bound, gain = verdict.interval, field.gain("digits", "fedper", "local")
    assert (gain.mean, gain.low, gain.high) == (bound.mean, bound.low, bound.high)


def test_a_method_is_compared_with_recorded_seeds_of_the_best(out):
    """As where the runs of the others are elsewhere."""
    numbers = measure("digits", Study.load(out / "field" / "digits"), "after_agg")
    own, others = numbers[numbers["method"] == "fedper"], numbers[numbers["method"] != "fedper"]
    others = others[others["quantity"] != "may_be_best"]
    others = others.replace({"method": {"fedavg-ft": "ditto"}})
    leads = pd.DataFrame([("digits", "ditto", None, None, "after_agg", "may_be_best", 1.0)], columns=[*others])
    rows = beside_recorded(pd.concat([others, leads]), own, "after_agg")
    best = rows[rows["against"] == "ditto"].set_index("quantity")["value"]
    paired = (score_of(numbers, "fedper") - score_of(numbers, "fedavg-ft")).tolist()
    ends = stats.ttest_1samp(paired, 0).confidence_interval(0.95)
    assert not rows.duplicated([name for name in rows if name != "value"]).any()
    (may,) = rows[rows["quantity"] == "may_be_best"]["value"]
    assert may == float(ends.high >= 0)
    told = [best[name] for name in GAIN]
    assert told == pytest.approx([float(np.mean(paired)), ends.low, ends.high])
    assert beside_recorded(others, own.iloc[:0], "after_agg").empty


def test_newcomers_are_judged_by_their_own_scores(out):
    numbers = measure("digits", Study.load(out / "field" / "digits"), "newcomers")
    ours, local = (score_of(numbers, name, "newcomers") for name in ("fedper", "local"))
    rows = numbers[(numbers["method"] == "fedper") & (numbers["point"] == "newcomers")]
    gain = rows[rows["against"] == "local"].set_index("quantity")["value"]
    others = int((numbers["quantity"] == "may_be_best").sum()) - 1
    ends = stats.ttest_1samp((ours - local).tolist(), 0).confidence_interval(1 - 0.05 / others)
    told = [gain["gain"], gain["gain_low"], gain["gain_high"]]
    assert told == pytest.approx([float((ours - local).mean()), ends.low, ends.high])
    assert set(numbers[numbers["quantity"] == "may_be_best"]["point"]) == {"newcomers"}


def test_a_measurement_has_each_number_once(out):
    numbers = measure("digits", Study.load(out / "field" / "digits"), "after_agg")
    keys = [name for name in numbers if name != "value"]
    assert not numbers.duplicated(keys).any()
    assert set(numbers["setting"]) == {"digits"}


def test_differences_that_the_comparison_does_not_test_are_corrected_for_methods_and_looks(out):
    study = Study.load(out / "field" / "digits")
    numbers = measure("digits", study, "after_agg")
    rows = numbers[(numbers["method"] == "fedper") & (numbers["against"] == "fedavg-ft")].set_index("quantity")["value"]
    count = numbers[(numbers["against"] == "fedavg-ft") & (numbers["quantity"] == "gain")]["method"].nunique()
    single = contrast(study.scores, "fedper", "fedavg-ft", "after_agg")
    ends = interval(single.interval.values, 1 - 0.05 / count, single.interval.samples)
    assert (rows["gain_low"], rows["gain_high"], rows["seeds"]) == (ends.low, ends.high, 5)
    assert looks_of(study) == 1  # of at most five seeds
    study.plan.stopping_rule = {"margin": 2, "most": 12}
    assert looks_of(study) == 3
    wider = measure("digits", study, "after_agg")
    wide = wider[(wider["method"] == "fedper") & (wider["against"] == "fedavg-ft")].set_index("quantity")["value"]
    assert wide["gain_low"] < rows["gain_low"]


def test_a_method_that_is_not_judged_is_not_among_the_best(out):
    study = Study.load(out / "field" / "digits")
    study.summaries["fedper"]["degenerate"] = study.summaries["fedper"]["seeds"]
    numbers = measure("digits", study, "after_agg")
    assert "fedper" not in set(numbers[numbers["quantity"] == "may_be_best"]["method"])
    later = measure("digits", study, "newcomers")
    assert "fedper" not in set(later[later["quantity"] == "may_be_best"]["method"])
    assert "centralized" not in set(numbers[numbers["quantity"] == "may_be_best"]["method"])


def test_a_doubt_about_newcomers_is_that_of_their_own_scores(out, monkeypatch):
    study = Study.load(out / "field" / "digits")
    noise = np.random.default_rng(0).normal(0, 0.001, (len(study.runs), 5))
    for row, (label, run) in zip(noise, study.runs.items(), strict=True):
        joined = run.newcomers()
        joined.attrs["scores"] = pd.Series(row + (0.5 if label == "fedper" else 0.9))
        monkeypatch.setattr(run, "newcomers", lambda joined=joined: joined)
    monkeypatch.setattr(measures, "scores_after_most_epochs", lambda metric, joined: joined.attrs["scores"])
    told = about(study, {"point": "newcomers"}, {})
    assert told["doubts"] == {}
    judged = measure("digits", study, "newcomers")
    worse = judged[(judged["method"] == "fedper") & (judged["quantity"] == "may_be_best")]
    assert worse["value"].tolist() == [0.0]
    study.plan.ends["fedper"], study.plan.choices["fedper"] = ["train.lr"], {"train.lr": 0.1}
    assert about(study, {"point": "newcomers"}, {})["doubts"]["fedper"].startswith("the best candidate of fedper is at")
    doubted = measure("digits", study, "newcomers")
    rows = doubted[doubted["method"] == "fedper"]
    assert "may_be_best" not in set(rows["quantity"])
    assert rows[(rows["quantity"] == "withheld") & (rows["against"] == "local")]["value"].tolist() == [1.0]


def test_a_method_of_which_a_seed_failed_is_not_judged_and_says_why(out):
    study = Study.load(out / "field" / "digits")
    place = next(i for i, e in enumerate(study.plan.entries) if (e.role, e.label, e.seed) == ("final", "fedper", 1))
    study.plan.entries[place] = replace(study.plan.entries[place], status="failed", error="no memory")
    other = Entry("candidate", "fedper", {}, 90, "x", "failed", "diverged in tuning")
    study.plan.entries.insert(0, other)
    told = about(study, {"point": "after_agg"}, {})
    assert told["failed"] == {"fedper": "1 of 6 seeds of fedper failed: no memory"}


@pytest.mark.parametrize(
    ("stated", "doubt", "why"),
    [
        ("better", "", ""),
        ("withheld", "tuned unequally", "tuned unequally"),
        ("withheld", "", "an outlying seed decides"),
    ],
)
def test_a_better_method_with_a_doubt_decides_nothing(stated, doubt, why):
    assert doubt_of(SimpleNamespace(behind=SimpleNamespace(stated=stated, doubt=doubt))) == why
    assert doubt_of(SimpleNamespace(behind=None)) == ""


def test_heterogeneity_is_the_mean_distance_of_class_distributions():
    alike, apart = [[5, 5], [10, 10]], [[10, 0], [0, 10]]
    assert heterogeneity([alike]) == 0
    assert heterogeneity([apart]) == pytest.approx(0.5)
    assert heterogeneity([alike, apart]) == pytest.approx(0.25)
    assert heterogeneity([[[3, 1], [0, 0], [1, 3]]]) == pytest.approx(0.25)
    assert heterogeneity([]) is None
