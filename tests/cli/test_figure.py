"""Figures for papers from the command line."""

from pathlib import Path

import pytest

from fedbench.cli.figure import main
from tests.report.conftest import write_comparison
from tests.report.reading import Make


def test_the_path_and_what_is_shown_are_printed(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = make_run(seeds=(0, 1))
    assert main([str(folder), "--format", "svg"]) == 0
    path, said = capsys.readouterr().out.splitlines()
    assert path == str(folder / "curve.svg")
    assert "bands: lowest to highest seed" in said
    assert "<svg" in (folder / "curve.svg").read_text()
    assert main([str(folder), "--what", "seconds", "--width", "6.8", "--out", str(folder / "s.png")]) == 0
    assert (folder / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_caption_says_nothing_of_the_page_or_of_other_figures(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_comparison(tmp_path, {"local": 0.7, "fedper": 0.8})
    assert main([str(folder), "--what", "forest", "--format", "svg"]) == 0
    forest = capsys.readouterr().out
    assert "Thick: 95 % interval (Student t)" in forest
    assert "Values:" not in forest
    assert main([str(folder), "--what", "gains", "--format", "svg"]) == 0
    gains = capsys.readouterr().out
    assert "thick: the middle half" in gains
    assert "interval" not in gains


def test_mistakes_are_one_line_each(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = str(make_run(seeds=(0,)))
    for words, line in (
        (["--what", "curves"], "figure = curves: must be one of curve, train-loss"),
        (["--methods", "ditto"], "methods: ditto: not in this study; it has fedcac"),
        (["--format", "gif"], "format = gif: must be one of pdf, svg, png"),
        (["--width", "wide"], "--width wide: must be a number of inches from 1 to 30"),
        (["--width", "nan"], "--width nan: must be"),
    ):
        assert main([folder, *words]) == 2
        *_, said = capsys.readouterr().err.splitlines()
        assert said.startswith(f"fedbench: error: {line}")
