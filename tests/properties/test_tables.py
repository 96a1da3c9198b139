"""What stands in a table comes out to the bit, whatever holds it; or one line asks, or refuses it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.errors import ConfigError

ROWS = 60
LABELS = {
    "whole": ["0", "1", "2"],
    "gaps": ["3", "10", "200"],
    "negative": ["-5", "0", "12"],
    "floats": ["0.0", "1.0", "2.0"],
    "codes": ["01", "1", "10"],
    "exponents": ["1e3", "1000", "10e2"],
    "long": ["12345678901234567890", "12345678901234567891", "7"],
    "words": ["owl", "cat", "Nan"],
    "blanks": ["owl ", " cat", "d og"],
}
FAULTS = {
    "": ("", ""),
    "mark": ("?", "which holds numbers otherwise"),
    "empty": ("", "no value in column"),
    "comma": ("0,5", "numbers with a decimal comma"),
    "thousands": ("1,234", "numbers with a separator of thousands"),
    "unit": ("5 kg", "numbers with a unit"),
    "bound": ("<0.5", "bounds beside numbers"),
    "missing": ("NA", "no value in column"),
}


def columns_of(label: str, user: str, rng: np.random.Generator) -> dict[str, list[str]]:
    """The texts of a table with two columns of numbers, one of truth values and one of categories."""
    return {
        "weight": [repr(value) for value in (rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 9, ROWS)).tolist()],
        "floor": [str(value) for value in rng.integers(-4, 400, ROWS).tolist()],
        "smokes": [str(value) for value in (rng.random(ROWS) < 0.5).tolist()],
        "job": rng.permutation(["cook", "Köln", 'a "b", c', "pilot"] * (ROWS // 4)).tolist(),
        "label": rng.permutation(LABELS[label] * (ROWS // 3)).tolist(),
        "user": rng.permutation(LABELS[user] * (ROWS // 3)).tolist(),
    }


def held(columns: dict[str, list[str]], holder: str, folder: Path) -> Any:
    """The table as somebody brings it: in a CSV file all is text, elsewhere numbers and truth values are."""
    table = pd.DataFrame(columns)
    if holder == "csv":
        table.to_csv(folder / "t.csv", index=False)
        return f"csv:{folder / 't.csv'}"
    for name, convert in (("weight", float), ("floor", int), ("smokes", lambda text: text == "True")):
        try:
            table[name] = [convert(text) if text else None for text in columns[name]]
        except ValueError:
            continue
    if holder == "frame":
        return table
    table.to_parquet(folder / "t.parquet", index=False)
    return f"parquet:{folder / 't.parquet'}"


def expected_samples(columns: dict[str, list[str]], order: list[str]) -> np.ndarray:
    jobs = sorted({*columns["job"]})
    parts = {
        "weight": [[float(text)] for text in columns["weight"]],
        "floor": [[int(text)] for text in columns["floor"]],
        "smokes": [[text == "True"] for text in columns["smokes"]],
        "job": [[text == job for job in jobs] for text in columns["job"]],
    }
    return np.concatenate([np.array(parts[name], np.float32) for name in order if name in parts], axis=1)


def plain(texts: list[str]) -> list[str]:
    """What is left of labels and users: no blanks around them, and no `.0` behind whole numbers."""
    stripped = [text.strip() for text in texts]
    return [text.removesuffix(".0") for text in stripped]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    holder=st.sampled_from(["csv", "frame", "parquet"]),
    label=st.sampled_from([*LABELS]),
    user=st.sampled_from([*LABELS]),
    fault=st.sampled_from([*[""] * 5, *FAULTS]),
    order=st.permutations(["weight", "floor", "smokes", "job", "label", "user"]),
    seed=st.integers(0, 9),
)
def test_a_table_is_read_to_the_bit_or_one_line_says_why_not(
    tmp_path, monkeypatch: pytest.MonkeyPatch, holder, label, user, fault, order, seed
):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    columns = columns_of(label, user, np.random.default_rng(seed))
    text, line = FAULTS[fault]
    if fault:
        columns["floor"][seed] = text
    brought = held({name: columns[name] for name in order}, holder, tmp_path)
    if fault:
        with pytest.raises(ConfigError) as caught:
            Dataset.load(Config(data=brought).data)
        assert line in str(caught.value)
        assert "column floor" in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    dataset = Dataset.load(Config(data=brought).data)
    np.testing.assert_array_equal(dataset.samples, expected_samples(columns, order))
    assert [dataset.domain_names[number] for number in dataset.domains] == plain(columns["user"])
    names = dataset.class_labels or dataset.class_names or tuple(map(str, range(dataset.classes)))
    assert plain([names[number] for number in dataset.labels]) == plain(columns["label"])
    said = [decision.said for decision in dataset.decisions]
    assert {"column label is the target", "column user is the user"} <= {*said}
    assert any(line.startswith("column job (") and line.endswith(") holds categories") for line in said)
