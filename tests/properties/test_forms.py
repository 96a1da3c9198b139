"""Data as objects of any form come out as they were put in, to the bit, or one line asks."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset
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
