"""The field is run, measured and written down; what is done is not done again, and methods are added alone."""

from dataclasses import replace
from math import comb

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.errors import ConfigError
from fedbench.report.leaderboard import leaderboard
from fedbench.report.study import Study
from fedbench_papers.field.measures import beside_recorded, measure
from fedbench_papers.field.plan import FieldPlan
from fedbench_papers.field.record import FIELD_FILE, FieldRecord
from fedbench_papers.field.standings import Field
from fedbench_papers.field.study import FieldRun, merge_field, refusals, run_field, with_comparison
from tests.papers.field.made import GAIN, made_record

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("field")]
PLAN = {
    "tuning": {"tune": 0, "until_decided": True, "margin": 2, "max_seeds": 5},
    "common": {
        "rounds": 3,
        "evaluate": {"every": 3},
        "model": {"name": "mlp", "hidden": 8},
        "data": {"name": "digits"},
    },
    "settings": {
        "digits": {
            "title": "Digits",
            "like": "Digits of several writers",
            "kind": "labels",
            "config": {
                "partition": {"name": "dirichlet", "clients": 4, "alpha": 0.5, "min_images": 25, "total": 240}
                | {"new_clients": 1},
            },
        },
    },
}
KEYS = {"resources.hosts": 0}
RUN = FieldRun(FieldPlan.model_validate(PLAN), ["digits"], methods=["fedper"], keys=KEYS)


