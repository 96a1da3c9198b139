"""PAMAP2's recordings, written as they are laid out."""

from pathlib import Path

import numpy as np
import pytest

from fedbench.data.sources.pamap2 import CHANNELS, fill_gaps, windows

ROWS = 20


def write(file: Path, activities: list[int], first: float = 0) -> np.ndarray:
    """A recording of 54 columns: time, activity, heart rate (every ninth row has one), and three sensors."""
    file.parent.mkdir(parents=True, exist_ok=True)
    table = first + np.arange(len(activities) * 54, dtype=float).reshape(-1, 54)
    table[:, 1] = activities
    table[np.arange(len(table)) % 9 != 0, 2] = np.nan
    table[1, 4] = np.nan
    lines = [" ".join("NaN" if np.isnan(v) else f"{v:g}" for v in row) for row in table]
    file.write_text("\n".join(lines) + "\n")
    return table


@pytest.fixture
def pamap2(tmp_path) -> Path:
    write(tmp_path / "PAMAP2_Dataset" / "Protocol" / "subject101.dat", [0] * 3 + [1] * 9 + [24] * 8)
    write(tmp_path / "PAMAP2_Dataset" / "Protocol" / "subject102.dat", [4] * 12)
    write(tmp_path / "PAMAP2_Dataset" / "Optional" / "subject101.dat", [9] * 4)
    return tmp_path / "PAMAP2_Dataset"


def test_windows_of_one_activity_each(pamap2, load):
    dataset = load("pamap2", root=pamap2, length=4)
    assert (dataset.shape, dataset.kind, dataset.one_part) == ((27, 4), "feature", True)
    assert [dataset.class_names[label] for label in dataset.labels] == ["lying"] * 2 + ["rope jumping"] * 2 + [
        "walking"
    ] * 3
    assert [dataset.domain_names[own] for own in dataset.domains] == ["subject101"] * 4 + ["subject102"] * 3
    assert dataset.samples[0, 0].tolist() == [4 + 54 * row for row in range(3, 7)], "column 4 of rows 3 to 6"
    assert CHANNELS[:9] == [4, 5, 6, 10, 11, 12, 13, 14, 15]
    assert (CHANNELS[9], CHANNELS[18], CHANNELS[-1]) == (21, 38, 49)
    assert not any("overlap" in line for line in dataset.warnings)


def test_heart_rate_steps_and_optional_activities(pamap2, load):
    dataset = load("pamap2", root=pamap2, length=4, step=2, heart_rate=True)
    assert (dataset.shape, len(dataset.targets)) == ((28, 4), 3 + 3 + 5)
    assert (dataset.extent, dataset.order.tolist()) == (4, [3, 5, 7, 12, 14, 16, 0, 2, 4, 6, 8])
    assert dataset.samples[0, 0].tolist() == [2] * 4, "the last value, of row 0"
    assert any("share readings" in line for line in dataset.warnings)
    more = load("pamap2", root=pamap2, length=4, optional=True)
    assert (more.classes, more.domain_names) == (18, ("subject101", "subject102"))
    assert more.class_names[7:10] == ("watching TV", "computer work", "car driving")
    assert "watching TV" in [more.class_names[label] for label in more.labels]


def test_missing_values_take_the_one_before():
    nan = np.nan
    table = np.array([[nan, nan], [2, nan], [nan, nan], [4, nan]], np.float32)
    assert fill_gaps(table).tolist() == [[2, 0], [2, 0], [2, 0], [4, 0]]


def test_no_window_is_longer_than_its_activity():
    readings = np.arange(10, dtype=np.float32)[:, None]
    found, classes, starts = windows(readings, np.array([1] * 4 + [0] * 2 + [2] * 4), 3, 1, {1: "a", 2: "b"})
    assert found[:, 0].tolist() == [[0, 1, 2], [1, 2, 3], [6, 7, 8], [7, 8, 9]]
    assert (classes.tolist(), starts.tolist()) == ([0, 0, 1, 1], [0, 1, 6, 7])
    assert windows(readings, np.ones(10, int), 11, 1, {1: "a"})[0].shape[0] == 0


def test_broken_recordings(pamap2, refused):
    assert "0 training and 0 test samples" in refused("pamap2", root=pamap2, length=100)
    file = pamap2 / "Protocol" / "subject101.dat"
    for content, text in (
        ("1 2 3\n", "3 columns, or rows without"),
        ("", "not a recording"),
        ("a " * 54, "not a recording"),
    ):
        file.write_text(content)
        assert f"{file}: {text}" in refused("pamap2", root=pamap2)
