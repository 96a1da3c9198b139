"""Data as Python objects are read like those of a factory, and a table like `csv:PATH`."""

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.partitions import partition
from fedbench.data.split import Split, scale_and_shift
from tests.data import loading
from tests.data.loading import load

X = np.arange(60, dtype=np.float32).reshape(20, 3) / 7
Y = np.arange(20) % 2
USERS = ["bob", "ann"] * 10
FRAME = pd.DataFrame({"a": X[:, 0], "colour": ["red", "blue"] * 10, "y": Y, "person": USERS})

HOLE = FRAME.assign(y=FRAME["y"].where(FRAME.index != 6))


refused = partial(loading.refused, load)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (torch.tensor(X), torch.tensor(Y)),
        (X.tolist(), Y.tolist()),
        {"x": X, "label": Y},
        [(x, int(y)) for x, y in zip(X, Y, strict=True)],
        torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y)),
    ],
)
def test_one_part_stays_one_with_its_rows_as_they_lie(data):
    dataset = load(data)
    assert (dataset.train_rows, dataset.test_rows, dataset.classes, dataset.kind) == (20, 0, 2, "feature")
    assert (dataset.samples == X).all()
    assert (dataset.labels == Y).all()
    assert dataset.one_part
    assert not dataset.remarks


@pytest.mark.parametrize("form", [np.asarray, torch.tensor, lambda x: [(a, b) for a, b in zip(X, x, strict=True)]])
def test_one_float_in_a_row_stays_a_row(form):
    """So a `DataLoader` gives it: `[b]` would broadcast against outputs of `[b, 1]`."""
    held = X[:, :1] * 2 + 0.5
    given = form(held)
    data = given if isinstance(given, list) else (X, given)
    assert load(data).targets.shape == (20, 1)
    assert load((X, held[:, 0])).targets.shape == (20,)
    assert load((X, Y[:, None].astype(np.float32)), task="binary").targets.shape == (20, 1)
    for classes in (Y[:, None], Y[:, None].astype(np.float32)):
        assert load((X, classes)).targets.shape == (20,)


def test_two_parts_stay_as_they_are():
    for data in [(X, Y, X[:5] + 1, Y[:5]), {"train": (X, Y), "test": (X[:5] + 1, Y[:5])}]:
        dataset = load(data)
        assert (dataset.train_rows, dataset.test_rows, dataset.remarks) == (20, 5, ())
        assert (dataset.samples == np.concatenate([X, X[:5] + 1])).all()


def test_a_validation_part_is_validated_on_or_tested_on_if_there_is_no_test_part():
    dataset = load({"train": (X, Y), "validation": (X[:3], Y[:3]), "test": (X[:5] + 1, Y[:5])})
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (23, 3, 5)
    assert (dataset.samples[20:23] == X[:3]).all()
    dataset = load({"train": (X, Y), "validation": (X[:3] + 1, Y[:3])})
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (20, 0, 3)
    assert dataset.remarks == ("the validation part holds the test samples",)


ROWS = np.arange(60)


def test_classes_that_are_in_one_part_only_are_said():
    samples = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    assert load((samples, ROWS % 10)).warnings == (), "one part, of which every seed draws test samples by class"
    parts = samples, ROWS % 10, samples, ROWS % 2
    assert "8 of 10 classes have no samples in the test part: 2, 3, 4, 5, 6, 7, 8, 9" in load(parts).warnings
    missing = load((samples, ROWS % 3, samples[:5], np.arange(5) % 4)).warnings
    assert not any("have no samples" in line for line in missing), "of the last class there is only one"
    missing = load((samples, ROWS % 3, samples, ROWS % 4)).warnings
    assert "1 of 4 classes have no samples in the training part: 3" in missing


def test_targets_and_users_in_the_index_of_a_table_count_as_columns():
    table = pd.DataFrame({"id": ROWS, "user": ROWS % 4, "a": ROWS / 7, "label": ROWS % 3})
    plain = load(table[["user", "a", "label"]])
    for index in (["user"], ["user", "label"], ["id", "user"]):
        found = load(table.set_index(index).drop(columns=[] if "id" in index else "id"))
        assert (found.domains == plain.domains).all()
        assert (found.targets == plain.targets).all()
        assert (found.samples == plain.samples).all()


def test_a_table_is_read_as_a_file_is(tmp_path):
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    file = Dataset.load(Config(data=f"csv:{tmp_path}/table.csv").data)
    dataset = load(FRAME)
    for key in ("samples", "targets", "domains"):
        assert (getattr(dataset, key) == getattr(file, key)).all()
    assert dataset.domain_names == ("ann", "bob")
    assert (dataset.remarks, dataset.decisions) == (file.remarks, file.decisions)
    assert "column colour (2) holds categories" in [decision.said for decision in dataset.decisions]


def test_whole_numbers_of_a_frame_are_numbers_and_no_tokens():
    frame = pd.DataFrame({"age": ROWS + 30, "sex": ROWS % 2})
    one, several = load((frame, pd.Series(ROWS % 3))), load((frame, pd.get_dummies(ROWS % 3)))
    assert (one.columns, one.kind, several.kind) == (("age", "sex"), "feature", "feature")
    assert one.samples.tolist() == several.samples.tolist() == frame.to_numpy().tolist()