def score_of(numbers, method, point="after_agg"):
    rows = numbers[(numbers["method"] == method) & (numbers["quantity"] == "score") & (numbers["point"] == point)]
    return rows.set_index("seed")["value"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A results folder with one setting and the baselines beside fedper."""
    folder = tmp_path_factory.mktemp("field")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench_papers.field.study.RECORDED", folder / "shipped.parquet")
        run_field(replace(RUN, out=folder), trials=1)
    return folder


@pytest.fixture(autouse=True)
def no_shipped_record(monkeypatch, tmp_path):
    monkeypatch.setattr("fedbench_papers.field.study.RECORDED", tmp_path / "none.parquet")


def test_a_setting_is_compared_and_recorded(out):
    field = Field(FieldRecord.read(out / "field" / FIELD_FILE))
    assert set(field.methods) == {"fedper", "local", "centralized", "fedavg-ft"}
    assert field.about("digits")["runs"] == 20
    assert 0 < field.about("digits")["heterogeneity"] < 1
    assert field.number("digits", "fedper", "megabytes") > field.number("digits", "local", "megabytes") == 0
    assert field.gain("digits", "fedper", "fedavg-ft") is not None
    assert field.gain("digits", "fedper", "local", "after_fit") is not None
    assert (out / "field" / "report.html").exists()
    assert (out / "field" / "digits" / "report.html").exists()


def test_its_numbers_are_those_of_the_comparison(out):
    study = Study.load(out / "field" / "digits")
    field = Field(FieldRecord.read(out / "field" / FIELD_FILE))
    for label in ("fedper", "local"):
        scores = study.last_rows(label).set_index("seed")["test_accuracy"].to_dict()
        assert field.by_seed("digits", label, "score", "after_agg").to_dict() == scores
    verdict = next(row.over_local for row in leaderboard(study) if row.label == "fedper")
    bound, gain = verdict.interval, field.gain("digits", "fedper", "local")
    assert (gain.mean, gain.low, gain.high) == (bound.mean, bound.low, bound.high)


def test_a_method_is_added_alone(out):
    before = FieldRecord.read(out / "field" / FIELD_FILE)
    jobs = sorted((out / "field" / "digits").rglob("metrics.jsonl"))
    times = [path.stat().st_mtime_ns for path in jobs]
    run_field(FieldRun(RUN.plan, ["digits"], methods=["fedavg"], keys=KEYS, out=out), trials=1)
    after = Field(FieldRecord.read(out / "field" / FIELD_FILE))
    assert set(after.methods) == {*before.methods(), "fedavg"}
    assert [path.stat().st_mtime_ns for path in jobs] == times
    assert after.about("digits")["runs"] == 25


def test_a_method_is_compared_with_recorded_seeds_of_the_best(out):
    """As where the runs of the others are elsewhere."""
    numbers = measure("digits", Study.load(out / "field" / "digits"), "after_agg")
    own, others = numbers[numbers["method"] == "fedper"], numbers[numbers["method"] != "fedper"]
    others = others[others["quantity"] != "may_be_best"]
    leads = pd.DataFrame([("digits", "fedavg-ft", None, None, "after_agg", "may_be_best", 1.0)], columns=[*others])
    rows = beside_recorded(pd.concat([others, leads]), own, "after_agg")
    best = rows[rows["against"] == "fedavg-ft"].set_index("quantity")["value"]
    scores = {name: score_of(numbers, name) for name in ("fedper", "fedavg-ft")}
    paired = (scores["fedper"] - scores["fedavg-ft"]).tolist()
    ends = stats.ttest_1samp(paired, 0).confidence_interval(0.95)
    told = rows[(rows["quantity"].isin(GAIN)) & (rows["against"] == "fedavg-ft")].tail(3)["value"].tolist()
    assert told == pytest.approx([float(np.mean(paired)), ends.low, ends.high])
    (may,) = rows[rows["quantity"] == "may_be_best"]["value"]
    assert may == float(ends.high >= 0)
    assert len(best) >= 3


def test_runs_that_are_elsewhere_leave_the_other_rows_as_they_were(out):
    record = FieldRecord.read(out / "field" / FIELD_FILE)
    study, run = Study.load(out / "field" / "digits"), replace(RUN, methods=["fedper"])
    elsewhere = made_record().numbers.assign(setting="digits").replace({"method": {"fedavg": "ditto"}})
    told = FieldRecord().with_setting("digits", elsewhere, record.about["digits"])
    after = with_comparison(told, run, "digits", study, {})
    assert set(after.numbers["method"]) == {*elsewhere["method"]}
    kept = after.numbers[after.numbers["method"] != "fedper"]
    assert len(kept) == (elsewhere["method"] != "fedper").sum()
    assert after.about["digits"]["added"] == ["fedper"]


def test_newcomers_are_judged_by_their_own_scores(out):
    numbers = measure("digits", Study.load(out / "field" / "digits"), "newcomers")
    ours, local = (score_of(numbers, name, "newcomers") for name in ("fedper", "local"))
    rows = numbers[(numbers["method"] == "fedper") & (numbers["point"] == "newcomers")]
    gain = rows[rows["against"] == "local"].set_index("quantity")["value"]
    pairs = comb(int((numbers["quantity"] == "may_be_best").sum()), 2)
    ends = stats.ttest_1samp((ours - local).tolist(), 0).confidence_interval(1 - 0.05 / pairs)
    told = [gain["gain"], gain["gain_low"], gain["gain_high"]]
    assert told == pytest.approx([float((ours - local).mean()), ends.low, ends.high])
    assert set(numbers[numbers["quantity"] == "may_be_best"]["point"]) == {"newcomers"}


def test_records_are_merged_into_that_of_a_folder(out, tmp_path):
    merged = merge_field(tmp_path / "field", [out / "field"])
    assert FieldRecord.read(merged.folder / FIELD_FILE).settings() == ["digits"]
    assert merged.report.exists()
    with pytest.raises(ConfigError, match="no such file"):
        merge_field(tmp_path / "field", [tmp_path])


def test_methods_that_do_not_apply_are_named_with_the_reason():
    config = RUN.plan.config("digits", {}, KEYS)
    (refusal,) = refusals(config, ["fedmosaic", "fedper", "local"])
    assert refusal[0] == "fedmosaic"
    assert "public" in refusal[1]


def test_a_method_that_is_asked_for_must_apply(tmp_path):
    run = FieldRun(RUN.plan, ["digits"], methods=["fedmosaic"], keys=KEYS, out=tmp_path)
    with pytest.raises(ConfigError, match=r"setting digits: fedmosaic: .*public"):
        run_field(run, trials=1)
    with pytest.raises(ConfigError, match="fedpre"):
        run_field(FieldRun(RUN.plan, ["digits"], methods=["fedpre"], keys=KEYS, out=tmp_path), trials=1)


def test_a_measurement_has_each_number_once(out):
    numbers = measure("digits", Study.load(out / "field" / "digits"), "after_agg")
    keys = [name for name in numbers if name != "value"]
    assert not numbers.duplicated(keys).any()
    assert set(numbers["setting"]) == {"digits"}
