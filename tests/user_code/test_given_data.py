"""Data as Python objects: what is understood, what is refused, and a name that follows the content."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, random_split

from fedbench import Config, ConfigError
from fedbench.data import Dataset
from fedbench.user_code import look_again
from fedbench.user_code.given_data import given_data

X, Y, USERS = np.arange(40.0).reshape(20, 2), np.arange(20) % 2, np.array(["ann", "bob"] * 10)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
TEXTS = pd.DataFrame({"a": ["red", "blue"] * 10, "b": X[:, 1]})
ITEMS = TensorDataset(torch.tensor(X), torch.tensor(Y))


class Own:
    """A map-style data set."""

    def __init__(self, x=X, scale=lambda x: 2 * x):
        self.x, self.scale = x, scale

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.scale(self.x[index]), index % 2


class Split(Own):
    """Says which part it is, as data sets of torchvision do."""

    def __init__(self, split):
        super().__init__()
        self.split = split


class PartsByName(dict):
    """Like a DatasetDict."""


class Module(LightningDataModule):
    """Its data exist after `prepare_data` and `setup`."""

    collate = None

    def prepare_data(self):
        self.rows = len(X)

    def setup(self, stage):
        if stage == "fit":
            self.train, self.val = ITEMS, TensorDataset(torch.ones(self.rows, 2), torch.zeros(self.rows))
        else:
            self.tested = Own()

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=4, shuffle=True, collate_fn=self.collate)

    def val_dataloader(self):
        return [DataLoader(self.val, collate_fn=self.collate)]

    def test_dataloader(self):
        return DataLoader(self.tested, collate_fn=self.collate)


class Subsets(Module):
    def test_dataloader(self):
        return DataLoader(self.tested, sampler=SubsetRandomSampler([0, 1]))


class Scaled(Module):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch[0] / 255, batch[1]


class Sized(torch.utils.data.IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter(ITEMS)


def name(data) -> str:
    return Config(data=data).data.name


def refused(data) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(data=data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "kind", "parts"),
    [
        ((X, Y), "arrays", ["train"]),
        ((torch.tensor(X), torch.tensor(Y)), "arrays", ["train"]),
        ((X.tolist(), Y.tolist()), "arrays", ["train"]),
        ((FRAME[["a", "b"]], FRAME["y"]), "table", ["train"]),
        ((FRAME[["a", "b"]], FRAME[["y"]]), "table", ["train"]),
        ((FRAME[["a", "b"]], torch.tensor(Y), FRAME[["b", "a"]], Y), "table", ["train", "test"]),
        ((FRAME[["a", "b"]], X), "arrays", ["train"]),
        ((X, Y, USERS), "arrays", ["train"]),
        ((X, Y, X, Y), "arrays", ["train", "test"]),
        (((X, Y, USERS), (X, Y, USERS)), "arrays", ["train", "test"]),
        ({"x": X, "label": Y}, "columns", ["train"]),
        ({"train": {"x": X, "label": Y}, "test": {"x": X, "label": Y}}, "columns", ["train", "test"]),
        (FRAME, "table", ["train"]),
        (pyarrow.Table.from_pandas(FRAME), "table", ["train"]),
        ({"train": pyarrow.Table.from_pandas(FRAME), "test": FRAME}, "table", ["train", "test"]),
        ((TEXTS, Y), "table", ["train"]),
        ((TEXTS, FRAME[["y"]], USERS), "table", ["train"]),
        ((TEXTS, Y.tolist(), TEXTS, Y.tolist()), "table", ["train", "test"]),
        (ITEMS, "TensorDataset", ["train"]),
        (Own(), "Own", ["train"]),
        ((ITEMS, Own()), "TensorDataset", ["train", "test"]),
        ((Split("test"), Split("train")), "Split", ["train", "test"]),
        (list(Own()), "items", ["train"]),
        ([{"x": x, "label": 1} for x in X], "items", ["train"]),
        (PartsByName(test=ITEMS, validation=(X, Y), train=ITEMS), "TensorDataset", ["train", "val", "test"]),
        ({"train": FRAME, "test": FRAME}, "table", ["train", "test"]),
        (Module(), "TensorDataset", ["train", "val", "test"]),
    ],
)
def test_what_is_understood(value, kind, parts):
    found = given_data(name(value))
    assert found.name.startswith(f"memory:{kind}@")
    assert [*found.parts] == parts
    assert name({"name": value, "val": 0.2}) == found.name


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (X, "data is an ndarray without targets; pass (X, y)"),
        (["mnist"], "data is a list of str without targets; pass (X, y)"),
        (
            {"x_train": X[:15], "y_train": Y[:15], "x_test": X[15:], "y_test": Y[15:]},
            "pass {'train': (x_train, y_train), 'test': (x_test, y_test)}",
        ),
        ({"data": X, "target": Y, "frame": None}, "pass (its.data, its.target)"),
        ((X[:15], X[15:], Y[:15], Y[15:]), "in the order of train_test_split; pass (X_train, y_train, X_test, y_test)"),
        ({"train": ITEMS, "unsupervised": ITEMS}, "part 'unsupervised' is unknown; pass a dict of the parts train, "),
        ({"val": ITEMS, "validation": ITEMS}, "part 'validation' is the val part too; pass a dict of the parts train"),
        ({"test": ITEMS}, "data: a part train is needed, and there is test alone"),
        ({"train": ITEMS, "test": X}, "the test part of the data is an ndarray without targets; pass (X, y)"),
        ({"train": iter(ITEMS)}, "the train part of the data is an iterator without a length (list(...) reads all of "),
        (DataLoader(ITEMS), "data is a DataLoader; pass the data set of a DataLoader, loader.dataset"),
        ((DataLoader(ITEMS), DataLoader(ITEMS)), "data is a tuple of DataLoader, DataLoader; pass the data set of a "),
        ({"a": DataLoader(ITEMS)}, "data is a dict of DataLoader; pass the data set of a DataLoader, loader.dataset"),
        (Sized(), "data is a Sized; pass a map-style Dataset, or list(...), which reads all of its items"),
        (FRAME.groupby("y"), "data is a DataFrameGroupBy; pass the frame, and the column of the groups as data.user"),
        ({0: (X[0], 1), 1: (X[1], 0)}, "data is a dict of tuple, tuple; pass a list of items, [*data.values()]"),
        (iter(ITEMS), "data is an iterator without a length (list(...) reads all of its items); (X, y), (X, y, users)"),
        (Module, "data is the class Module; pass an instance, Module(...)"),
        (LightningDataModule(), "data: a part train is needed, and there is none"),
        (Subsets(), "data Subsets.test_dataloader() draws with a SubsetRandomSampler, but every item of its"),
        (Scaled(), "data Scaled: its on_after_batch_transfer is not called; move it to the model"),
        ((TEXTS, Y[:3]), "data, train items: 20 rows of samples and 3 rows of labels; all must have the same number"),
        ((TEXTS.rename(columns={"b": "label"}), Y), "the samples have a column label, and it is not the label"),
        ((TEXTS, X), "which takes one label per row, not 2; encode these columns as numbers"),
        (torch.nn.Sequential(torch.nn.Flatten()), "data is a Sequential; (X, y), (X, y, users) or "),
        ((X, 3, None), "data is a tuple of ndarray, int, NoneType; (X, y), (X, y, users) or (X_train, y_train, "),
        (3, "data = 3: must be a name, a class or a function, or a mapping of the keys name, root"),
    ],
)
def test_what_is_refused_with_what_is_legal(value, line):
    assert line in refused(value)


def test_a_path_is_a_name(tmp_path):
    assert name(tmp_path) == str(tmp_path)


@pytest.mark.parametrize("y", [FRAME["y"], FRAME[["y"]], torch.tensor(Y), Y.tolist()])
def test_samples_of_a_frame_are_joined_with_their_targets_and_users(y):
    (table,) = given_data(name((TEXTS, y, USERS))).parts.values()
    assert [*table.columns] == ["a", "b", "label", "user"]
    assert (table["label"].tolist(), table["user"].tolist()) == (Y.tolist(), USERS.tolist())


def test_a_data_module_with_loaders_of_a_stream_is_refused_by_its_data_set():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(ITEMS)

    class Streams(Module):
        def train_dataloader(self):
            return DataLoader(Stream())

    assert "the train part of the data is a Stream without a length" in refused(Streams())


def test_keys_of_the_section_are_no_data():
    assert name({"val": 0.2, "mean": [0.5], "std": [0.5]}) == "digits"
    assert name({"name": "mnist", "label": ["a"]}) == "mnist"
    with pytest.raises(ConfigError, match=r"unknown key data\.train: data digits takes no such option"):
        Dataset.load(Config(data={"train": 1}).data)


def test_a_data_module_that_cannot_be_used_as_it_is():
    class Several(Module):
        def train_dataloader(self):
            return DataLoader(ITEMS, collate_fn=list)

    class Fails(Module):
        def setup(self, stage):
            self.trainer.rank  # noqa: B018

    class Two(Module):
        def train_dataloader(self):
            return [DataLoader(ITEMS), DataLoader(ITEMS)]

    assert "data Several: its loaders have different collate functions" in refused(Several())
    assert "Fails: prepare_data(), setup(stage) and its loaders must work without a Trainer: Attr" in refused(Fails())
    assert "test_given_data.py:" in refused(Fails())
    assert "Two.train_dataloader() returns a list; one DataLoader is expected" in refused(Two())


def test_a_data_module_brings_its_collate_function():
    class Own(Module):
        collate = staticmethod(list)

    own, usual = name(Own()), name(Module())
    assert given_data(own).collate is list
    assert given_data(usual).collate is None
    assert own != usual


def test_the_name_follows_the_content():
    assert name((X, Y)) == name((X.copy(), Y.copy())) != name((X, Y, X, Y))
    clients = [{"a": (X, Y), "b": (X, Y)}, {"a": (X, Y), "c": (X, Y)}, [(X, Y)] * 4, [(X, Y)] * 5]
    assert len(set(map(name, clients))) == 4
    assert len({name(pair) for pair in [(X, Y), (X + 1, Y), (X, 1 - Y), (X.astype(np.float32), Y)]}) == 4
    assert name(FRAME) == name(FRAME.copy())
    tables = [FRAME, FRAME.rename(columns={"a": "c"}), FRAME.assign(a="x"), FRAME.assign(a="y")]
    tables += [{"train": FRAME, "test": FRAME}]
    tables += [FRAME.assign(a=[[0, row] for row in range(20)]), FRAME.assign(a=[[1, row] for row in range(20)])]
    assert len(set(map(name, tables))) == 7
    assert name(Own()) == name(Own())
    own = [
        Own(),
        Own(X + 1),
        Own(scale=lambda x: 3 * x),
        dict(zip(["train", "test"], random_split(Own(), [9, 11]), strict=True)),
    ]
    assert len(set(map(name, own))) == 4
    assert name(Module()) == name(Module())


def test_what_stands_in_an_index_and_types_of_columns_are_content():
    """Users and targets may stand in an index; the same numbers are features, categories or texts by their type."""
    users = [pd.Index(np.arange(20) % count, name="user") for count in (4, 5)]
    wards = [FRAME.assign(ward=Y), FRAME.assign(ward=pd.Categorical(Y)), FRAME.assign(ward=Y.astype(object))]
    wards += [FRAME.assign(ward=Y.astype(str).astype(object)), FRAME.assign(ward=pd.Categorical(Y, categories=[1, 0]))]
    tables = [FRAME, *(FRAME.set_index(index) for index in users), *wards]
    assert len(set(map(name, tables))) == 8
    pairs = [(TEXTS.set_index(index), Y) for index in users]
    assert len({name((TEXTS, Y)), *map(name, pairs)}) == 3
    assert (
        len({name(pyarrow.table({"a": pyarrow.array([1, 2], kind), "y": [0, 1]})) for kind in ("int8", "int64")}) == 2
    )
    assert name(FRAME.set_index(users[0])) == name(FRAME.set_index(users[0].copy()))
    assert name(FRAME) == name(FRAME.set_index(np.arange(20) + 7))
    twice = pd.MultiIndex.from_arrays([USERS, USERS], names=["user", "user"])
    assert name(FRAME.set_index(twice)) != name(FRAME.set_index(users[0]))


PRINT = """
import numpy as np, pandas as pd, torch
from fedbench import Config
class Own(torch.utils.data.Dataset):
    rows = {"a": np.arange(3), "b": {1, 2, 3}}
    def __len__(self): return 3
    def __getitem__(self, index): return self.rows["a"][index:], 1
