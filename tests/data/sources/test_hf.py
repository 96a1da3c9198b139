"""Sets of the library `datasets`, of which a small double has the attributes in use."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

Rows = list[dict[str, Any]]


class Split:
    """Like datasets.Dataset: rows, features by column, and a fingerprint of both."""

    def __init__(self, rows: Rows, classes: list[str] | None = None) -> None:
        self.rows, self.classes = rows, classes
        self.features = {
            name: SimpleNamespace(names=classes) if name == "label" and classes else SimpleNamespace(dtype="x")
            for name in rows[0]
        }
        self._fingerprint = str(hash(repr(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


@pytest.fixture
def hub(monkeypatch) -> dict[str, Any]:
    """What the library can load by (name, configuration); `asked` notes the calls."""
    known: dict[str, Any] = {"asked": []}
    library = ModuleType("datasets")

    def load_dataset(name: str, config: str | None = None) -> Any:
        known["asked"].append((name, config))
        if name not in known:
            raise FileNotFoundError(f"Couldn't find any data file at {name}.\nSecond line")
        return known[name]

    library.load_dataset = load_dataset
    library.load_from_disk = lambda path: known[path]
    monkeypatch.setitem(sys.modules, "datasets", library)
    return known


def pictures(count: int, first: int = 0) -> Rows:
    values = range(first, first + count)
    return [
        {"image": Image.fromarray(np.full((4, 4), v, np.uint8)), "label": v % 2, "writer": f"w{v % 3}"} for v in values
    ]


def test_splits_columns_and_class_names_are_found(hub, load):
    classes = ["even", "odd"]
    hub["owner/set"] = {"train": Split(pictures(6), classes), "test": Split(pictures(3, 6), classes)}
    dataset = load("hf:owner/set")
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (6, 3, (1, 4, 4))
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(9)]
    assert (dataset.class_names, dataset.domain_names) == (("even", "odd"), ("w0", "w1", "w2"))
    assert dataset.labels.tolist() == [v % 2 for v in range(9)]


def test_names_configurations_and_paths(hub, load, tmp_path):
    parts = {"train": Split(pictures(6)), "test": Split(pictures(3))}
    hub.update({"one": parts, "owner/set": parts, str(tmp_path / "files"): parts, str(tmp_path / "saved"): parts})
    load("hf:one")
    load("hf:owner/set/fr")
    load("hf:owner/set", config="de")
    (tmp_path / "files").mkdir()
    load(f"hf:{tmp_path / 'files'}")
    assert hub["asked"] == [("one", None), ("owner/set", "fr"), ("owner/set", "de"), (str(tmp_path / "files"), None)]
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_dict.json").touch()
    assert load("hf:saved", root=tmp_path).train_rows == 6
    assert len(hub["asked"]) == 4, "what was saved is loaded from disk"


def test_a_validation_split_validates_or_tests(hub, load, refused):
    hub["set"] = {"train": Split(pictures(6)), "validation": Split(pictures(2, 6)), "extra": Split(pictures(1))}
    dataset = load("hf:set")
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (6, 0, 2)
    assert {"splits that are not read: extra", "the validation part holds the test samples"} <= {*dataset.warnings}
    hub["set"]["test"] = Split(pictures(3, 8))
    dataset = load("hf:set")
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (8, 2, 3)
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(11)]
    assert load("hf:set", test_part="val").test_rows == 2
    del hub["set"]["validation"]
    assert "data.test_part = val: hf:set has no such split; it has train, extra, test" in refused(
        "hf:set", test_part="val"
    )


def test_one_split_is_one_part(hub, load):
    hub["set"] = Split(pictures(10))
    dataset = load("hf:set")
    assert dataset.one_part
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(10)]


def test_columns_are_named_and_other_data_are_read_anew(hub, load, refused):
    rows = [{"a": [0.5, float(v)], "b": v % 2, "c": v % 3} for v in range(5)]
    hub["set"] = {"train": Split(rows), "test": Split(rows)}
    dataset = load("hf:set", sample="a", label="b", user="c")
    assert (dataset.shape, dataset.kind, dataset.domain_names) == ((2,), "feature", ("0", "1", "2"))
    assert "which key holds the label?" in refused("hf:set", sample="a")
    rows = [{"a": [0.5, 9.0], "b": v % 2, "c": 0} for v in range(5)]
    hub["set"] = {"train": Split(rows), "test": Split(rows)}
    assert load("hf:set", sample="a", label="b", user="c").samples[0, 1] == 9


def test_texts_are_to_be_tokenised(hub, load, refused):
    rows = [{"text": "so it goes", "label": v % 2, "input_ids": [1, v]} for v in range(5)]
    hub["set"] = {"train": Split(rows), "test": Split(rows)}
    assert "the samples are texts; tokenise them in a function" in refused("hf:set", sample="text")
    assert load("hf:set").kind == "token"


def test_what_cannot_be_loaded_is_one_line(hub, refused, monkeypatch):
    assert "data hf:owner/none: the library datasets cannot load it (Couldn't find any data file at owner/none.)" in (
        refused("hf:owner/none")
    )
    hub["set"] = {"test": Split(pictures(3))}
    assert refused("hf:set").endswith("no split train; it has test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    line = refused("hf:set")
    assert line.startswith("data hf:set: the library datasets is not installed (")
    assert line.endswith("): pip install datasets")


def tokens(count: int, first: int = 0) -> Rows:
    values = range(first, first + count)
    return [
        {"text": "a b", "input_ids": [1] * (1 + v % 3), "attention_mask": [1] * (1 + v % 3), "label": v % 2}
        for v in values
    ]


def test_tokens_with_masks_are_padded_and_keep_their_names(hub, load, refused):
    classes = ["good", "bad"]
    hub["one"] = {"train": Split(tokens(6), classes), "test": Split(tokens(3), classes)}
    assert "--data.collate pad fills up with zeros" in refused("hf:one")
    dataset = load("hf:one", collate="pad")
    assert str(dataset.fields) == "input_ids [3], attention_mask [3]"
    assert dataset.samples[:3].tolist() == [[1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
    assert (dataset.fields.label, dataset.class_names) == ("label", ("good", "bad"))
