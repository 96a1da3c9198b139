"""Parquet files in Hugging Face's layout, whole and broken."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedbench.data import Dataset
from fedbench.data.sources.parquet import open_parquet
from fedbench.errors import ConfigError
from tests.data import loading
from tests.data.loading import with_any_damage


def load(path: Path, **options) -> Dataset:
    return loading.load(f"parquet:{path}", **options)


refused = partial(loading.refused, load)


@pytest.fixture
def parts(tmp_path, write_parquet, encode, pixels) -> Path:
    """A folder with two training shards (5 and 4 rows) and a test shard (3 rows)."""
    names = ["cat", "dog", "owl"]
    for file, start, count in (
        ("train-00000-of-00002", 0, 5),
        ("train-00001-of-00002", 5, 4),
        ("test-00000-of-00001", 9, 3),
    ):
        images = [encode(array) for array in pixels(12)[start : start + count]]
        labels = [row % 3 for row in range(start, start + count)]
        write_parquet(tmp_path / "set" / f"{file}.parquet", images, labels, names)
    return tmp_path / "set"


def test_shards_in_order_with_pixels_labels_and_names(parts, pixels):
    dataset = load(parts)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (9, 3, (3, 6, 6))
    np.testing.assert_array_equal(dataset.samples, pixels(12).transpose(0, 3, 1, 2))
    assert dataset.labels.tolist() == [row % 3 for row in range(12)]
    assert dataset.class_names == ("cat", "dog", "owl")


@pytest.mark.parametrize("name", ["validation-00000-of-00001", "my-val", "validation/0000"])
def test_a_validation_part_stands_in_for_a_missing_test_part(parts, name):
    target = parts / f"{name}.parquet"
    target.parent.mkdir(exist_ok=True)
    (parts / "test-00000-of-00001.parquet").rename(target)
    assert load(parts).test_rows == 3


def test_a_validation_part_validates_or_tests_where_that_is_asked(parts, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(4)]
    write_parquet(parts / "validation-00000-of-00001.parquet", images, [0, 1, 2, 0], ["cat", "dog", "owl"])
    dataset = load(parts)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (13, 4, 3)
    assert load(parts, test_part="val").test_rows == 4


def test_hidden_labels_are_refused_and_the_validation_part_is_offered(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(4)]
    for part, labels in (("train", [0, 1, 0, 1]), ("validation", [1, 0, 1, 0]), ("test", [-1] * 4)):
        write_parquet(tmp_path / f"{part}-00000-of-00001.parquet", images, labels)
    assert "data.test_part val uses the validation part for testing" in refused(tmp_path)
    assert load(tmp_path, test_part="val").labels.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_a_file_without_parts_is_one_part_with_its_rows_as_they_lie(parts, pixels):
    dataset = load(parts / "train-00000-of-00002.parquet")
    assert (dataset.train_rows, dataset.test_rows, dataset.one_part) == (5, 0, True)
    np.testing.assert_array_equal(dataset.samples, pixels(12)[:5].transpose(0, 3, 1, 2))
    assert dataset.warnings == ()


def test_size_resizes_and_mixed_sizes_are_refused_without_it(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in (*pixels(6), *pixels(1, side=7))]
    path = write_parquet(tmp_path / "a.parquet", images, [0, 1, 0, 1, 0, 1, 0])
    assert refused(path).endswith(
        "a.parquet, row 6: the image is 7x7 of 3 channels, those before it are 6x6 of 3 channels; "
        "all must agree (data.size=N resizes them to NxN)"
    )
    assert load(path, size=4).shape == (3, 4, 4)


def test_parts_are_known_in_whatever_case_they_are_written(parts):
    expected = load(parts)
    for file in sorted(parts.iterdir()):
        file.rename(file.with_name(file.name.capitalize()))
    found = load(parts)
    assert (found.train_rows, found.test_rows) == (expected.train_rows, expected.test_rows) == (9, 3)


def test_fine_labels_are_the_default_where_there_are_coarse_ones_too(shared):
    assert load(shared / "cifar100").classes == 100
    assert load(shared / "cifar100", label_column="coarse_label").classes == 20


def test_real_cifar10(shared):
    dataset = load(shared / "cifar10")
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (5230, 870, (3, 32, 32))
    assert np.bincount(dataset.labels[:5230]).tolist() == [523] * 10
    assert dataset.class_names[:2] == ("airplane", "automobile")
    assert dataset.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.005)


def test_no_file(tmp_path):
    assert "no such file or folder" in refused(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "no *.parquet file in it" in refused(tmp_path / "empty")


@pytest.mark.parametrize("keep", [0, 10, 200, -4])
def test_truncated_files(parts, keep):
    file = parts / "train-00001-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    assert "train-00001-of-00002.parquet: damaged or incomplete parquet file" in refused(parts)


def test_a_missing_shard(parts):
    (parts / "train-00001-of-00002.parquet").unlink()
    assert "train-00001-of-00002.parquet is missing" in refused(parts)


def test_no_rows(tmp_path, write_parquet):
    path = write_parquet(tmp_path / "a.parquet", [], pa.array([], pa.int64()))
    assert refused(path).endswith("a.parquet: no rows in it")


def test_a_damaged_image(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(6)]
    for broken, text in ((b"", "not an image"), (b"hello", "not an image"), (images[3][:70], "the image is damaged")):
        path = write_parquet(tmp_path / "a.parquet", [*images[:3], broken, *images[4:]], [0, 1] * 3)
        assert f"a.parquet, row 3: {text}" in refused(path)


def test_a_missing_image_and_a_missing_label(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(6)]
    path = write_parquet(tmp_path / "a.parquet", [*images[:5], None], [0, 1] * 3)
    assert refused(path).endswith("a.parquet, row 5: no image bytes in column image")
    path = write_parquet(tmp_path / "b.parquet", images, [0, 1, None, 1, 0, 1])
    assert refused(path).endswith("b.parquet, row 2: the label is missing")


def test_labels_outside_the_class_range(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(6)]
    path = write_parquet(tmp_path / "a.parquet", images, [0, 1, 2, 1, 0, 1], ["cat", "dog"])
    assert refused(path).endswith("a.parquet, row 2: label 2 is outside the class range; 0 to 1")
    path = write_parquet(tmp_path / "b.parquet", images, [0, 1, -1, 1, 0, 1])
    assert "b.parquet, row 2: label -1 is outside" in refused(path)
    path = write_parquet(tmp_path / "c.parquet", images, [0, 1, 10**12, 1, 0, 1])
    assert load(path).class_labels == ("0", "1", str(10**12))
    assert "label 1 is outside the class range; 0 to 0" in refused(path, classes=1)


@partial(with_any_damage, examples=150)
def test_any_damage_is_one_line_or_harmless(data, tmp_path, write_parquet, encode, pixels, load_damaged):
    path = write_parquet(tmp_path / "a.parquet", [encode(a) for a in pixels(10)], [0, 1] * 5, ["cat", "dog"])
    dataset = load_damaged(data, path, f"parquet:{path}")
    assert dataset is None or (len(dataset.labels), {*dataset.labels} <= {0, 1}) == (10, True)


@pytest.fixture
def write_table(tmp_path):
    """A file of columns, with the names of classes as Hugging Face declares them."""

    def write(columns: dict, names: list[str] | None = None, file: str = "table.parquet") -> Path:
        table = pa.table(columns)
        if names:
            features = {"label": {"_type": "ClassLabel", "names": names}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, tmp_path / file)
        return tmp_path / file

    return write


def test_a_table_is_read_as_a_csv_table_is(write_table):
    columns = {"age": [30.5, 20.0, 40.0, 50.0, 60.0], "job": ["cook", "pilot"] * 2 + ["cook"], "who": [3, 3, 12, 3, 12]}
    dataset = load(write_table({**columns, "label": [1, 0, 1, 0, 1]}, ["ill", "well"]), user="who")
    assert (dataset.train_rows, dataset.kind, dataset.class_names) == (5, "feature", ("ill", "well"))
    np.testing.assert_array_equal(dataset.samples[0], np.float32([30.5, 1, 0]))
    assert dataset.domain_names == ("3", "12")
    assert load(write_table({**columns, "y": [1, 0, 1, 0, 1]}), domain_column="who", drop=["job"]).shape == (1,)
    assert (
        load(write_table({**columns, "y": [1, 0, 1, 0, 1]}), label_column="age", task="regression").task == "regression"
    )


def test_a_column_of_lists_holds_a_vector_per_row(write_table):
    label = [0, 1, 0, 1, 0]
    floats = np.random.default_rng(0).normal(size=(5, 3))
    dataset = load(write_table({"x": floats.tolist(), "label": label}))
    np.testing.assert_array_equal(dataset.samples, floats.astype(np.float32))
    tokens = load(write_table({"input_ids": [[row, 7] for row in range(5)], "label": label}))
    assert (tokens.kind, tokens.shape, tokens.samples[4].tolist()) == ("token", (2,), [4, 7])
    assert any("--data.kind feature for counts" in line for line in tokens.warnings)
    counts = load(write_table({"input_ids": [[row, 7] for row in range(5)], "label": label}), kind="feature")
    assert counts.kind == "feature"
    assert load(write_table({"x": [[[1.0, 2.0]] * 4] * 5, "label": label})).shape == (4, 2)


def test_a_tables_parts_are_its_files(write_table, tmp_path):
    for part, rows in (("train-00000-of-00002", 3), ("train-00001-of-00002", 2), ("validation", 1), ("test", 2)):
        write_table({"x": [float(row) for row in range(rows)], "label": [0, 1, 0][:rows]}, file=f"{part}.parquet")
    dataset = load(tmp_path)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (6, 1, 2)
    assert dataset.samples[:, 0].tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    write_table({"x": ["a"], "label": [0]}, file="test.parquet")
    assert "test.parquet: columns or their types differ from those in train-00000-of-00002.parquet" in refused(tmp_path)


@pytest.mark.parametrize(
    ("train", "test"),
    [("training", "testing"), ("UNSW_NB15_training-set", "UNSW_NB15_testing-set"), ("train", "dev")],
)
def test_files_have_every_name_of_a_part_as_a_word(write_table, tmp_path, train, test):
    for file, rows in ((train, 6), (test, 3)):
        write_table({"x": np.arange(rows) / 7, "label": np.arange(rows) % 2}, file=f"{file}.parquet")
    dataset = load(tmp_path)
    assert (dataset.train_rows, dataset.test_rows) == (6, 3)
    assert not any("ignored" in line for line in dataset.warnings)


@pytest.mark.parametrize(
    ("one", "other", "users"),
    [
        ("dept=training/a", "dept=sales/a", ("sales", "training")),
        ("env=dev/a", "env=prod/a", ("dev", "prod")),
        ("web_dev", "web_ops", ()),
        ("training_log", "game_log", ()),
    ],
)
def test_other_names_are_columns_or_files_of_one_part(write_table, tmp_path, one, other, users):
    for file in (one, other):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write_table({"x": np.arange(12) / 7, "label": np.arange(12) % 2}, file=f"{file}.parquet")
    dataset = load(tmp_path)
    assert (dataset.train_rows, dataset.test_rows, tuple(dataset.domain_names)) == (24, 0, users)


def test_pandas_index_is_no_feature(tmp_path):
    table = pd.DataFrame({"x": np.arange(5.0), "label": [0, 1, 0, 1, 0]}, index=pd.Index([9, 8, 7, 6, 5], name="id"))
    table.to_parquet(tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").shape == (1,)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"x": [["a"], ["b"], ["c"]]}, {}, "row 1: column x holds something else than a list of numbers"),
        ({"x": [[1.0], [None], [2.0]]}, {}, "contains values that are not finite"),
        ({"x": [{"a": 1}] * 3}, {}, "column x holds struct<a: int64>; numbers, booleans, text and lists of numbers"),
        ({"x": [1.0, 2.0, 3.0]}, {"size": 3}, "data.size = 3: "),
        ({"x": [0.5, 2.0, 3.0]}, {"kind": "token"}, "fractional numbers are not tokens"),
        ({"image": [[1, 2]] * 3}, {}, "--data.kind feature or token reads a table of numbers"),
    ],
)
def test_tables_that_cannot_be_read(write_table, columns, options, text):
    assert text in refused(write_table({**columns, "label": [0, 1, 0]}), **options)


def test_columns_beside_images_need_not_be_dropped(parts):
    assert "data.drop = ['label']: " in refused(parts, drop=["label"])


def test_unknown_options_and_values_out_of_range(parts):
    assert "unknown key data.label_colum" in refused(parts, label_colum="x")
    assert "did you mean label_column" in refused(parts, label_colum="x")
    assert refused(parts, size=0).startswith("data.size = 0: ")


def test_a_line_for_the_reader_of_an_open_file_stays(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"^a line$"), open_parquet(tmp_path / "a.parquet"):
        raise ConfigError("a line")


def test_folders_name_value_are_a_column_and_the_users_if_there_is_one(write_table, tmp_path):
    columns = {"a": np.arange(60) / 7, "label": np.arange(60) % 2}
    for site in ("site=b", "site=a"):
        (tmp_path / "sites" / site).mkdir(parents=True)
        write_table(columns, file=f"sites/{site}/0.parquet")
    dataset = load(tmp_path / "sites")
    assert (dataset.train_rows, dataset.shape, dataset.domain_names) == (120, (1,), ("a", "b"))
    assert dataset.domains.tolist() == [0] * 60 + [1] * 60
    as_feature = load(tmp_path / "sites", categories=["site"])
    assert (as_feature.shape, as_feature.domains) == ((3,), None)
    for part in ("train", "test"):
        for year in ("year=2025", "year=2026"):
            (tmp_path / "parts" / f"split={part}" / year).mkdir(parents=True)
            write_table({**columns, "user": [3, 4] * 30}, file=f"parts/split={part}/{year}/0.parquet")
    dataset = load(tmp_path / "parts")
    assert (dataset.train_rows, dataset.test_rows, dataset.domain_names) == (120, 120, ("3", "4"))
    assert dataset.samples[58:62, 1].tolist() == [2025, 2025, 2026, 2026]


def test_folders_name_value_of_images_are_refused(parts, tmp_path):
    (tmp_path / "sites").mkdir()
    parts.rename(tmp_path / "sites" / "site=a")
    assert "site=a is a column of tables, and train-00000-of-00002.parquet has images; write the" in refused(
        tmp_path / "sites"
    )


def test_bytes_of_users_are_no_images(write_table):
    columns = {"a": [0.5, 1.0, 2.0], "user": [b"\0", b"\1", b"\0"], "label": [0, 1, 0]}
    assert "column user holds bytes; numbers, booleans, text" in refused(write_table(columns))
    assert load(write_table(columns), drop=["user"]).shape == (1,)


def test_categories_of_numbers_are_categories_as_in_a_frame(tmp_path):
    frame = pd.DataFrame({"k": pd.Categorical([10, 20, 30] * 4), "a": np.arange(12) / 7, "label": [0, 1] * 6})
    frame.to_parquet(tmp_path / "table.parquet")
    whole = load(tmp_path / "table.parquet")
    assert whole.columns == ("k=10", "k=20", "k=30", "a")
    assert (whole.samples == loading.load(frame).samples).all()
    (tmp_path / "table.parquet").unlink()
    for name, rows in (("a", frame[frame["k"] != 30]), ("b", frame[frame["k"] == 30])):
        rows.assign(k=rows["k"].cat.remove_unused_categories()).to_parquet(tmp_path / f"{name}.parquet", index=False)
    assert load(tmp_path).columns == whole.columns


def test_two_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(pa.table([[1.0, 2.0], [1.0, 2.0], [0, 1]], names=["a", "a", "label"]), tmp_path / "a.parquet")
    assert refused(tmp_path / "a.parquet").endswith("a.parquet: two columns are called a; rename one")


@pytest.mark.parametrize("known", ["{", "[]", "3", '{"index_columns": 3}', '{"info": {"features": {"label": 3}}}'])
def test_metadata_of_another_form_are_as_good_as_none(tmp_path, known):
    table = pa.table({"a": [0.5, 1.0, 2.0], "label": [0, 1, 0]})
    for features in (known, "{", '{"info": {"features": [1]}}'):
        described = table.replace_schema_metadata({"pandas": known, "huggingface": features})
        pq.write_table(described, tmp_path / "a.parquet")
        assert load(tmp_path / "a.parquet").classes == 2


def test_parts_that_disagree_about_the_classes(parts, write_parquet, encode, pixels):
    write_parquet(parts / "test-00000-of-00001.parquet", [encode(pixels(1)[0])], [0], ["dog", "cat", "owl"])
    assert "test-00000-of-00001.parquet: class names differ from those in train-00000-of-00002.parquet" in refused(
        parts
    )


def test_a_named_index_with_a_role_is_a_column_and_another_is_named(tmp_path, load):
    table = pd.DataFrame({"a": np.arange(12) / 7, "user": ["ann", "bob", "eve"] * 4, "y": [0, 1] * 6})
    (file,) = (tmp_path / "t.parquet",)
    table.set_index("user").to_parquet(file)
    assert load(f"parquet:{file}").domain_names == load(f"parquet:{file}", user="user").domain_names
    assert load(f"parquet:{file}").domain_names == ("ann", "bob", "eve")
    table.drop(columns="user").set_axis(pd.Index([*range(5, 17)][::-1], name="visit")).to_parquet(file)
    assert (
        "index visit is left out; --data.numbers visit or --data.categories visit makes it a feature"
        in load(f"parquet:{file}").remarks
    )
    assert load(f"parquet:{file}", numbers=["visit"]).shape == (2,)
    table.drop(columns="user").to_parquet(file)
    assert load(f"parquet:{file}").shape == (1,)


def test_shards_may_lack_values_and_have_dictionaries_of_their_own(tmp_path, load, refused):
    def write(*columns):
        for number, column in enumerate(columns):
            table = pa.table({"a": np.arange(12) / 7, "k": column, "y": [0, 1] * 6})
            pq.write_table(table, tmp_path / f"{number}.parquet")
        return f"parquet:{tmp_path}"

    texts = [pa.array(pair * 6).dictionary_encode() for pair in (["p", "q"], ["r", "q"])]
    data = load(write(*texts))
    np.testing.assert_array_equal(data.samples[[0, 1, 12, 13], 1:], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
    numbers = pa.array(range(12))
    data = load(write(numbers, pa.array([None, *range(11)])), impute="median")
    np.testing.assert_array_equal(data.samples[11:14, 1:], [[11, 0], [np.nan, 1], [0, 0]])
    data = load(write(numbers, pa.nulls(12)), impute="median")
    np.testing.assert_array_equal(data.samples[11:13, 1:], [[11, 0], [np.nan, 1]])
    line = "differ from those in 0.parquet: column k holds int32 and int64; write one, or --data.drop k"
    assert line in refused(write(numbers, numbers.cast(pa.int32())))
