"""The curves of a comparison as files."""

from pathlib import Path

import pytest
from PIL import Image

from fedbench.installation import EXTRAS
from tests.report.reading import Make, page_of


def test_curves_leave_as_png_and_svg_which_the_page_links(make_comparison: Make) -> None:
    folder: Path = make_comparison({"local": 0.7, "fedcac": 0.8}, seeds=(0, 1))
    page = page_of(folder)
    for name in ("curves", "costs"):
        assert {f"{name}.png", f"{name}.svg"} <= set(page.references)
        with Image.open(folder / f"{name}.png") as picture:
            assert picture.width == 2100
        assert "<svg" in (folder / f"{name}.svg").read_text()


def test_a_long_name_is_cut_so_that_the_curves_have_room(make_comparison: Make) -> None:
    folder: Path = make_comparison({"local": 0.7, f"mine:{'Method' * 20}End": 0.8}, seeds=(0, 1))
    page_of(folder)
    assert "MethodEnd" in (folder / "curves.svg").read_text()


def test_without_matplotlib_the_page_comes_without_them(
    make_comparison: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder: Path = make_comparison({"local": 0.7, "fedcac": 0.8}, seeds=(0, 1))
    assert "curves.png" in page_of(folder).references
    monkeypatch.setitem(EXTRAS, "plots", {"no_such_matplotlib": "matplotlib"})
    caplog.set_level("INFO", "fedbench")
    page = page_of(folder)
    assert "curve-after_agg" in page.charts
    assert not [name for name in page.references if name.endswith((".png", ".svg"))]
    assert not [*folder.glob("*.png"), *folder.glob("*.svg")], "those of an earlier page would not be of this one"
    assert "these need matplotlib (pip install 'fedbench-pfl[plots]')" in caplog.text


def test_the_same_numbers_give_the_same_files(make_comparison: Make) -> None:
    made = [make_comparison({"local": 0.7, "fedcac": 0.8}, name, seeds=(0,)) for name in ("one", "two")]
    for folder in made:
        page_of(folder)
    one, two = ((folder / "curves.svg").read_bytes() for folder in made)
    assert one == two


def test_without_costs_there_is_no_picture_of_them(make_comparison: Make) -> None:
    folder: Path = make_comparison({"local": 0.7, "centralized": 0.8}, seeds=(0,))
    for lines in folder.glob("final/*/metrics.jsonl"):
        lines.write_text(lines.read_text().replace('"steps": 200', '"steps": 0'))
    page = page_of(folder)
    assert "curves.svg" in page.references
    assert not (folder / "costs.svg").exists()
