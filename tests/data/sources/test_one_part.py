"""Data of one part, from every reader: rows as they lie, split anew by every seed, by groups and in time if asked."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset, Partition, partition
from tests.data.loading import refused
from tests.data.sources.test_hf import Split

ROWS = 200
RNG = np.random.default_rng(1)
OUTCOME = (np.arange(ROWS) >= 160).astype(int)
"""Sorted: the last 40 rows are positive."""
HOSPITAL = np.array(["fulda", "jena"])[np.arange(ROWS) % 2]
PATIENT = RNG.integers(0, 60, ROWS)
VISIT = pd.Timestamp("2026-01-01") + pd.to_timedelta(RNG.permutation(ROWS), unit="D")
FRAME = pd.DataFrame(
    {"age": np.arange(ROWS), "user": HOSPITAL, "patient": PATIENT, "visit": VISIT.strftime("%Y-%m-%d"), "y": OUTCOME}
)


def csv(folder: Path) -> Any:
    FRAME.to_csv(folder / "table.csv", index=False)
    return f"csv:{folder / 'table.csv'}"


def parquet(folder: Path) -> Any:
    FRAME.assign(visit=VISIT).to_parquet(folder / "table.parquet", index=False)
    return f"parquet:{folder / 'table.parquet'}"


def parquet_of_images(folder: Path) -> Any:
    images = []
    for row in range(ROWS):
        Image.fromarray(np.full((2, 2), row, np.uint8)).save(folder / "one.png")
        images.append((folder / "one.png").read_bytes())
    columns = {"image": images, "label": OUTCOME, "user": HOSPITAL, "patient": PATIENT, "visit": VISIT.to_pydatetime()}
    pq.write_table(pa.table(columns), folder / "images.parquet")
    return {"name": f"parquet:{folder / 'images.parquet'}", "user": "user"}


def items(folder: Path) -> Any:
    rows = zip(range(ROWS), HOSPITAL.tolist(), PATIENT.tolist(), FRAME["visit"], OUTCOME.tolist(), strict=True)
    return [{"x": np.float32([a]), "user": h, "patient": p, "visit": v, "y": y} for a, h, p, v, y in rows]


def columns(folder: Path) -> Any:
    return {"x": np.arange(ROWS, dtype=np.float32)[:, None], **{n: FRAME[n].tolist() for n in FRAME.columns[1:]}}


READERS = {
    "csv": csv,
    "parquet": parquet,
    "images": parquet_of_images,
    "frame": lambda folder: FRAME,
    "items": items,
    "columns": columns,
}


def given(reader: str, folder: Path, **options) -> tuple[Dataset, Config]:
    data = READERS[reader](folder)
    if reader in ("csv", "parquet", "frame"):
        asked = (options.get("test_by"), options.get("order_by"))
        data = {"name": data, "drop": [name for name in ("patient", "visit") if name not in asked]}
    config = Config(data=data, partition={"name": "natural", **options})
    return Dataset.of_run(config), config


def held(found: Partition) -> np.ndarray:
    return np.sort(np.concatenate([own.test for own in found.clients]))


@pytest.mark.parametrize("reader", READERS)
def test_rows_are_numbered_as_they_lie_and_every_seed_has_others_for_testing(reader, tmp_path):
    dataset, config = given(reader, tmp_path, test_by="patient")
    assert (dataset.one_part, dataset.train_rows, int(np.prod(dataset.shape))) == (
        True,
        ROWS,
        4 if reader == "images" else 1,
    )
    assert dataset.samples.reshape(ROWS, -1)[:, 0].tolist() == list(range(ROWS))
    assert dataset.labels.tolist() == OUTCOME.tolist()
    assert [dataset.domain_names[number] for number in dataset.domains] == HOSPITAL.tolist()
    config.partition.test_by = None
    tests = [held(partition(dataset, config, seed)) for seed in range(40)]
    assert {len(own) for own in tests} == {40}
    assert {int(OUTCOME[own].sum()) for own in tests} <= {7, 8, 9}, "a fifth of the 40 positives"
    assert len({own.tobytes() for own in tests}) == 40
    assert len(np.unique(np.concatenate(tests))) == ROWS, "every row is for testing in some seed"


@pytest.mark.parametrize("reader", READERS)
def test_patients_are_on_one_side_and_are_no_feature(reader, tmp_path):
    dataset, config = given(reader, tmp_path, test_by="patient")
    assert len(np.unique(dataset.groups)) == len(np.unique(PATIENT))
    assert (np.diff(PATIENT[np.argsort(dataset.groups, kind="stable")]) != 0).sum() == len(np.unique(PATIENT)) - 1
    for seed in range(5):
        found = partition(dataset, config, seed)
        train = np.concatenate([rows for own in found.clients for rows in (own.train, own.val)])
        assert not set(PATIENT[train]) & set(PATIENT[held(found)])
        assert 30 <= len(held(found)) <= 50


@pytest.mark.parametrize("reader", READERS)
def test_the_last_visits_of_every_hospital_are_for_testing(reader, tmp_path):
    dataset, config = given(reader, tmp_path, test="last", order_by="visit")
    found = partition(dataset, config, 0)
    for own, name in zip(found.clients, ("fulda", "jena"), strict=True):
        rows = np.flatnonzero(name == HOSPITAL)
        last = rows[np.argsort(VISIT[rows])][-20:]
        assert sorted(own.test) == sorted(last)
        assert VISIT[own.train].max() < VISIT[own.val].min()


def test_columns_named_are_part_of_the_data_and_of_the_run(tmp_path):
    data = {"name": csv(tmp_path), "drop": ["visit"]}
    plain, grouped = Config(data=data), Config(data=data, partition={"test_by": "patient"})
    assert Dataset.of_run(plain).groups is None
    assert (Dataset.of_run(plain).shape, Dataset.of_run(grouped).shape) == ((2,), (1,))
    assert Dataset.of_run(plain).content != Dataset.of_run(grouped).content
    assert plain.key() != grouped.key()
    assert Config(partition={"test_by": None, "order_by": None}).key() == Config().key()


def test_without_names_the_third_value_of_an_item_can_be_the_group():
    features = np.arange(60, dtype=np.float32)[:, None]
    config = Config(
        data=(features, np.arange(60) % 2, np.arange(60) // 6),
        partition={"name": "iid", "clients": 3, "test_by": "domain"},
    )
    dataset = Dataset.of_run(config)
    found = partition(dataset, config, 0)
    train = np.concatenate([rows for own in found.clients for rows in (own.train, own.val)])
    assert not set(train // 6) & set(held(found) // 6)
    assert len(np.unique(held(found) // 6)) == 2, "a fifth of ten groups"


@pytest.mark.parametrize(
    ("data", "options", "line"),
    [
        (FRAME, {"test_by": "patients"}, "partition.test_by = patients: data memory:table"),
        (FRAME, {"test_by": "y"}, "partition.test_by = y: column y is the target; name another"),
        (FRAME, {"test": "last", "order_by": "when"}, "has no such column; "),
        (
            FRAME.assign(visit="5.1.26"),
            {"test": "last", "order_by": "visit"},
            "holds '5.1.26'; numbers, and dates and times",
        ),
        (FRAME.assign(patient=FRAME["patient"].where(FRAME.index != 3)), {"test_by": "patient"}, "row 4: no value in"),
        ((np.eye(20), np.arange(20) % 2), {"test_by": "patient"}, "bring dicts, columns by name or a data frame"),
        ([{"x": np.ones(2), "y": 0, "p": None}] * 9, {"test_by": "p"}, "no value of p; fill it in, or leave the item"),
        ([{"x": np.ones(2), "y": 0}] * 9, {"test_by": "p"}, "has no such key"),
        ([{"x": np.ones(2), "y": 0}] * 9, {"test_by": "y"}, "y is the target"),
        ("digits", {"test_by": "writer"}, "data digits have no columns; domain is possible for partition.test_by"),
        ("digits", {"order_by": "time", "test": "last"}, "partition.order_by = time: data digits have no columns"),
    ],
)
def test_columns_that_are_not_there_are_one_line(data, options, line):
    assert line in refused(Dataset.of_run, Config(data=data, partition=options))


def test_a_split_of_the_library_datasets_has_its_columns(monkeypatch):
    library = ModuleType("datasets")
    library.load_dataset = lambda name, config=None: {"train": Split([*items(Path())])}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)
    config = Config(data="hf:set", partition={"name": "natural", "test_by": "patient"})
    dataset = Dataset.of_run(config)
    assert dataset.samples[:, 0].tolist() == list(range(ROWS))
    found = partition(dataset, config, 0)
    assert not set(PATIENT[held(found)]) & set(PATIENT[np.concatenate([own.train for own in found.clients])])
