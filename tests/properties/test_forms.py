"""Data as objects of any form come out as they were put in, to the bit, or one line asks."""

import re
from collections import Counter
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.describe import description_of
from fedbench.errors import ConfigError

HOLDERS = ["arrays", "tensors", "lists", "columns", "frame", "set", "items"]
SHAPES = [(3,), (4, 3), (3, 4), (2, 3, 4)]


def held(x: np.ndarray, y: np.ndarray, holder: str) -> Any:
    """The rows of a client as somebody brings them."""
    if holder == "frame":
        return pd.DataFrame(x.reshape(len(x), -1)).add_prefix("column ").assign(label=y)
    return {
        "arrays": lambda: (x, y),
        "tensors": lambda: (torch.from_numpy(x), torch.from_numpy(y)),
        "lists": lambda: (x.tolist(), y.tolist()),
        "columns": lambda: {"x": x, "label": y},
        "set": lambda: torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        "items": lambda: list(zip(x, y.tolist(), strict=True)),
    }[holder]()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    holder=st.sampled_from(HOLDERS),
    shape=st.sampled_from(SHAPES),
    sizes=st.lists(st.integers(4, 9), min_size=1, max_size=6),
    names=st.sampled_from([None, "abcdef", "fedcba"]),
    own_test=st.booleans(),
    seed=st.integers(0, 9),
)
def test_clients_come_out_as_they_were_put_in_or_one_line_asks(tmp_path, holder, shape, sizes, names, own_test, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDBENCH_CACHE", str(tmp_path))
        rng = np.random.default_rng(seed)
        rows = [(rng.normal(size=(n, *shape)).astype(np.float32), np.arange(n) % 2) for n in sizes]
        whole = [held(x, y, holder) for x, y in rows]
        if own_test:
            whole = [
                {"train": own, "test": held(x[:2], y[:2], holder)} for own, (x, y) in zip(whole, rows, strict=True)
            ]
        data = whole if names is None else dict(zip(names, whole, strict=False))
        try:
            config = Config(data={"name": data})
            dataset = Dataset.load(config.data)
        except ConfigError as error:
            line = str(error)
            assert "\n" not in line
            assert (names is None and len(sizes) in (2, 3) and "parts of one form" in line) or "--data.channels" in line
            return
    parts = [rows, [(x[:2], y[:2]) for x, y in rows]] if own_test else [rows]
    expected = [np.concatenate([own[place] for part in parts for own in part]) for place in (0, 1)]
    assert np.array_equal(np.asarray(dataset.samples).reshape(expected[0].shape), expected[0])
    assert np.array_equal(dataset.targets, expected[1])
    owners = [client for part in parts for client, own in enumerate(part) for _ in own[1]]
    assert dataset.domains.tolist() == owners
    assert dataset.domain_names == tuple(names or "012345")[: len(sizes)]
    assert config.partition.name == "natural"
    assert dataset.one_part == (not own_test)


ROWS = 48
NAMES = {
    "zeros in front": ["0012", "012", "12"],
    "twenty digits": ["12345678901234567890", "12345678901234567891", "12345678901234567892"],
    "blanks": [" north", "south ", "up  town"],
    "case": ["Bern", "bern", "Chur"],
    "points": ["1.0", "1.5", "1.50"],
    "marks": ["NA", "null", "x"],
    "blanks alone": ["a", "a ", "b"],
    "signs": ["+5", "5", "-5"],
    "umlauts": ["K\u00f6ln", "Ko\u0308ln!", "Koln"],
    "commas": ["a,b", 'a "b"', "a;b"],
}
FAULTS: dict[str, Any] = {"void": np.nan, "infinite": np.inf, "negative infinite": -np.inf, "comma": "0,5", "text": "?"}
"""Values in place of a number."""


def typed(values: list[Any]) -> Any:
    """Numbers as an array, or with a text among them as objects."""
    return np.array(values, object if any(isinstance(value, str) for value in values) else np.float64)


def brought(columns: dict[str, list[Any]], holder: str, folder: Path, surplus: int | None) -> Any:
    """The columns as somebody brings them. surplus: a row that has one value too many, if any."""
    if holder == "csv":
        cells = [[f"{value}" if value == value else "" for value in row] for row in zip(*columns.values(), strict=True)]
        lines = [
            [f'"{cell}"' if "," in cell else cell for cell in row] + ["7"] * (number == surplus)
            for number, row in enumerate(cells)
        ]
        (folder / "t.csv").write_text("\n".join(",".join(row) for row in [[*columns], *lines]))
        return f"csv:{folder / 't.csv'}"
    if holder == "frame":
        return pd.DataFrame({**columns, "age": typed(columns["age"])})
    rows: list[Any] = [list(row) for row in zip(columns["age"], columns["height"], strict=True)]
    if surplus is not None:
        rows[surplus].append(7.0)
    label, user = columns["label"], columns["user"]
    if holder == "items":
        return list(zip(rows, label, user, strict=True))
    table = rows if surplus is not None else np.stack([typed(columns["age"]), typed(columns["height"])], axis=1)
    if holder == "columns":
        return {"x": table, "label": np.array(label), "user": np.array(user)}
    return table, np.array(label), np.array(user)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    holder=st.sampled_from(["csv", "frame", "items", "columns", "arrays"]),
    user=st.sampled_from([*NAMES]),
    label=st.sampled_from([*NAMES]),
    fault=st.sampled_from([*[""] * 6, *FAULTS, "surplus"]),
    seed=st.integers(0, 9),
)
def test_users_labels_and_constants_are_those_put_in_or_one_line_names_the_place(
    tmp_path, holder, user, label, fault, seed
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
        rng = np.random.default_rng(seed)
        numbers = rng.normal(50, 9, (ROWS, 2))
        columns: dict[str, list[Any]] = {
            "age": numbers[:, 0].tolist(),
            "height": numbers[:, 1].tolist(),
            "label": rng.permutation(NAMES[label] * (ROWS // 3)).tolist(),
            "user": rng.permutation(NAMES[user] * (ROWS // 3)).tolist(),
        }
        place, table = int(rng.integers(ROWS)), holder in ("csv", "frame")
        asked = {"case", "points", "signs", *(["marks"] if table else [])}
        if fault in FAULTS:
            columns["age"][place] = FAULTS[fault]
        surplus = place if fault == "surplus" and holder != "frame" else None
        data = brought(columns, holder, tmp_path, surplus)
        try:
            config = Config(data={"name": data, "task": "classification"})
            dataset = Dataset.load(config.data)
        except ConfigError as error:
            line = str(error)
            assert "\n" not in line
            faulty = fault in FAULTS or surplus is not None
            places = [f"row {place + 1}", f"item {place}", f"line {place + 2}"]
            places += ["item 0"] * (fault in ("comma", "text"))  # an array with a text is one of objects
            if table:
                places += ["column age"] * (fault in FAULTS)
            for name, kind in (("user", user), ("label", label)):
                places += [f"column {name}" if table else f"the {name}s"] * (kind in asked)
            assert faulty or asked & {user, label}, line
            assert any(re.search(rf"{own}\b", line) for own in places), line
            return
        assert fault not in FAULTS, "a fault was read"
        assert surplus is None, "a row that is too long was read"
        assert not asked & {user, label}, "names of which only the user knows what they are were not asked about"
        description = description_of(dataset, config)
        put = {  # blanks around texts go, and all are in one form of Unicode
            name: [normalize("NFC", text.strip()) for text in columns[name]] for name in ("user", "label")
        }
        owners = [dataset.domain_names[number] for number in dataset.domains]
        classes = [description.targets.names[number] for number in dataset.labels]
        assert owners == put["user"]
        assert classes == put["label"]
        sizes = sorted(Counter(put["user"]).values())
        clients = description.clients
        assert (clients.count, clients.smallest, clients.largest) == (len(sizes), sizes[0], sizes[-1])
        assert dict(zip(description.targets.names, description.targets.counts, strict=True)) == Counter(put["label"])
        kept = numbers.astype(np.float32)
        np.testing.assert_array_equal(dataset.samples, kept)
        np.testing.assert_allclose(description.samples.mean, kept.mean(0, np.float64), rtol=1e-12)
        np.testing.assert_allclose(description.samples.std, kept.std(0, dtype=np.float64), rtol=1e-12)
