"""Camelyon17 of WILDS: patches of lymph nodes with or without tumor, ten slides of each of five hospitals (domains).

By default the test part has every fifth slide of each hospital: each hospital has both parts, and no slide is in both.
`data.parts wilds` reads the parts of WILDS: hospital 2 is the test part, hospital 1 is left out, and the patches that
the table marks are the validation part. Sources: Bandi et al., IEEE Transactions on Medical Imaging 2018; Koh et al.,
"WILDS: a benchmark of in-the-wild distribution shifts", ICML 2021.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field

from fedbench.config import Section
from fedbench.data.cache import Content
from fedbench.data.reading.arrays import refuse_damage
from fedbench.data.reading.images import Item, checked_label
from fedbench.data.reading.listing import listed_content
from fedbench.data.reading.parts import is_test_row
from fedbench.data.reading.published import Extent, PublishedSet
from fedbench.errors import ConfigError

CLASSES = ("no tumor", "tumor")
COLUMNS = ("patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
WILDS_OTHER, WILDS_TEST = 1, 2
"""The hospitals that WILDS validates and tests on."""
PUBLISHED = {
    "camelyon17": PublishedSet(
        Extent(364_000, (3, 96, 96), len(CLASSES)),
        ("metadata.csv", "patches"),
        below=("camelyon17_v1.0",),
        is_needed=lambda name: name.endswith((".png", "metadata.csv")),
        origin="get camelyon17_v1.0 by the package wilds, or from its authors",
        size="455,954 patches, 10 GB",
        licence="CC0",
    )
}


class Options(Section):
    parts: Literal["slides", "wilds"] = Field(
        "slides", description="slides: every fifth slide of each hospital is for testing; wilds: the parts of WILDS"
    )
    size: int | None = Field(None, ge=1, description="resize every patch to size x size pixels (published: 96)")


def read(name: str, folder: Path, options: Options) -> Content:
    table = read_metadata(folder / "metadata.csv")
    hospitals = sorted(set(table["center"]))
    items: dict[str, list[Item]] = {"train": [], "val": [], "test": [], "": []}
    for part, row in zip(part_of_patches(table, options.parts == "slides"), table.itertuples(), strict=True):
        node = f"patient_{row.patient}_node_{row.node}"
        file = folder / "patches" / node / f"patch_{node}_x_{row.x_coord}_y_{row.y_coord}.png"
        label = checked_label(row.tumor, len(CLASSES), f"{folder / 'metadata.csv'}, {file.name}")
        items[part].append(Item(file, label, str(file), hospitals.index(row.center)))
    names = tuple(f"hospital {number}" for number in hospitals)
    del items[""]
    return listed_content(items, CLASSES, options.size, domain_names=names)


def read_metadata(file: Path) -> pd.DataFrame:
    """The table of all patches. Raises ConfigError."""
    with refuse_damage(file, "not a table"):
        table = pd.read_csv(file, index_col=0, dtype={"patient": str})
    absent = [name for name in COLUMNS if name not in table.columns]
    if absent or not len(table) or table[[*COLUMNS]].isna().any(axis=None):
        raise ConfigError(f"{file}: {f'no column {absent[0]}' if absent else 'no rows, or empty cells'}")
    return table


def part_of_patches(table: pd.DataFrame, by_slide: bool) -> np.ndarray:
    """The part of each patch, by its slide's place among those of its hospital or as in WILDS; empty: left out."""
    if by_slide:
        slides = table.groupby("center")["slide"].unique()
        tests = [slide for centre in slides for i, slide in enumerate(sorted(centre)) if is_test_row(i)]
        return np.where(table["slide"].isin(tests), "test", "train")
    inside = np.where(table["split"] == 1, "val", "train")
    return np.select([table["center"] == WILDS_TEST, table["center"] == WILDS_OTHER], ["test", ""], inside)