@pytest.mark.parametrize(
    "names", [["y", "class", "b"], ["", "a", "b"], ["a", "a", "b"], [("a", 1), ("a", 2), ("b", 1)]]
)
def test_columns_of_a_frame_beside_its_targets_are_features_whatever_their_names(names):
    frame = pd.DataFrame(X, columns=pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else names)
    found = load((frame, Y.tolist()))
    np.testing.assert_array_equal(found.samples, X)
    assert found.labels.tolist() == Y.tolist()


def test_users_beside_a_frame_are_its_users_whatever_its_columns_are_called():
    found = load((pd.DataFrame(X, columns=["client", "a", "b"]), Y, USERS))
    assert (found.domain_names, found.shape) == (("ann", "bob"), (3,))


def test_a_frame_of_texts_with_a_list_of_several_targets_is_one_line():
    assert "which takes one label per row, not 2" in refused((FRAME[["colour"]], np.eye(2, dtype=int)[Y].tolist()))


def test_tables_of_several_parts_with_named_columns():
    renamed = FRAME.rename(columns={"y": "outcome", "person": "who"})
    options = {"label": "outcome", "user": "who", "drop": ["a"]}
    dataset = load((renamed, renamed[:5]), **options)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (20, 5, (2,))
    assert dataset.samples[:2].tolist() == [[0, 1], [1, 0]]
    assert dataset.domain_names == ("ann", "bob")
    dataset = load({"train": renamed, "validation": renamed[:4], "test": renamed[:5]}, **options)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (24, 4, 5)
    dataset = load({"train": renamed, "val": renamed[:4]}, **options)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows) == (20, 0, 4)
    assert "the validation part holds the test samples" in dataset.remarks


@pytest.mark.parametrize(
    ("data", "options", "line"),
    [
        ((X, Y[:3]), {}, "train items: 20 rows of samples and 3 rows of targets; all must have the same number"),
        ([(X, Y), (X, Y), (X, Y), (X + np.nan, Y)], {}, "client 3, train item 0: contains "),
        ([(X, Y, USERS)] * 4, {}, "its 4 entries are clients, and their rows have users too; join the entries"),
        ((X, [0, 1] * 9 + [1, None]), {}, ", item 19: the label is missing"),
        ((X, Y), {"lable": 1}, "unknown key data.lable: "),
        ((X, Y), {"kind": "image"}, ", item 0: float32 [3] is not an image"),
        ((X, Y), {"root": "x"}, "are in memory; leave it out"),
        ({"train": {"x": X, "label": Y}, "test": {"x": X, "label": Y}}, {"label": "y"}, "data.label = 'y': "),
        (FRAME[["a", "colour"]], {}, "which column holds the label? Set data.label to one of a, colour"),
        (FRAME, {"sample": "a"}, "unknown key data.sample: "),
        (FRAME[:0], {}, "no rows in it"),
        ({"train": FRAME, "test": FRAME[["a", "y"]]}, {}, "the parts have different columns: one lacks colour"),
        (HOLE, {}, ", row 7: no value in column y (1 such rows)"),
        ({"train": FRAME, "test": HOLE}, {}, "/test, row 7: no value in column y (1 such rows)"),
        (FRAME.rename(columns={"a": "y"}), {}, "two columns are called y; rename one"),
    ],
)
def test_what_cannot_be_read_is_named(data, options, line):
    assert line in refused(data, **options)


class OnDisk(TorchDataset):
    """Its rows are in a file."""

    def __init__(self, file):
        self.file = str(file)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return np.load(self.file)[index], int(Y[index])


def test_rows_outside_memory_are_looked_at_by_every_command(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    before = load(OnDisk(tmp_path / "rows.npy"))
    np.save(tmp_path / "rows.npy", X + 1)
    after = load(OnDisk(tmp_path / "rows.npy"))
    assert before.name == after.name
    assert (after.samples == before.samples + 1).all()
    assert before.content != after.content


ELSEWHERE = """
import pickle, sys
from fedbench.data import Dataset
config = pickle.load(sys.stdin.buffer)
print(Dataset.load(config.data).content)
"""


def test_another_process_needs_the_copy_in_the_cache_alone():
    config = Config(data={"name": (X, Y), "val": 0.2})
    dataset = Dataset.load(config.data)
    assert subprocess.check_output([sys.executable, "-c", ELSEWHERE], input=pickle.dumps(config), text=None) == (
        f"{dataset.content}\n".encode()
    )


def test_a_process_that_does_not_know_the_objects_says_what_to_do():
    config = Config(data={"name": "memory:arrays@00000000", "val": 0.2})
    assert loading.refused(Dataset.load, config.data) == (
        "data memory:arrays@00000000: these data are objects of another Python process; start there, or pass them "
        "again: Config(data=...)"
    )


def ragged(items):
    """A collate function of the user's."""
    longest = max(len(ids) for ids, _ in items)
    rows = [[*ids, *[9] * (longest - len(ids))] for ids, _ in items]
    return {"ids": torch.tensor(rows), "mask": torch.tensor(rows) < 9, "label": torch.tensor([y for _, y in items])}


def test_items_of_unequal_sizes_need_a_collate_function():
    items = [(list(range(1 + row % 3)), row % 2) for row in range(20)]
    assert "fill them up with data.collate = pad" in refused(items)
    padded = load(items, collate="pad")
    assert padded.samples[:3].tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]
    own = load(items, collate=ragged)
    assert str(own.fields) == "ids [3], mask [3]"
    assert own.samples[1].tolist() == [0, 1, 9, 1, 1, 0]
    assert own.fields.label == "label"


