"""What fedbench says that it read is what was brought, to the bit; else it says in one line why not."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError

TRAIN, TEST = 12, 6
ROWS = TRAIN + TEST
SHAPES = [(5,), (1,), (2, 3), (4, 5, 3), (3, 4, 5), (1, 6, 6), (3, 3, 3), (2, 2, 2, 2)]
HOLDERS = ["array", "tensor", "list", "picture", "parts", "dict"]
LABELS = ["whole", "bytes", "floats", "booleans", "text", "one-hot", "gaps", "several", "numbers", "shares", "minus"]


def samples_of(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return rng.random((ROWS, *shape)) < 0.5
    if dtype in ("uint8", "int16", "int64"):
        return rng.integers(0, 200, (ROWS, *shape)).astype(dtype)
    return rng.normal(size=(ROWS, *shape)).astype(dtype)


def labels_of(kind: str, rng: np.random.Generator) -> np.ndarray:
    classes = rng.permutation(np.arange(ROWS) % 3)
    return {
        "whole": classes,
        "bytes": classes.astype(np.uint8),
        "floats": classes.astype(np.float32),
        "booleans": classes > 0,
        "text": np.array(["owl", "cat", "dog"])[classes],
        "one-hot": np.eye(3, dtype=np.float32)[classes],
        "gaps": classes * 7 + 2,
        "several": np.stack([classes == 0, classes != 1], axis=1),
        "numbers": rng.normal(size=ROWS),
        "shares": np.full((ROWS, 4), 0.25),
        "minus": classes - 1,
    }[kind]


def held(samples: np.ndarray, labels: np.ndarray, holder: str) -> Any:
    """The rows as somebody brings them."""
    if holder == "parts":
        return samples, labels.tolist()
    if holder == "picture":
        return [(Image.fromarray(x), y) for x, y in zip(samples, labels, strict=True)]
    wrap = {"tensor": torch.from_numpy, "list": np.ndarray.tolist}.get(holder, lambda array: array)
    rows = [(wrap(np.array(x)), y) for x, y in zip(samples, labels, strict=True)]
    return [{"x": x, "label": y} for x, y in rows] if holder == "dict" else rows


def same_samples(dataset: Dataset, brought: np.ndarray, pictures: bool) -> bool:
    """Whether every number is where it was, but for the channels of images, which come first."""
    found = np.asarray(dataset.samples)
    expected = brought.astype(np.float32) if brought.dtype.kind == "f" else brought
    if found.shape == expected.shape and np.array_equal(found, expected):
        return True
    if dataset.kind != "image" and not pictures:
        return False
    return np.array_equal(found, expected[:, None] if expected.ndim == 3 else np.moveaxis(expected, -1, 1))


def same_targets(dataset: Dataset, brought: np.ndarray) -> bool:
    """Whether every label can be had back from the class, or is there as it was."""
    if dataset.task != "classification":
        return np.array_equal(dataset.targets, brought.astype(np.float32))
    if brought.ndim > 1:
        return np.array_equal(np.eye(brought.shape[1])[dataset.labels], brought)
    labels = dataset.class_labels or dataset.class_names
    if not labels:
        return np.array_equal(dataset.labels, brought)
    return [labels[number] for number in dataset.labels] == [str(label) for label in brought.tolist()]


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """Data of a user's module as fedbench reads them."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    module = ModuleType("brought")
    monkeypatch.setitem(sys.modules, "brought", module)

    def load(samples: np.ndarray, labels: np.ndarray, holder: str, **options: Any) -> Dataset:
        module.make = lambda: (
            held(samples[:TRAIN], labels[:TRAIN], holder),
            held(samples[TRAIN:], labels[TRAIN:], holder),
        )
        return Dataset.load(Config(data={"name": "brought:make", **options}).data)

    return load


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(["uint8", "int16", "int64", "float16", "float32", "float64", "bool"]),
    shape=st.sampled_from(SHAPES),
    holder=st.sampled_from(HOLDERS),
    label=st.sampled_from(LABELS),
    kind=st.sampled_from([None, None, "image", "feature", "token"]),
    seed=st.integers(0, 9),
)
def test_what_is_read_is_what_was_brought_or_there_is_a_line(bring, dtype, shape, holder, label, kind, seed):
    rng = np.random.default_rng(seed)
    samples, labels = samples_of(dtype, shape, rng), labels_of(label, rng)
    if holder == "picture":
        samples = rng.integers(0, 256, (ROWS, *[(4, 5), (4, 5, 3)][seed % 2])).astype(np.uint8)
    line, dataset = "", None
    try:
        dataset = bring(samples, labels, holder, **({"kind": kind} if kind else {}))
    except ConfigError as error:
        line = str(error)
    if dataset is None:
        assert line.startswith("data brought:make")
        assert "\n" not in line
        return
    assert label not in ("shares", "minus")
    assert dataset.task == {"several": "multilabel", "numbers": "regression"}.get(label, "classification")
    assert same_samples(dataset, samples, holder == "picture")
    assert same_targets(dataset, labels)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(["uint8", "int64", "float32", "float64"]),
    shape=st.sampled_from([shape for shape in SHAPES if len(shape) != 3 or shape[0] != shape[2]]),
    seed=st.integers(0, 9),
)
def test_whatever_holds_the_same_numbers_is_read_to_the_same_bits(bring, dtype, shape, seed):
    rng = np.random.default_rng(seed)
    samples, labels = samples_of(dtype, shape, rng), labels_of("whole", rng)
    windows = dtype.startswith("float") and len(shape) > 1 and not (len(shape) == 3 and shape[0] in (1, 3))
    options = {"channels": "last"} if windows else {}
    first, *others = [bring(samples, labels, holder, **options) for holder in ("array", "tensor", "parts", "dict")]
    for dataset in others:
        assert dataset.samples.dtype == first.samples.dtype
        np.testing.assert_array_equal(dataset.samples, first.samples)
        assert (dataset.kind, dataset.mean, dataset.std) == (first.kind, first.mean, first.std)
