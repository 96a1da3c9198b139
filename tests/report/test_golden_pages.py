"""Pages and tables of eight stored studies, byte for byte as they were last looked at (`golden_pages/`).

After a change that is meant, `python -m tests.report.test_golden_pages` writes them anew; read the difference.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fedbench.report.in_python import answer_of
from fedbench.studies.study_result import WHATS, StudyResult
from tests.report.conftest import add_newcomers, write_comparison, write_grid, write_run
from tests.report.reading import Page, page_of
from tests.report.test_settings_tables import write_matrix

GOLDEN = Path(__file__).with_name("golden_pages")
LEVELS = {"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "ditto": 0.6, "centralized": 0.95}
FEW = {"local": 0.6, "fedper": 0.7, "fedcac": 0.8}
SMALL = {"": {"rounds": 2, "clients": 4}}
SEQUENTIAL = {"seeds": range(5), "stopping_rule": {"margin": 2.0, "most": 5}, "asked": SMALL}
TABLES = ("scores", "hyperparameters", "protocol")
FORMATS = {"tex": "latex", "md": "markdown", "csv": "csv"}
WARNING = "seed 0: AUROC is unknown at 1 of 10 clients (client 3)"


def with_newcomers(folder: Path) -> Path:
    write_comparison(folder, LEVELS)
    for place in (folder / "final").iterdir():
        add_newcomers(place, LEVELS[place.name])
    return folder


STUDIES: dict[str, Callable[[Path], Path]] = {
    "run": lambda folder: write_run(folder, warnings=[WARNING], outcomes=True),
    "grid": lambda folder: write_grid(folder, fail=(0,), masks=True),
    "comparison": lambda folder: write_comparison(folder, LEVELS, seeds=range(5), asked={"": {"outcomes": True}}),
    "sequential": lambda folder: write_comparison(folder, FEW, **SEQUENTIAL),
    "settings": lambda folder: write_matrix(folder, LEVELS, {**LEVELS, "local": 0.82}),
    "settings-sequential": lambda folder: write_matrix(folder, FEW, {**FEW, "fedper": 0.5}, **SEQUENTIAL),
    "failed": lambda folder: write_comparison(folder, LEVELS, fail={"fedper": [1], "ditto": [0, 1, 2]}),
    "newcomers": with_newcomers,
}


def rendered(name: str, folder: Path) -> dict[str, str]:
    """The texts of a study by ending: its answer and what its page shows, and all tables of each format."""
    study = STUDIES[name](folder / name)
    page = page_of(study)
    texts = {"txt": f"{answer_of(study)}\n\n{shown(page)}"}
    for ending, format in FORMATS.items():
        files = [f"{file.name}\n{file.read_text()}" for file in sorted(study.glob(f"table.{ending}"))]
        typeset = [f"{what}\n{StudyResult(study).typeset(what, format)}" for what in TABLES if format in WHATS[what]]
        texts[ending] = "\n\n".join([*files, *typeset])
    return {ending: text.replace(str(folder), "FOLDER").rstrip() + "\n" for ending, text in texts.items()}


def shown(page: Page) -> str:
    """The words of a page, a line each, and every chart's names and numbers of points."""
    lines = [line.strip() for line in page.text.splitlines()]
    charts = [
        f"chart {name}: " + ", ".join(f"{trace.get('name', '')} {len(trace.get('x') or ())}" for trace in chart["data"])
        for name, chart in sorted(page.charts.items())
    ]
    return "\n".join([*filter(None, lines), *charts])


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_and_its_tables_are_as_they_were(name, tmp_path):
    texts = rendered(name, tmp_path)
    files = {file.suffix[1:]: file for file in GOLDEN.glob(f"{name}.*")}
    assert set(texts) == set(files)
    for ending, text in texts.items():
        assert text == files[ending].read_text(), f"{name}.{ending}"


def write_golden() -> None:
    sys.modules["fedbench.report.pictures"] = cast(
        Any, SimpleNamespace(write_pictures=lambda *given: [])
    )  # as in tests
    GOLDEN.mkdir(exist_ok=True)
    for file in GOLDEN.iterdir():
        file.unlink()
    for name in STUDIES:
        with TemporaryDirectory() as folder:
            for ending, text in rendered(name, Path(folder)).items():
                (GOLDEN / f"{name}.{ending}").write_text(text)


if __name__ == "__main__":
    write_golden()