def test_a_validation_part_that_names_other_classes_is_refused():
    class Named(list):
        def __init__(self, classes: list[str]) -> None:
            super().__init__(zip(X, Y, strict=True))
            self.classes = classes

    parts = {"train": Named(["cat", "dog"]), "test": Named(["dog", "cat"])}
    assert "the val part names other classes than the train part" in refused(parts | {"val": Named(["dog", "cat"])})
    assert load(parts | {"val": Named(["cat", "dog"])}).val_rows == 20


def test_a_list_or_dict_of_parts_of_one_form_is_clients_in_that_order():
    data = [(X[:n], Y[:n]) for n in (20, 9, 17, 20)]
    for names, given in ([*"0123"], data), (["d", "c", "b", "a"], dict(zip("dcba", data, strict=True))):
        config = Config(data=given)
        dataset = Dataset.load(config.data)
        rows = [len(own.train) + len(own.val) + len(own.test) for own in partition(dataset, config, 0).clients]
        assert rows == [20, 9, 17, 20]
        said = f"the 4 entries of the data are the clients {', '.join(names)}, in this order"
        assert said in [decision.said for decision in dataset.decisions]
    assert Config(data=data, partition="iid").partition.name == "iid"


def test_clients_may_have_parts_of_their_own():
    own = {"north": {"train": (X, Y), "test": (X[:5], Y[:5])}, "east": {"train": (X, Y), "test": (X[:4], Y[:4])}}
    four = {"north": (X, Y, X[:5], Y[:5]), "east": (X, Y, X[:4], Y[:4])}
    parts = {"train": {"north": (X, Y), "east": (X, Y)}, "test": {"north": (X[:5], Y[:5]), "east": (X[:4], Y[:4])}}
    for data in own, four, parts:
        dataset = load(data)
        assert (dataset.train_rows, dataset.test_rows, dataset.domain_names) == (40, 9, ("north", "east"))
        assert dataset.domains.tolist() == [0] * 20 + [1] * 20 + [0] * 5 + [1] * 4
    parts["test"] = {"north": (X, Y)}
    assert "the parts train and test have different clients" in refused(parts)


@pytest.mark.parametrize("count", [2, 3])
def test_whether_two_or_three_parts_of_one_form_are_clients_is_asked(count):
    tensors = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    for form in ([(X, Y)], [FRAME[["a", "y"]]], [tensors], [{"x": X, "label": Y}], [[(x, 1) for x in X]]):
        line = refused(form * count)
        assert f"data: {count} parts of one form" in line
        assert 'the parts of one data set (data={"train": ...' in line
        assert f'the data of {count} clients (data={{"a": ..., "b": ...}}' in line
    with_users = FRAME[["a", "y", "person"]]
    assert load((with_users, with_users[:5]), user="person").train_rows == 20


def test_an_entry_of_as_many_rows_as_targets_is_no_sample_unless_the_task_says_so():
    items = [(np.full((30, 4), k, np.float32), (np.arange(30) + k) % 2) for k in range(6)]
    assert load(items).shape == (4,)
    assert load(items, task="multilabel").shape == (30, 4)
    masks = [(np.zeros((8, 8), np.float32), np.eye(8, dtype=int))] * 6
    assert "6 entries of arrays [8, 8] and [8, 8]: clients of 8 rows each" in refused(masks)
    assert load(masks, task="segmentation").shape == (8, 8)
    assert load({str(k): own for k, own in enumerate(masks)}).shape == (8,)


def test_windows_are_standardised_per_sensor_whichever_dimension_they_are():
    windows = np.random.default_rng(0).normal(size=(50, 32, 3)) * [1.0, 40.0, 0.02] + [9.8, 0.0, 36.6]
    for axis, samples in ((1, windows), (2, windows.transpose(0, 2, 1))):
        dataset = load((samples.astype(np.float32), np.arange(50) % 2))
        held = torch.from_numpy(dataset.samples)
        x, _ = Split(held, torch.arange(50), torch.zeros(50), scale_and_shift(dataset), ()).batch(torch.arange(50))
        torch.testing.assert_close(x.mean((0, axis)), torch.zeros(3), atol=1e-3, rtol=0)
        torch.testing.assert_close(x.std((0, axis)), torch.ones(3), atol=1e-2, rtol=0)
        assert len(load((samples, np.arange(50) % 2), mean=[0.0], std=[1.0, 2.0, 3.0]).std) == 3
