"""The page of a data set: sample images, counts, and the data of each client."""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from fedbench.report.template import render
from fedbench.results.files import write_atomically

LOSSLESS = 64
"""Images up to this many pixels a side are shown unchanged; larger ones are scaled down."""
THUMBNAIL = 96
WIDTH = 980
"""Width of a chart in units; the page may scale it or scroll."""


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
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_preview(preview))
    return path


def render_preview(preview: Preview) -> str:
    return render(
        "preview.html.j2",
        p=preview,
        sheets=[
            (s, list(zip(map(picture, s.images), s.captions or [""] * len(s.images), strict=True)))
            for s in preview.sheets
        ],
        small=max((s.images.shape[-1] for s in preview.sheets), default=0) <= LOSSLESS,
        bars=Bars(preview.classes, preview.bars),
        domains=preview.domains and Dots(preview.domains),
        partition=preview.partition and Dots(preview.partition),
    )


def picture(pixels: np.ndarray) -> str:
    """Encodes uint8 [C, H, W] as a data URL."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    stream = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        image.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        image.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"


@dataclass(frozen=True)
class Mark:
    """A dot or a bar with its tooltip."""

    x: float
    y: float
    size: float
    title: str
    other: float = 0.0


class Bars:
    """One bar per class: training images below, test images on top."""

    height, top, bottom = 150, 8, 4

    def __init__(self, names: tuple[str, ...], counts: np.ndarray) -> None:
        self.width, self.most = WIDTH, int(counts.sum(axis=1).max(initial=1))
        step = WIDTH / len(names)
        self.thick = max(1.0, step - max(1.0, 0.22 * step))
        scale = (self.height - self.top - self.bottom) / self.most
        self.marks = [
            Mark(i * step + (step - self.thick) / 2, 0, train * scale, f"{name}: {train:,} + {test:,}", test * scale)
            for i, (name, (train, test)) in enumerate(zip(names, counts.tolist(), strict=True))
        ]
        self.base = self.height - self.bottom


class Dots:
    """A matrix of dots whose area is the number of images."""

    letter = 6.4
    """Mean width of a letter."""

    def __init__(self, table: CountTable) -> None:
        rows, columns = table.counts.shape
        self.left = 20 + self.letter * max(map(len, table.rows))
        self.right = 20 + self.letter * max(map(len, table.right), default=0)
        longest = max(map(len, table.columns))
        self.head = 14 + (self.letter * 0.75 * longest if longest > 2 else 14)
        room = (WIDTH - self.left - self.right) / columns
        self.cell = min(46.0, max(10.0, room))
        self.row = min(28.0, max(13.0, self.cell))
        self.slope = longest > 2
        self.width = self.left + columns * self.cell + self.right + (0.7 * self.letter * longest if self.slope else 0)
        self.height = self.head + rows * self.row + 8
        most = max(1, int(table.counts.max(initial=1)))
        self.most, radius = most, 0.47 * min(self.cell, self.row)
        self.names = [(self.left - 12, self.y(i), name) for i, name in enumerate(table.rows)]
        self.remarks = [(self.left + columns * self.cell + 12, self.y(i), text) for i, text in enumerate(table.right)]
        every = max(1, -(-columns // int(max(1, columns * self.cell // (11 if self.slope else 16)))))
        self.columns = [(self.x(i), self.head - 10, name) for i, name in enumerate(table.columns) if i % every == 0]
        self.lines = [self.y(i) for i in range(rows)]
        self.marks = [
            Mark(
                self.x(c),
                self.y(r),
                max(0.9, radius * (n / most) ** 0.5),
                cell_title(table.rows[r], table.columns[c], n),
            )
            for r, c, n in nonzero_entries(table.counts)
        ]

    def x(self, column: int) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: int) -> float:
        return self.head + (row + 0.5) * self.row


def nonzero_entries(counts: np.ndarray) -> Iterable[tuple[int, int, int]]:
    """(row, column, number) of all nonzero entries."""
    return ((int(r), int(c), int(counts[r, c])) for r, c in np.argwhere(counts))


def cell_title(row: str, column: str, number: int) -> str:
    return f"{row}, {column}: {number:,} images"
