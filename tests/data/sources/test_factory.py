"""Any map-style data set by dotted name."""

import re
import sys
from functools import partial
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.reading.items import FEW_ITEMS
from fedbench.data.split import Split, scale_and_shift
from fedbench.errors import ConfigError
from tests.data import loading


class Items(list):
    """A map-style data set."""

    classes = ("cat", "dog")


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module of a user, with one factory."""
    module = ModuleType("mine")
    module.make = lambda: (toy(10), toy(4))
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def toy(count: int, image=None) -> Items:
    return Items((np.full((4, 5), row, np.uint8) if image is None else image, row % 2) for row in range(count))


load = partial(loading.load, "mine:make")
refused = partial(loading.refused, load)


def test_a_factory_of_a_pair(mine):
    dataset = load()
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (10, 4, (1, 4, 5))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.samples[:, 0, 0, 0].tolist() == [*range(10), *range(4)]


def test_columns_of_frames_of_its_parts_go_by_name(mine):
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": [9.25, 8.5, 7.5]})
    mine.make = lambda: ((frame, [0, 1, 0]), (frame[["b", "a"]], [0, 1, 0]))
    assert load().samples[3:].tolist() == frame.to_numpy().tolist()


def test_a_factory_by_part_with_options(mine):
    mine.make = lambda train, size=3: toy(size if train else 2)
    assert load(size=7).train_rows == 7
    assert "unknown key data.sise" in refused(sise=7)
    assert "did you mean size or" in refused(sise=7)
    mine.make = lambda train, scaled=True: toy(3)
    assert refused(scaled="no") == "data.scaled = 'no': mine:make takes true or false there"


def test_changed_data_are_read_again(mine):
    assert load().labels.tolist()[0] == 0
    mine.make = lambda: (Items(reversed(toy(10))), toy(4))
    assert load().labels.tolist()[0] == 1


def test_samples_of_several_shapes_are_refused_with_what_to_do(mine):
    mine.make = lambda: (Items((np.arange(3 + row), row % 2) for row in range(4)), Items([(np.arange(3), 1)]))
    assert "train item 1: the sample is of shape [4], those before it are of shape [3]" in refused()
    assert "fill them up with data.collate = pad" in refused()
    assert load(collate="pad").samples[:4].tolist()[1:3] == [[0, 1, 2, 3, 0, 0], [0, 1, 2, 3, 4, 0]]


def test_targets_of_unequal_lengths_are_padded_under_a_usual_name_too(mine):
    rows = [{"input_ids": np.arange(1, 3 + row), "labels": np.arange(2, 4 + row)} for row in range(3)]
    mine.make = lambda: (rows, rows[:1])
    found = load(collate="pad", task="next-token").targets
    assert found.tolist() == [[2, 3, -100, -100], [2, 3, 4, -100], [2, 3, 4, 5], [2, 3, -100, -100]]


def test_random_transforms_are_refused(mine):
    class Noisy(Items):
        def __getitem__(self, index):
            return np.random.default_rng().integers(0, 256, (4, 4), np.uint8), 0

    mine.make = lambda: (Noisy(range(5)), toy(2))
    assert "train item 0: the sample changes when read again" in refused()


def test_factories_that_are_none(mine):
    mine.make = lambda: 3
    assert "factory() that returns (train, test)" in refused()
    mine.make = lambda: (toy(3), toy(0))
    assert "the test part has 0 items; both parts are needed" in refused()
    mine.make = lambda: 1 / 0
    assert re.search(r"the factory failed: ZeroDivisionError: division by zero \(test_factory.py:\d+\)", refused())
    mine.make = lambda: (np.zeros((3, 2)), toy(3))
    assert "the train part is one ndarray; a factory returns (train, test), and each of them is" in refused()
    mine.make = 3
    assert "not a function" in refused()
    with pytest.raises(ConfigError, match=r"module mine has no mak; did you mean make\?"):
        Dataset.load(Config(data="mine:mak").data)
    with pytest.raises(ConfigError, match="module nowhere cannot be imported"):
        Dataset.load(Config(data="nowhere:make").data)


class Numbers(list):
    """A data set without classes."""


def features(count: int, target=lambda row: row / 2) -> Numbers:
    return Numbers((np.arange(6, dtype=np.float64).reshape(2, 3) + row, target(row)) for row in range(count))


def test_floats_are_features_and_float_targets_make_a_regression(mine):
    mine.make = lambda: (features(5), features(3))
    dataset = load(channels="single")
    assert (dataset.task, dataset.shape, dataset.outputs, dataset.classes) == ("regression", (2, 3), 1, 0)
    assert dataset.samples.dtype == dataset.targets.dtype == np.float32
    assert dataset.targets.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 0.0, 0.5, 1.0]
    samples = torch.from_numpy(dataset.samples)
    x, y = Split(samples, torch.arange(5), torch.zeros(5), scale_and_shift(dataset), ()).batch(torch.arange(5))
    torch.testing.assert_close(x.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    assert y.shape == (5,)


def test_a_target_may_be_several_numbers(mine):
    mine.make = lambda: (features(5, lambda row: torch.tensor([row, 1.0])), features(3, lambda row: [row, 0.5]))
    dataset = load(channels="single")
    assert (dataset.targets.shape, dataset.outputs) == ((8, 2), 2)


def test_whole_numbers_are_tokens_and_stay_as_they_are(mine):
    mine.make = lambda: (Items((np.arange(7) + row, row % 2) for row in range(4)), Items([(np.arange(7), 1)]))
    dataset = load()
    assert (dataset.task, dataset.shape, dataset.classes, dataset.mean) == ("classification", (7,), 2, ())
    split = Split(torch.from_numpy(dataset.samples), torch.arange(4), torch.zeros(4), scale_and_shift(dataset), ())
    assert torch.equal(split.batch(torch.tensor([2]))[0], torch.arange(2, 9)[None])
    assert "data.mean = [0.5]: mine:make has integers, which are not normalised" in refused(mean=[0.5])


def test_items_may_be_dicts(mine):
    rows = [{"image": np.full((4, 5), row, np.uint8), "label": row % 2, "writer_id": f"w{row % 3}"} for row in range(9)]
    mine.make = lambda: (rows, rows[:3])
    dataset = load()
    assert (dataset.shape, dataset.domain_names, dataset.labels.tolist()[:3]) == (
        (1, 4, 5),
        ("w0", "w1", "w2"),
        [0, 1, 0],
    )
    other = [{"pixels": row["image"], "what": row["label"], "who": row["writer_id"]} for row in rows]
    mine.make = lambda: (other, other)
    assert load(label="what", sample="pixels", user="who").domain_names == ("w0", "w1", "w2")


def test_keys_that_the_factory_takes_are_its_own(mine):
    mine.make = lambda kind="a": (toy(4), toy(2)) if kind == "a" else (features(4), features(3))
    assert load(kind="b", channels="single").task == "regression"
    mine.make = lambda: (toy(4), toy(2))
    assert "data.kind = 'b': must be image, feature, token or none" in refused(kind="b")


def test_a_class_without_samples_is_named(mine):
    class Animals(list):
        classes = ("cat", "dog", "owl")

    mine.make = lambda: (Animals(toy(10)), Animals(toy(4)))
    assert "1 of 3 classes have no samples: owl" in load().warnings


def test_a_subset_has_the_classes_of_the_whole(mine):
    whole = toy(10)
    mine.make = lambda: (torch.utils.data.Subset(whole, range(8)), torch.utils.data.Subset(whole, range(8, 10)))
    assert load().class_names == ("cat", "dog")


def test_classes_and_domains_of_both_parts_are_matched_by_name(mine):
    class Named(list):
        def __init__(self, rows, classes, domains):
            self.classes, self.domains = classes, domains
            super().__init__(
                (np.full((2, 2), 10 * c + d, np.uint8), classes.index("abc"[c]), domains.index("pqr"[d]))
                for c, d in rows
            )

    rows = [(c, d) for c in range(3) for d in range(3)]
    mine.make = lambda: (Named(rows, [*"abc"], [*"pqr"]), Named(rows, [*"cab"], [*"rpq"]))
    dataset = load()
    value = dataset.samples[:, 0, 0, 0].astype(int)
    assert (dataset.class_names, dataset.domain_names) == (("a", "b", "c"), ("p", "q", "r"))
    assert dataset.labels.tolist() == (value // 10).tolist()
    assert dataset.domains.tolist() == (value % 10).tolist()


def test_columns_of_labels_are_matched_by_name_too(mine):
    class Labelled(list):
        def __init__(self, classes):
            self.classes = classes
            rows = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]])[:, ["abc".index(name) for name in classes]]
            super().__init__((np.zeros(2), row) for row in rows)

    mine.make = lambda: (Labelled([*"abc"]), Labelled([*"cab"]))
    dataset = load()
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.targets[3:].tolist() == dataset.targets[:3].tolist()


def test_domains_of_one_part_or_of_some_items_alone_are_refused(mine):
    class Named(list):
        domains = ("ann", "bob")

    rows = [(np.zeros(2), row % 2, row % 2) for row in range(4)]
    mine.make = lambda: (Named(rows), rows)
    assert "one part names its `domains`, and the other does not" in refused()
    mine.make = lambda: (rows, [*rows, (np.zeros(2), 1)])
    assert "test item 4: it has no domain, unlike the first" in refused()


def test_a_part_without_a_length_is_named(mine):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(toy(4))

    mine.make = lambda: (Stream(), toy(4))
    assert "the train part is a Stream without a length" in refused()


def test_codes_of_categories_stay_as_they_are(mine):
    rng = np.random.default_rng(0)
    rows = np.c_[rng.normal(size=(60, 2)), rng.integers(0, 5, 60), rng.integers(30, 90, 60)]
    mine.make = lambda: ((rows, np.arange(60) % 2), (rows, np.arange(60) % 2))
    dataset = load()
    assert (dataset.mean[2], dataset.std[2]) == (0, 1)
    assert dataset.mean[3] == pytest.approx(rows[:, 3].mean())
    assert "columns 2 look like category codes and are not standardised, columns 3 of other" in dataset.scaling[0]
    own = load(mean=[0.0, 0, 1, 0], std=[1.0, 1, 2, 1])
    assert (own.mean[2], own.std[2], own.scaling) == (1, 2, ())


def test_one_changed_number_in_memory_is_noticed(mine):
    rows = np.arange(400.0).reshape(100, 4)
    mine.make = lambda: ((rows, np.arange(100) % 2), (rows, np.arange(100) % 2))
    before = load()
    rows[7, 2] += 1  # none of the items that are looked at of larger data
    after = load()
    assert after.samples[7, 2] == rows[7, 2]
    assert before.content != after.content
    assert load(content=after.content).content == after.content
    line = f"data.content = {before.content}, and they are {after.content} now"
    assert line in refused(content=before.content)


def test_the_same_bytes_in_another_shape_are_other_data(mine):
    rows = np.arange(60, dtype=np.float32)
    mine.make = lambda: ([(rows.reshape(4, 15), 0), (rows.reshape(4, 15), 1)],) * 2
    assert load(channels="single").shape == (4, 15)
    mine.make = lambda: ([(rows.reshape(15, 4), 0), (rows.reshape(15, 4), 1)],) * 2
    assert load(channels="single").shape == (15, 4)


def test_transparent_pictures_are_counted_once(mine):
    mine.make = lambda: (toy(10, Image.new("RGBA", (2, 2))), toy(2, Image.new("RGBA", (2, 2))))
    assert "12 images have transparent pixels" in load().warnings[0]


MANY = FEW_ITEMS + 100
"""Items of which not all are read on every start; number 2 is not."""


class Held(torch.utils.data.Dataset):
    """Rows in memory; more of what a data set may say of itself."""

    def __init__(self, rows, labels, **more):
        self.rows, self.held = rows, labels
        vars(self).update(more)

    def __len__(self):
        return len(self.held)

    def __getitem__(self, index):
        return self.rows[index], self.held[index]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda rows, labels: Held(rows, labels),
        lambda rows, labels: torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels)),
        lambda rows, labels: torch.utils.data.Subset(Held(rows, [*labels]), range(MANY)),
        lambda rows, labels: torch.utils.data.ConcatDataset(
            [Held(rows[:40], labels[:40]), Held(rows[40:], labels[40:])]
        ),
    ],
    ids=["own", "tensors", "subset", "concat"],
)
def test_one_changed_label_of_what_a_data_set_holds_is_noticed(mine, wrap):
    rows, labels = np.random.default_rng(0).normal(size=(MANY, 4)), np.arange(MANY) % 2
    mine.make = lambda: (wrap(rows, labels), toy_rows())
    before = load()
    assert before.warnings == ()
    labels[2] = 1 - labels[2]  # none of those that are read on every start
    assert load().labels[2] == labels[2] != before.labels[2]
    rows[2, 3] += 1
    assert load().samples[2, 3] == np.float32(rows[2, 3]) != before.samples[2, 3]


class Elsewhere(torch.utils.data.Dataset):
    """Not in memory, as far as anybody can see."""

    def __init__(self, rows):
        self.length, self.read = len(rows), lambda index: rows[index]

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.read(index), index % 2


def toy_rows(columns=4):
    return np.zeros((4, columns)), np.array([0, 1, 0, 1])


def test_another_root_is_other_data(mine):
    rows = np.random.default_rng(0).normal(size=(MANY, 4))
    other = np.concatenate([rows[:2], rows[2:3] * 2, rows[3:]])
    mine.make = lambda root: (Elsewhere({"a": rows, "b": other}[root.name]), toy_rows())
    assert [load(root=root).samples[2, 0] for root in "ab"] == [np.float32(rows[2, 0] * k) for k in (1, 2)]


def test_what_is_not_in_memory_is_looked_at_in_part_and_that_is_said(mine):
    rows = np.random.default_rng(0).normal(size=(MANY, 20))
    mine.make = lambda: (Elsewhere(rows), toy_rows(20))
    before = load()
    assert f"train: the samples seem to be outside memory: 32 of {MANY} are looked at" in before.warnings[0]
    rows[0] += 1  # the first one is looked at
    assert load().samples[0, 0] == np.float32(rows[0, 0])
    mine.make = lambda: (Elsewhere(rows[:FEW_ITEMS]), toy_rows(20))
    before = load()
    assert before.warnings == ()
    rows[2] += 1
    assert load().samples[2, 0] == np.float32(rows[2, 0]) != before.samples[2, 0]


def test_other_names_of_the_same_numbers_are_other_data(mine):
    rows, labels, names = np.zeros((20, 2)), np.arange(20) % 2, [["a", "b"], ["b", "a"]]
    mine.make = lambda: (Held(rows, labels, classes=names[0]), Held(rows, labels, classes=names[1]))
    assert load().labels[20:].tolist() == (1 - labels).tolist()
    names[1] = ["a", "b"]
    assert load().labels[20:].tolist() == labels.tolist()


def test_numbers_of_classes_that_contradict_each_other_are_refused(mine):
    rows, labels = np.zeros((20, 2)), np.arange(20) % 3
    mine.make = lambda: (Held(rows, labels, classes=["a", "b"]), Held(rows, labels % 2, classes=["a", "c"]))
    assert "train item 2: label 2 is outside the class range; 0 to 1" in refused()
    mine.make = lambda: (Held(rows, labels % 2, classes=["a", "b"]), Held(rows, labels, classes=4))
    assert "the train part says 2 classes and the test part 4" in refused()


def test_the_number_of_classes_may_stand_with_either_part(mine):
    rows, labels = np.zeros((20, 2)), np.arange(20) % 2
    for more in (({"classes": 4}, {}), ({}, {"classes": 4}), ({"classes": 4}, {"classes": 4})):
        mine.make = lambda more=more: tuple(Held(rows, labels, **own) for own in more)
        assert load().classes == 4


def test_a_number_of_classes_beside_numbers_is_refused(mine):
    rows, numbers = np.zeros((20, 2)), np.arange(20) / 7
    mine.make = lambda: (Held(rows, numbers), Held(rows, numbers))
    assert refused(classes=3, task="regression").endswith(
        "data.classes = 3: the task regression has no classes; leave it out"
    )


def test_close_large_numbers_are_refused(mine):
    rows = np.stack([1.7e9 + np.arange(60.0), np.random.default_rng(0).normal(size=60)], 1)
    mine.make = lambda: ((rows, np.arange(60) % 2), (rows, np.arange(60) % 2))
    assert "data mine:make, train: feature 0 goes from 1700000000 to" in refused()
    series = np.stack([rows, rows[::-1]], 2)[:, ::-1]
    mine.make = lambda: ((series, np.arange(60) % 2), (series, np.arange(60) % 2))
    assert "data mine:make, train: channel 1 goes from 1700000000 to" in refused()


def test_another_task_is_read_anew(mine):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    mine.make = lambda: ((rows, np.arange(20) % 4 * 1.0), (rows, np.arange(20) % 4 * 1.0))
    assert [load(task=task).task for task in ("classification", "regression")] == ["classification", "regression"]


def test_arrays_tables_of_pandas_and_dicts_of_columns_are_columns(mine):
    table = pd.DataFrame({"a": np.arange(6) * 0.5, "b": np.arange(6) % 5 + 0.25})
    labels = pd.Series(["x", "y"] * 3)
    mine.make = lambda: ((table.to_numpy(), labels.to_numpy()), (table.to_numpy(), labels.to_numpy()))
    expected = load()
    assert (expected.train_rows, expected.classes, expected.shape) == (6, 2, (2,))
    np.testing.assert_array_equal(expected.samples[:6], table.to_numpy(np.float32))
    tensors = [torch.from_numpy(table.to_numpy()), labels.tolist()]
    for part in ((table, labels), (table.to_numpy(), labels), tensors, {"x": table, "y": labels.tolist()}):
        mine.make = lambda part=part: (part, part)
        found = load()
        assert (found.samples == expected.samples).all()
        assert (found.labels == expected.labels).all()
    mine.make = lambda: (table, table)
    assert "which column holds the label? Set data.label to one of a, b" in refused()
    assert load(label="b", task="regression", drop=[]).columns == ("a",)
    mine.make = lambda: (table, labels)
    assert (load().train_rows, load().one_part) == (6, True)
    mine.make = lambda: ({"x": np.zeros((4, 2)), "y": [0, 1]}, toy(4))
    assert "train items: 4 rows of" in refused()
    mine.make = lambda: (torch.utils.data.DataLoader(toy(4)), toy(4))
    assert "train items: a DataLoader; pass its data set, loader.dataset" in refused()


def test_labels_beyond_what_a_class_can_be_are_named(mine):
    mine.make = lambda: ([(np.zeros(2), np.uint64(2**63 + 5))] * 4, [(np.zeros(2), 0)] * 4)
    assert "label 9223372036854775813 is too large for a class" in refused()


def test_test_samples_that_are_training_samples_are_counted(mine):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    mine.make = lambda: ((rows, np.arange(20) % 2), (rows[15:], np.arange(5) % 2))
    assert any(line.startswith("5 of 5 test samples are training samples too") for line in load().warnings)
    mine.make = lambda: ((rows[:15], np.arange(15) % 2), (rows[15:], np.arange(5) % 2))
    assert not any("training samples too" in line for line in load().warnings)


def test_dicts_of_several_arrays_are_packed_and_said(mine):
    def items(count):
        return [{"ids": [row, 1], "w": 0.5, "text": "a", "mask": [True, row > 1], "y": row % 2} for row in range(count)]

    mine.make = lambda: (items(10), items(4))
    dataset = load()
    assert (dataset.kind, dataset.mean, dataset.samples.dtype) == ("fields", (), np.int64)
    assert dataset.samples[3].tolist() == [3, 1, 1, 1]
    assert str(dataset.fields) == "ids [2], mask [2]"
    assert "the sample is ids [2], mask [2]; y is the target; left out: w, text (data.sample chooses keys)" in (
        dataset.warnings
    )
    chosen = load(sample="ids,w")
    assert chosen.samples[3].tolist() == [3, 1, 0.5]
    assert chosen.content != dataset.content
    assert load(sample="ids").kind == "token"
    assert load(sample="ids").fields.batch("x", "y") == {"ids": "x", "y": "y"}
    assert "data.sample = 'idd'" in refused(sample="ids,idd")
    assert "data.kind = feature" in refused(kind="feature")
    assert "data.mean = [0.0]: mine:make has samples of several arrays, which are not normalised" in refused(mean=[0.0])


def by_client(count: int = 4) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {f"c{n}": (rng.normal(size=(6 + n, 3)).astype(np.float32), np.arange(6 + n) % 2) for n in range(count)}


@pytest.mark.parametrize("form", [dict, lambda clients: list(clients.values())], ids=["dict", "list"])
def test_a_factory_may_return_clients_as_they_are_given_directly(mine, form):
    direct = Dataset.load(Config(data={"name": form(by_client())}).data)
    mine.make = lambda scale=1: form({name: (scale * x, y) for name, (x, y) in by_client().items()})
    made = load()
    np.testing.assert_array_equal(made.samples, direct.samples)
    assert made.domains.tolist() == direct.domains.tolist() == [n for n in range(4) for _ in range(6 + n)]
    assert (made.domain_names, made.one_part) == (direct.domain_names, True)
    assert [own.said for own in made.decisions] == [own.said for own in direct.decisions]
    np.testing.assert_array_equal(load(scale=2).samples, 2 * direct.samples)
    mine.make = lambda train: form(
        {name: (x[: 6 if train else 2], y[: 6 if train else 2]) for name, (x, y) in by_client().items()}
    )
    assert (load().train_rows, load().test_rows, load().domain_names) == (24, 8, direct.domain_names)


def test_a_factory_may_return_tables_of_clients_or_one_table(mine):
    tables = {name: pd.DataFrame(x, columns=[*"abc"]).assign(label=y) for name, (x, y) in by_client().items()}
    mine.make = lambda: tables
    assert (load().columns, load().domain_names) == (("a", "b", "c"), ("c0", "c1", "c2", "c3"))
    before = load().content
    tables["c0"].loc[0, "a"] = 9
    assert load().content != before
    mine.make = lambda: tables["c0"]
    assert (load().columns, load().one_part) == (("a", "b", "c"), True)
    assert "has no such column" in refused(label="d")
