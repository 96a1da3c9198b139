"""What papers get from a study compiles: every kind of table, the protocol and the bibliography, in one document."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedbench.report.paper import paper_table
from fedbench.report.paper_notes import Choice
from fedbench.report.table import Table
from fedbench.report.typeset import Cell
from fedbench.studies.study_result import StudyResult
from tests.report.conftest import write_comparison, write_grid
from tests.report.test_paper import LEVELS, write_ablation

DOCUMENT = r"""\documentclass[%s]{article}
\usepackage{booktabs,longtable}
\begin{document}
%s
\nocite{*}
\bibliographystyle{plain}
\bibliography{methods}
\end{document}
"""


needs_latex = pytest.mark.skipif(
    not (shutil.which("pdflatex") and shutil.which("bibtex")), reason="LaTeX (pdflatex, bibtex) is not installed"
)


@needs_latex
def test_a_long_table_breaks_over_pages(tmp_path):
    lines = [[Cell(f"m{i}"), Cell(f"{i}")] for i in range(100)]
    table = Table(["method", "lr"], lines, title="Many.", notes=["chosen on validation"], name="long")
    (tmp_path / "methods.bib").write_text("")
    (tmp_path / "paper.tex").write_text(DOCUMENT % ("onecolumn", table.typeset("latex")))
    run(["pdflatex", "-halt-on-error", "paper"], tmp_path)
    said = run(["pdflatex", "-halt-on-error", "paper"], tmp_path)
    assert "Float too large" not in said
    assert re.search(r"\((\d+) pages?", said)[1] == "3"


@needs_latex
def test_everything_for_a_paper_compiles_and_fits_its_columns(tmp_path):
    names = {"fedcac": r"A_B & 5% #{x} \ < λ $"}
    scores = write_comparison(tmp_path / "scores", LEVELS, seeds=range(5))
    tuned = write_grid(tmp_path / "grid", space={"method.tau": [0.1, 0.3, 0.5], "train.lr": [0.01, 0.05]})
    ablation = write_ablation(tmp_path / "ablation", {"method.tau": [0.1, 0.5, 0.9]}, 0.7, 0.8, 0.75)
    texts = [
        paper_table(scores, "scores", Choice(names=names)).typeset("latex"),
        paper_table(tuned, "hyperparameters", Choice(names=names)).typeset("latex"),
        paper_table(ablation, "ablation", Choice()).typeset("latex"),
        StudyResult(scores).typeset("protocol", "latex"),
    ]
    (tmp_path / "methods.bib").write_text(StudyResult(scores).typeset("bibtex", None))
    (tmp_path / "paper.tex").write_text(DOCUMENT % ("twocolumn", "\n".join(texts)))
    for program in (["pdflatex", "-halt-on-error"], ["bibtex"], ["pdflatex", "-halt-on-error"], ["pdflatex"]):
        said = run([*program, "paper"], tmp_path)
    assert "undefined" not in said
    too_wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", said)]
    assert not [points for points in too_wide if points > 1]
    entries = (tmp_path / "paper.bbl").read_text()
    assert "{FedPer}" in entries or "Personalization Layers" in entries


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout
