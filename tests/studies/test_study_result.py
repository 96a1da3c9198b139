"""Studies as Python sees them."""

import pytest

from fedbench.errors import ConfigError
from fedbench.studies.compare import Comparison
from fedbench.studies.study_result import ENDINGS, StudyResult
from tests.report.conftest import make_run

__all__ = ["make_run"]


def test_the_table_is_read_when_it_is_asked_for(tmp_path):
    left = Comparison(tmp_path)
    (tmp_path / "table.csv").write_text("method,mean\nfedper,0.5\n")
    assert left.table.to_dict("records") == [{"method": "fedper", "mean": 0.5}]
    assert left.table is left.table
    assert left.report == tmp_path / "report.html"


def test_what_a_paper_needs_is_saved_in_the_format_of_the_file(make_run, tmp_path):
    result = StudyResult(make_run(seeds=(0, 1)))
    for name, what, begin in (
        ("curve.pdf", None, "%PDF"),
        ("cost.svg", "traffic", "<?xml"),
        ("scores.tex", None, "% \\usepackage"),
        ("chosen.md", "hyperparameters", "Hyperparameters."),
        ("scores.csv", "scores", "method,"),
        ("methods.bib", None, "@inproceedings{fedcac,"),
        ("protocol.txt", "protocol", "We run Ours on digits."),
    ):
        file = result.save(tmp_path / name, what, names={"fedcac": "Ours"})
        assert file == tmp_path / name
        assert file.read_bytes().startswith(begin.encode())
    assert (tmp_path / "scores.tex").read_text() == result.typeset(names={"fedcac": "Ours"})
    assert result.typeset(methods="fedcac") == result.typeset(methods=["fedcac"])
    shown = [result.figure(backend="matplotlib", methods=own) for own in ("fedcac", ["fedcac"])]
    assert len({len(figure.axes[0].lines) for figure in shown}) == 1
    with pytest.raises(ConfigError, match=r"the end of its name: must be one of pdf, svg, png, tex, md, txt, csv, bib"):
        result.save("a.doc")
    with pytest.raises(ConfigError, match=r"format = csv: the name a.tex says latex; leave it out, or choose"):
        result.save("a.tex", format="csv")
    assert set(ENDINGS.values()) == {"latex", "markdown", "csv", "bibtex"}
