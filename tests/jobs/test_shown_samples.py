"""The samples on the page of a run."""

import numpy as np

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.jobs.shown_samples import MOST_COLUMNS, MOST_SAMPLES, as_bytes, shown_samples


def test_pictures_stand_with_their_class():
    dataset = Dataset.load(Config(data="digits").data)
    pictures = shown_samples(dataset)["pictures"]
    assert len(pictures) == MOST_SAMPLES
    assert pictures[0][0] == str(dataset.targets[0])
    assert all(address.startswith("data:image/png;base64,") for _, address in pictures)


def test_rows_stand_with_their_columns_and_target(tmp_path):
    (tmp_path / "a.csv").write_text("age,y\n" + "".join(f"{n / 2},{'no' if n % 3 else 'yes'}\n" for n in range(15)))
    dataset = Dataset.load(Config(data={"name": f"csv:{tmp_path / 'a.csv'}", "label": "y"}).data)
    found = shown_samples(dataset)
    assert found["heads"] == ["age", "target"]
    assert found["rows"][0] == ["0", "yes"]
    assert found["rows"][-1] == ["7", "no"]


def test_wide_samples_are_cut_and_labels_are_listed():
    labels = np.array([[1, 0, 1], [0, 0, 0]] * 10)
    dataset = Dataset.load(Config(data=(np.arange(20 * 40.0).reshape(20, 40), labels)).data)
    found = shown_samples(dataset)
    assert found["heads"] == [*map(str, range(MOST_COLUMNS)), "...", "target"]
    assert {line[-1] for line in found["rows"]} <= {"0, 2", "none"}
    assert all(len(line) == MOST_COLUMNS + 2 for line in found["rows"])


def test_floats_are_grey_at_their_mean():
    images = np.stack([np.full((1, 4, 4), value, np.float32) for value in (-2, 0, 2, 0)] * 5)
    dataset = Dataset.load(Config(data=(images, np.arange(20) % 2)).data)
    assert [int(image[0, 0, 0]) for image in as_bytes(dataset, np.arange(3))] == [37, 127, 217]
