"""A few samples for the page of a run: pictures, or rows of a table."""

from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset
from fedbench.report.thumbnails import picture

MOST_SAMPLES, MOST_COLUMNS = 8, 10


def shown_samples(dataset: Dataset) -> dict[str, Any]:
    """Samples that are evenly spread over the training part, as JSON.

    pictures: pairs of a target and a data URL; else heads and rows of a table, the target last, of the first numbers.
    """
    count = dataset.train_rows or len(dataset.targets)
    rows = np.unique(np.linspace(0, count - 1, MOST_SAMPLES).astype(int))
    targets = [target_text(dataset, row) for row in rows]
    if dataset.holds_images:
        return {"pictures": [*map(list, zip(targets, map(picture, as_bytes(dataset, rows)), strict=True))]}
    samples = np.asarray(dataset.samples[rows]).reshape(len(rows), -1)
    names = dataset.columns or tuple(map(str, range(samples.shape[1])))
    more = ["..."] * (len(names) > MOST_COLUMNS)
    text = lambda value: "missing" if np.isnan(value) else f"{value:.6g}"  # noqa: E731
    cells = [[*map(text, sample[:MOST_COLUMNS]), *more] for sample in samples]
    lines = [[*cells_of_row, target] for cells_of_row, target in zip(cells, targets, strict=True)]
    return {"heads": [*names[:MOST_COLUMNS], *more, "target"], "rows": lines}


def as_bytes(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Images as uint8 [n, C, H, W]; floats are black two deviations below the mean and white two above it."""
    samples = np.asarray(dataset.samples[rows])
    if samples.dtype == np.uint8:
        return samples
    mean, std = (np.reshape(values, (-1, 1, 1)) for values in (dataset.mean, dataset.std))
    return np.clip(127.5 + 63.75 * (samples - mean) / std, 0, 255).astype(np.uint8)


def target_text(dataset: Dataset, row: int) -> str:
    """The class, the labels, or the first numbers of a target."""
    value = np.asarray(dataset.targets[row])
    if dataset.classes:
        return dataset.output_names[int(value)]
    if dataset.task == "multilabel":
        return ", ".join(dataset.output_names[number] for number in np.flatnonzero(value)) or "none"
    numbers = [f"{number:.6g}" for number in value.reshape(-1)[:MOST_COLUMNS]]
    return ", ".join(numbers) + (", ..." if value.size > MOST_COLUMNS else "")
