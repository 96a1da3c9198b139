"""The field is run, measured and written down; what is done is not done again, and methods are added alone."""

from dataclasses import replace

import pytest

from fedbench.errors import ConfigError
from fedbench.report.study import Study
from fedbench_papers.field.record import FIELD_FILE, FieldRecord
from fedbench_papers.field.standings import Field
from fedbench_papers.field.study import (
    FieldRun,
    is_plain,
    merge_field,
    refusals,
    require_same_protocol,
    run_field,
    with_comparison,
)
from tests.papers.field.made import made_record
from tests.papers.field.small import KEYS, RUN

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("field")]


@pytest.fixture(autouse=True)
def no_shipped_record(monkeypatch, tmp_path):
    """Whoever has no record of their own begins with the shipped one, which these tests do without."""
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


def test_a_method_is_added_alone(out):
    before = FieldRecord.read(out / "field" / FIELD_FILE)
    jobs = sorted((out / "field" / "digits").rglob("metrics.jsonl"))
    times = [path.stat().st_mtime_ns for path in jobs]
    run_field(FieldRun(RUN.plan, ["digits"], methods=["fedavg"], keys=KEYS, out=out), trials=1)
    after = Field(FieldRecord.read(out / "field" / FIELD_FILE))
    assert set(after.methods) == {*before.methods(), "fedavg"}
    assert [path.stat().st_mtime_ns for path in jobs] == times
    assert after.about("digits")["runs"] == 25


def test_runs_that_are_elsewhere_leave_the_other_rows_as_they_were(out):
    record = FieldRecord.read(out / "field" / FIELD_FILE)
    study, run = Study.load(out / "field" / "digits"), replace(RUN, methods=["fedper"])
    elsewhere = made_record().numbers.assign(setting="digits").replace({"method": {"fedavg": "ditto"}})
    about = {**record.about["digits"], "added": []}
    told = FieldRecord().with_setting("digits", elsewhere, about)
    after = with_comparison(told, run, "digits", study, {})
    assert set(after.numbers["method"]) == {*elsewhere["method"]}
    kept = after.numbers[after.numbers["method"] != "fedper"]
    assert len(kept) == (elsewhere["method"] != "fedper").sum()
    assert after.about["digits"]["added"] == ["fedper"]


def test_a_setting_that_is_compared_again_keeps_the_methods_that_were_added(out):
    record = FieldRecord.read(out / "field" / FIELD_FILE)
    own = made_record().numbers.query("method == 'fedper' and setting == 'clothes'").assign(setting="digits")
    about = {**record.about["digits"], "chosen": {"mine:Mine": {"train.lr": 0.1}, "local": {"train.lr": 9}}}
    added = record.with_methods("digits", own.assign(method="mine:Mine"), about)
    after = with_comparison(added, replace(RUN, methods=[]), "digits", Study.load(out / "field" / "digits"), {})
    assert "mine:Mine" in after.methods()
    assert after.about["digits"]["added"] == ["mine:Mine"]
    assert after.about["digits"]["chosen"]["mine:Mine"] == {"train.lr": 0.1}
    assert after.about["digits"]["chosen"].get("local") != {"train.lr": 9}


def test_a_variant_is_added_by_its_label():
    assert replace(RUN, methods=["fedcac:tau=0.3", "fedper"]).labels == ["fedcac tau=0.3", "fedper"]
    assert [name for name in ("fedcac tau=0.3", "fedper") if is_plain(name)] == ["fedper"]


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


def test_settings_in_which_no_named_method_applies_are_left_out(out, tmp_path, caplog):
    run = FieldRun(RUN.plan, ["digits"], methods=["fedmosaic"], keys=KEYS, out=tmp_path)
    with pytest.raises(ConfigError, match=r"setting digits: fedmosaic: .*public"):
        run_field(run, trials=1)
    with pytest.raises(ConfigError, match="fedpre"):
        run_field(replace(run, methods=["fedpre"]), trials=1)
    with pytest.raises(ConfigError, match="given twice"):
        run_field(replace(run, methods=["fedper", "fedper"]), trials=1)


def test_a_setting_that_is_recorded_by_another_protocol_is_refused(out):
    record = FieldRecord.read(out / "field" / FIELD_FILE)
    config = RUN.plan.config("digits", {}, KEYS)
    require_same_protocol(record, "digits", config)
    require_same_protocol(record, "another", config)
    with pytest.raises(ConfigError, match=r"setting digits: is recorded with rounds = 3, and the plan has 4"):
        require_same_protocol(record, "digits", config.model_copy(update={"rounds": 4}))


def test_refusals_stay_where_a_method_is_added_beside_its_runs(out):
    record = FieldRecord.read(out / "field" / FIELD_FILE)
    told = {**record.about["digits"], "refused": {"fedbn": "no BatchNorm"}}
    before = FieldRecord(record.numbers, {"digits": told})
    after = with_comparison(before, RUN, "digits", Study.load(out / "field" / "digits"), {})
    assert after.about["digits"]["refused"] == {"fedbn": "no BatchNorm"}
    assert "fedper" in after.about["digits"]["added"]
