"""The page of a data set: sample images, counts, and the data of each client."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedbench.report.template import render
from fedbench.report.thumbnails import LOSSLESS, picture
from fedbench.results.files import write_atomically


@dataclass(frozen=True)
class Sheet:
    """Images of a class, uint8 [n, C, H, W]; captions: one per image, or empty."""

    name: str
    counts: str
    images: np.ndarray
    captions: tuple[str, ...] = ()


@dataclass(frozen=True)
class CountTable:
    """Numbers of images, int64 [rows, columns], and remarks to the right of rows."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: np.ndarray
    right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    """The contents of the page.

    tiles: (value, name, remark); bars: training and test samples per group, such as a class; noun: for samples.
    """

    title: str
    about: str
    tiles: list[tuple[str, str, str]]
    sheets: list[Sheet]
    sheet_intro: str
    classes: tuple[str, ...]
    bars: np.ndarray  # [classes, 2]
    domains: CountTable | None = None
    partition: CountTable | None = None
    partition_intro: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    noun: str = "images"
    group: str = "class"


def write_preview(path: Path, preview: Preview) -> Path:
    """Writes the page as one file that opens offline."""
    sheets = [
        (sheet, list(zip(map(picture, sheet.images), sheet.captions or [""] * len(sheet.images), strict=True)))
        for sheet in preview.sheets
    ]
    small = max((sheet.images.shape[-1] for sheet in preview.sheets), default=0) <= LOSSLESS
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(
        path,
        render(
            "preview.html.j2",
            kind="data",
            title=preview.title,
            asked=preview.about,
            p=preview,
            sheets=sheets,
            small=small,
        ),
    )
    return path