frame = pd.DataFrame({"a": [1.5, 2], "colour": ["red", None], "y": [0, 1]})
for data in (np.eye(3), [0, 1, 2]), frame, Own(), {"text": [["a", "b"]], "label": torch.ones(1)}:
    print(Config(data=data).data.name)
"""


def test_the_name_is_the_same_in_another_process(tmp_path):
    (tmp_path / "script.py").write_text(PRINT)
    lines = [subprocess.check_output([sys.executable, tmp_path / "script.py"], text=True) for _ in range(2)]
    assert lines[0] == lines[1]
    assert len(set(lines[0].split())) == 4


def test_objects_that_have_changed_since_are_refused_by_a_new_command():
    x = X.copy()
    found = name((x, Y))
    look_again(found)
    x[3] = 0
    with pytest.raises(ConfigError, match=r"arrays@.*: the objects have changed since; pass them again"):
        look_again(found)


def test_the_name_travels_and_the_objects_stay():
    config = Config(data=(np.zeros((10_000, 2)), np.zeros(10_000)))
    given_data(config.data.name).decided["key"] = {"a": 1}
    sent = pickle.dumps(config)
    assert len(sent) < 20_000
    again = pickle.loads(sent)
    assert given_data(again.data.name).parts  # in this process
    code = "import pickle, sys; config = pickle.load(sys.stdin.buffer); from fedbench.user_code.given_data import *; "
    code += "found = given_data(config.data.name); print(found.name, found.parts, found.decided)"
    told = subprocess.check_output([sys.executable, "-c", code], input=sent).decode()
    assert told == f"{config.data.name} {{}} {{'key': {{'a': 1}}}}\n"
