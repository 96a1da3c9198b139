"""Figures for papers from the command line."""

import pytest

from fedbench.cli.figure import main
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
