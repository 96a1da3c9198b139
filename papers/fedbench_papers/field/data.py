"""Data sets of the field's settings that are put together of others; each stands in the plan by its import string."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedbench.config import Config
from fedbench.config.keys import nest
from fedbench.data.dataset import Dataset
from fedbench.data.sources.idx import idx_file_names, read_idx
from fedbench.errors import ConfigError
from fedbench_papers.image_sources import source_keys

DIGIT_SIDE, FRAME = 20, 4
"""MNIST's digits are fitted into 20 x 20 pixels, with a frame of four around them."""
KINDS = ("images", "labels")
Part = tuple[np.ndarray, np.ndarray, list[str]]


def mnist_usps(mnist: str, usps: str) -> tuple[Part, Part]:
    """Handwritten digits of two origins, 28 x 28: images, classes, and the origin as their domain.

    mnist, usps: folders with the IDX files of both. USPS's pixels, 16 x 16, are brought to the size of MNIST's digits.
    """
    parts = []
    files = [idx_file_names("", test) for test in ("t10k", "test")]  # images and labels of both parts
    for start in (0, 2):
        images, labels = _images_and_labels(Path(mnist), files[0][start : start + 2])
        others, their_labels = _images_and_labels(Path(usps), files[1][start : start + 2])
        domains = ["MNIST"] * len(labels) + ["USPS"] * len(their_labels)
        parts.append((np.concatenate([images, _framed(others)]), np.concatenate([labels, their_labels]), domains))
    return parts[0], parts[1]


def _images_and_labels(folder: Path, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    found = [next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None) for name in names]
    if found[0] is None or found[1] is None:
        raise ConfigError(f"{folder}: {' and '.join(names)} are expected here, compressed or not")
    return read_idx(found[0], 3), read_idx(found[1], 1).astype(np.int64)


def _framed(images: np.ndarray) -> np.ndarray:
    size = (DIGIT_SIDE, DIGIT_SIDE)
    scaled = np.stack([np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR)) for image in images])
    return np.pad(scaled, ((0, 0), (FRAME, FRAME), (FRAME, FRAME)))


def small_cifar10(folder: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """CIFAR-10 at 16 x 16, each pixel the mean of four, so that convolutions take a quarter of the time.

    folder: with the published files, or with parquet files of the pictures.
    """
    whole = Dataset.load(Config(**nest(source_keys("cifar10", {"cifar10": folder}))).data)
    count, channels, height, width = whole.samples.shape
    fours = whole.samples.reshape(count, channels, height // 2, 2, width // 2, 2)
    images, labels = fours.mean((3, 5)).round().astype(np.uint8).transpose(0, 2, 3, 1), np.asarray(whole.targets)
    first = whole.train_rows
    return (images[:first], labels[:first]), (images[first:], labels[first:])


def pneumonia(folder: str, share: float = 0.2) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """X-ray pictures of lungs (PneumoniaMNIST), of which few show pneumonia: images 28 x 28 and 0 or 1.

    share: of the pictures that show it, the first ones of both parts. The validation part is added to the training
    part.
    """
    path = Path(folder) / "pneumoniamnist.npz"
    if not path.is_file():
        raise ConfigError(f"{folder}: pneumoniamnist.npz is expected here")
    with np.load(path, allow_pickle=False) as arrays:
        known = {name: arrays[name] for name in arrays.files}
    images, labels = (np.concatenate([known[f"{part}_{kind}"] for part in ("train", "val")]) for kind in KINDS)
    return _with_few(images, labels, share), _with_few(known["test_images"], known["test_labels"], share)


def _with_few(images: np.ndarray, labels: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    flat = labels.reshape(-1).astype(np.int64)
    negative, positive = np.flatnonzero(flat == 0), np.flatnonzero(flat == 1)
    rows = np.sort(np.concatenate([negative, positive[: round(share * len(negative) / (1 - share))]]))
    return images[rows], flat[rows]


def affairs(least: int = 40, most: int = 240) -> Any:
    """A survey of 1974 (Fair, "A theory of extramarital affairs", 1978): a table with a row per married woman.

    Target: whether she had an affair. User: the occupations of wife and husband, which make groups of `least` to
    `most` rows, drawn once for all from larger ones. statsmodels has the table.
    """
    try:
        from statsmodels.datasets import fair
    except ImportError:
        raise ConfigError("the table of affairs comes with statsmodels: pip install 'fedbench-papers[field]'") from None
    table = fair.load_pandas().data
    table["couple"] = [f"{w:.0f}-{h:.0f}" for w, h in zip(table["occupation"], table["occupation_husb"], strict=True)]
    table["affair"] = (table["affairs"] > 0).astype(int)
    sizes = table.groupby("couple")["couple"].transform("size")
    few = table[sizes >= least].sample(frac=1, random_state=0).groupby("couple").head(most)
    return few.sort_index().drop(columns=["affairs", "occupation", "occupation_husb"]).reset_index(drop=True)
