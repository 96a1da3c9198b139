"""The columns of images, labels and domains are found, agree between files, and hold what they should."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.sources.test_parquet import load, refused


def test_plain_binary_images_and_a_chosen_label_column(tmp_path, encode, pixels):
    table = pa.table({"pic": [encode(a) for a in pixels(5)], "a": [0, 1, 0, 1, 0], "b": [2, 1, 0, 2, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert "which column holds the images?" in refused(tmp_path / "a.parquet")
    dataset = load(tmp_path / "a.parquet", image_column="pic", label_column="b")
    assert dataset.labels.tolist() == [2, 1, 0, 2, 1]
    assert dataset.classes == 3
    assert "did you mean pic?" in refused(tmp_path / "a.parquet", image_column="pics", label_column="b")


def test_two_columns_that_could_hold_the_labels_are_asked_about(tmp_path, encode, pixels):
    images = [encode(array) for array in pixels(10)]
    table = {"image": pa.array(images, pa.binary()), "label": [0, 1] * 5, "target": [1, 0, 2, 1, 0] * 2}
    pq.write_table(pa.table(table), tmp_path / "all.parquet")
    line = "label and target could be the label: set data.label_column to one of them"
    assert line in refused(tmp_path / "all.parquet")
    assert load(tmp_path / "all.parquet", label_column="target").classes == 3


@pytest.fixture
def write_domains(tmp_path, encode, pixels):
    """A file with a column of domains; names: those declared in its metadata."""

    def write(domains: list, names: list[str] | None = None, column: str = "domain") -> Path:
        images = [encode(a) for a in pixels(len(domains))]
        table = pa.table({"image": images, "label": [i % 2 for i in range(len(domains))], column: domains})
        if names:
            features = {column: {"_type": "ClassLabel", "names": names}, "label": {"_type": "ClassLabel"}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, tmp_path / "d.parquet")
        return tmp_path / "d.parquet"

    return write


def test_a_domain_column_by_names_or_numbers(write_domains):
    dataset = load(write_domains(["photo", "art", "art", "photo", "art"]))
    assert dataset.domain_names == ("art", "photo")
    assert dataset.domains.tolist() == [1, 0, 0, 1, 0]
    dataset = load(write_domains([7, 3, 3, 7, 10]))
    assert (dataset.domain_names, dataset.domains.tolist()) == (("3", "7", "10"), [1, 0, 0, 1, 2])
    dataset = load(write_domains([1, 0, 0, 2, 1], ["art", "photo", "sketch"]))
    assert (dataset.domain_names, dataset.domains.tolist()) == (("art", "photo", "sketch"), [1, 0, 0, 2, 1])
    assert load(write_domains(["a", "b"] * 5, column="style"), domain_column="style").domain_names == ("a", "b")
    assert load(write_domains(["a", "b"] * 5, column="style")).domains is None


def test_wrong_domains(write_domains):
    assert refused(write_domains(["a", None, "b", "a", "b"])).endswith("d.parquet, row 1: the domain is missing")
    assert "row 3: domain 2 is outside the declared ones; 0 to 1" in refused(write_domains([0, 1, 0, 2, 0], ["a", "b"]))
    assert "column domain holds double" in refused(write_domains([0.5] * 5))
    path = write_domains(["a"] * 5)
    assert "data.domain_column = 'style': no such column" in refused(path, domain_column="style")


def test_labels_of_the_wrong_type(tmp_path, write_parquet, encode, pixels):
    images = [encode(array) for array in pixels(2)]
    for labels, kind in ((["a", "b"], "string"), ([0.0, 1.0], "double")):
        path = write_parquet(tmp_path / "a.parquet", images, labels)
        assert refused(path).endswith(f"column label holds {kind}; labels are whole numbers or booleans")


def test_images_of_the_wrong_type(tmp_path):
    pq.write_table(pa.table({"image": [[1, 2], [3, 4]], "label": [0, 1]}), tmp_path / "a.parquet")
    assert "column image holds list<" in refused(tmp_path / "a.parquet")
