"""Camelyon17's table and patches, laid out as WILDS does."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

HEADER = ",patient,node,x_coord,y_coord,tumor,slide,center,split\n"


@pytest.fixture
def camelyon(tmp_path) -> Path:
    """Three hospitals with five slides of two patches each; a patch is as bright as its number."""
    folder, lines = tmp_path / "camelyon17_v1.0", [HEADER]
    for number in range(30):
        slide, center = number // 2, number // 10
        name = f"patient_{slide:03d}_node_4"
        file = folder / "patches" / name / f"patch_{name}_x_{number}_y_7.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 6, 4), [number] * 3 + [255], np.uint8)).save(file)
        lines.append(f"{number},{slide:03d},4,{number},7,{number % 2},{slide},{center},{int(number % 5 == 0)}\n")
    (folder / "metadata.csv").write_text("".join(lines))
    return folder


def test_no_slide_is_in_both_parts_and_each_hospital_has_both(camelyon, load):
    dataset = load("camelyon17", root=camelyon)
    assert (dataset.train_rows, dataset.test_rows, dataset.shape) == (24, 6, (3, 6, 6))
    numbers = dataset.samples[:, 0, 0, 0]
    assert numbers[24:].tolist() == [8, 9, 18, 19, 28, 29]
    assert dataset.labels.tolist() == (numbers % 2).tolist()
    assert dataset.domains.tolist() == (numbers // 10).tolist()
    assert dataset.domain_names == ("hospital 0", "hospital 1", "hospital 2")
    assert dataset.class_names == ("no tumor", "tumor")


def test_the_parts_of_wilds(camelyon, load):
    dataset = load("camelyon17", root=camelyon.parent, parts="wilds", size=3)
    assert (dataset.train_rows, dataset.val_rows, dataset.test_rows, dataset.shape) == (10, 2, 10, (3, 3, 3))
    assert dataset.samples[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 0, 5, *range(20, 30)]


def test_broken_tables_and_missing_patches(camelyon, refused):
    table = camelyon / "metadata.csv"
    whole = table.read_text()
    for content, text in (
        ("", "metadata.csv: not a table"),
        (whole.replace("center", "hospital"), "metadata.csv: no column center"),
        (HEADER, "metadata.csv: no rows, or empty cells"),
        (whole.replace("3,001,4,3,7,1", "3,001,4,3,7,2"), "label 2 is outside the class range; 0 to 1"),
    ):
        table.write_text(content)
        assert text in refused("camelyon17", root=camelyon)
    table.write_text(whole)
    next((camelyon / "patches" / "patient_003_node_4").iterdir()).unlink()
    assert "patient_003_node_4" in refused("camelyon17", root=camelyon)
