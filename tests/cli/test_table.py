"""Tables and texts for papers from the command line."""

import pytest

from fedbench.cli.table import main
from tests.report.reading import Make


def test_a_table_is_printed_or_written_in_the_format_of_its_file(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = make_run(seeds=(0, 1))
    assert main([str(folder)]) == 0
    assert "\\begin{tabular}" in capsys.readouterr().out
    for name, begin in (("a.md", "Test accuracy"), ("a.csv", "method,"), ("a.tex", "% \\usepackage{booktabs}")):
        file = folder / name
        assert main([str(folder), "--out", str(file), "--names", "fedcac=FedCAC"]) == 0
        assert capsys.readouterr().out == f"{file}\n"
        assert file.read_text().startswith(begin)
        assert "FedCAC" in file.read_text()


def test_texts_are_printed(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = str(make_run(seeds=(0,)))
    assert main([folder, "--what", "protocol"]) == 0
    assert capsys.readouterr().out.startswith("We run fedcac on digits.")
    assert main([folder, "--what", "bibtex"]) == 0
    assert capsys.readouterr().out.startswith("@inproceedings{fedcac,")


def test_mistakes_are_one_line_each(make_run: Make, capsys: pytest.CaptureFixture) -> None:
    folder = str(make_run(seeds=(0,)))
    for words, line in (
        (["--what", "nothing"], "table = nothing: must be one of scores, hyperparameters, ablation, protocol, bibtex"),
        (["--what", "ablation"], f"{folder}: no ablation here"),
        (["--what", "bibtex", "--format", "latex"], "format = latex: bibtex is written as bibtex"),
        (["--what", "protocol", "--reference", "local"], "reference = local: protocol has no marks"),
        (["--what", "protocol", "--methods", "fedcac"], "methods: the protocol is that of all methods"),
        (["--what", "bibtex", "--methods", "ditto"], "methods: ditto: not in this study"),
        (["--what", "hyperparameters", "--reference", "local"], "reference = local: hyperparameters has no marks"),
        (["--format", "csv", "--out", f"{folder}/a.tex"], "format = csv: the name a.tex says latex; leave it out"),
        (["--out", folder], f"--out {folder}: is a folder; give a file in it"),
        (["--format", "html"], "format = html: scores is written as latex, markdown, csv"),
    ):
        assert main([folder, *words]) == 2
        *_, said = capsys.readouterr().err.splitlines()
        assert said.startswith(f"fedbench: error: {line}")
    assert main([folder, "--format", "csv", "--out", f"{folder}/new/a.txt"]) == 0
