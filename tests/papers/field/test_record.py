"""field.parquet: one number a row, with its own dictionary."""

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fedbench.errors import ConfigError
from fedbench_papers.field.record import ABOUT, COLUMNS, FIELD_FILE, QUANTITIES, RECORDED, FieldRecord
from tests.papers.field.made import SCORES, about, made_record, rows_of


def test_a_record_comes_back_as_it_was_written(tmp_path):
    record = made_record()
    record.write(tmp_path / FIELD_FILE)
    again = FieldRecord.read(tmp_path / FIELD_FILE)
    pd.testing.assert_frame_equal(again.numbers, record.numbers)
    assert again.about == record.about
    assert [path.name for path in tmp_path.iterdir()] == [FIELD_FILE]


def test_the_file_says_what_its_columns_and_quantities_mean(tmp_path):
    made_record().write(tmp_path / FIELD_FILE)
    words = json.loads(pq.read_schema(tmp_path / FIELD_FILE).metadata[ABOUT])
    assert words["columns"] == COLUMNS
    assert words["quantities"] == QUANTITIES
    frame = pd.read_parquet(tmp_path / FIELD_FILE)
    assert list(frame) == [*COLUMNS]
    assert set(frame["quantity"]) <= QUANTITIES.keys()


def test_a_setting_that_is_measured_again_replaces_what_stood_there():
    again = rows_of("clothes", {"local": [0.1]}, {})
    record = made_record().with_setting("clothes", again, about("Clothes anew"))
    assert len(record.numbers[record.numbers["setting"] == "clothes"]) == len(again)
    assert record.about["clothes"]["title"] == "Clothes anew"
    assert "lungs" in record.about


def test_a_method_is_added_beside_the_others():
    own = rows_of("clothes", {"mine:Mine": [0.8, 0.8]}, {"mine:Mine": (0.1, 0.0, 0.2)})
    record = made_record().with_methods("clothes", own, about("Clothes", chosen={"mine:Mine": {"train.lr": 0.1}}))
    clothes = record.numbers[record.numbers["setting"] == "clothes"]
    assert set(clothes["method"]) == {*SCORES, "mine:Mine"}
    assert record.about["clothes"]["added"] == ["mine:Mine"]
    assert record.about["clothes"]["chosen"] == {"mine:Mine": {"train.lr": 0.1}}
    assert len(record.with_methods("clothes", own, about("Clothes")).numbers) == len(record.numbers)


def test_records_of_several_machines_are_merged_the_latest_of_a_setting_counts():
    dates = {0.1: "2026-01-02T10:00:00", 0.2: "2026-01-02T11:00:00"}
    early, late = (one_setting("a", value, date=date) for value, date in dates.items())
    other = one_setting("b", 0.3)
    for one, two in ((early, late), (late, early)):
        merged = one.merged([two, other])
        scores = merged.numbers[merged.numbers["quantity"] == "score"].set_index("setting")["value"]
        assert scores.to_dict() == {"a": 0.2, "b": 0.3}


def one_setting(name: str, value: float, **more) -> FieldRecord:
    return FieldRecord().with_setting(name, rows_of(name, {"local": [value]}, {}), about(name, **more))


@pytest.mark.parametrize("is_mine_later", [False, True])
def test_merging_keeps_methods_that_were_added_to_either(is_mine_later):
    """As with one machine for each part of the settings, all of which began with the same record."""
    own = rows_of("clothes", {"mine:Mine": [0.8]}, {"mine:Mine": (0.1, 0.0, 0.2)})
    date = "2026-02-01" if is_mine_later else "2026-01-01"
    mine = made_record().with_methods("clothes", own, about("Clothes", date=date))
    for one, two in ((mine, made_record()), (made_record(), mine)):
        merged = one.merged([two])
        assert "mine:Mine" in merged.methods()
        assert merged.about["clothes"]["added"] == ["mine:Mine"]
        assert set(merged.about) == {"clothes", "lungs"}
        assert not merged.numbers.duplicated([name for name in COLUMNS if name != "value"]).any()


def test_a_method_that_is_added_again_is_judged_anew():
    own = rows_of("clothes", {"mine:Mine": [0.8]}, {})
    broken = made_record().with_methods("clothes", own, about("Clothes", degenerate=["mine:Mine"]))
    assert broken.about["clothes"]["degenerate"] == ["mine:Mine"]
    assert broken.with_methods("clothes", own, about("Clothes")).about["clothes"]["degenerate"] == []
    failed = made_record().with_methods("clothes", own.iloc[:0], about("Clothes", failed={"mine:Mine": "no model"}))
    assert failed.about["clothes"]["failed"] == {"mine:Mine": "no model"}


@pytest.mark.parametrize("content", [None, b"", b"PAR1 nothing"])
def test_what_is_no_record_is_named(tmp_path, content):
    file = tmp_path / FIELD_FILE
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=FIELD_FILE):
        FieldRecord.read(file)


def test_another_table_is_no_record(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / FIELD_FILE)
    with pytest.raises(ConfigError, match="no record of the field"):
        FieldRecord.read(tmp_path / FIELD_FILE)


def test_the_shipped_record_is_one_number_a_row():
    numbers = FieldRecord.read(RECORDED).numbers
    assert not numbers.duplicated([name for name in COLUMNS if name != "value"]).any()
    assert numbers["value"].notna().all()
