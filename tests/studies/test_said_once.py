"""What a study says of its methods: notes once, doubts once with their methods and beside their rows."""

import re
from pathlib import Path

import pytest

from fedbench.cli.compare import outcome
from fedbench.jobs.resolve import resolve
from fedbench.report.footer import study_warnings
from fedbench.report.study import Study
from fedbench.results.remarks import doubts_in
from fedbench.runtime.warnings import config_warnings
from fedbench.studies.compare import compare
from tests.runtime.rounds import small

FEDBN = "fedbn: the model has no BatchNorm layer with numbers of its own, so this is fedavg"
FEW = {"name": "dirichlet", "clients": 10, "train_size": 3}
"""Clients with so few samples that the partition has something to say."""


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> tuple[Path, list[str]]:
    """A comparison over two seeds, and the lines of its log."""
    import logging

    lines, folder = list[str](), tmp_path_factory.mktemp("compare")
    handler, log = logging.Handler(), logging.getLogger("fedbench")
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        asked = small(rounds=1, seeds=[0, 1], out=str(folder), partition=FEW, model="mlp")
        compare(asked, ["fedavg", "fedbn"], tune=0, trials=1)
    finally:
        log.removeHandler(handler)
    return folder, lines


def test_a_note_that_all_runs_make_is_said_once(said):
    folder, lines = said
    ours = Study.load(folder).summaries
    notes = [line for line in ours["local"]["warnings"] if line not in doubts_in(ours["local"]["warnings"])]
    common = [line for line in notes if all(line in summary["warnings"] for summary in ours.values())]
    assert common
    for line in common:
        assert lines.count(f"note: {line}") == 1
        assert sum(line in other for other in lines) == 1


def test_a_doubt_is_said_once_before_round_1_and_stands_beside_its_row(said):
    folder, lines = said
    assert lines.count(f"warning: {FEDBN}") == sum(FEDBN in line for line in lines) == 1
    text, _ = outcome(folder)
    assert re.search(r"^fedbn \[1\] ", text, re.M)
    assert text.count(FEDBN) == 1
    assert not re.search(r"^(fedavg|local|fedavg-ft) \[", text, re.M)


def test_a_doubt_stands_on_the_page_once_and_in_the_tables(said):
    folder, _ = said
    first, *others = study_warnings(Study.load(folder))
    assert first == FEDBN
    assert not any(FEDBN in line for line in others)
    page = (folder / "report.html").read_text()
    assert "fedbn [1]" in page
    assert f"[1] {FEDBN}" in page
    for name in ("table.md", "table.tex"):
        assert f"[1] {FEDBN}" in (folder / name).read_text()


def test_settings_say_a_doubt_once(tmp_path, caplog):
    asked = small(rounds=1, seeds=[0], out=str(tmp_path), model="mlp")
    compare(asked, ["fedbn"], tune=0, trials=1, over={"train.lr": [0.1, 0.2]})
    assert caplog.messages.count(f"warning: {FEDBN}") == 1
    text, _ = outcome(tmp_path)
    assert text.count(FEDBN) == 1
    assert f"warning: {FEDBN}" in text.splitlines()


def test_a_grid_has_the_doubt_beside_its_row(tmp_path, capsys):
    from fedbench.cli.grid import main

    words = ["--method", "fedbn", "--model", "mlp", "--rounds", "1", "--seeds", "0", "--hosts", "0", "--trials", "1"]
    assert main([*words, "--space", "train.lr=0.1,0.2", "--baselines", "none", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert re.search(r"^fedbn \[1\] ", shown.out, re.M)
    assert f"[1] {FEDBN}" in shown.out
    assert shown.err.count(FEDBN) == 1


def test_values_without_effect_are_doubts_unless_they_decide_what_is_logged():
    asked = resolve(small(train={"lr_scale": 2}, compression={"share": 0.2}, wandb={"project": "mine"})).config
    lines = config_warnings(asked)
    assert [line.partition(" = ")[0] for line in lines if line not in doubts_in(lines)] == ["wandb.project"]
    assert [line.partition(" = ")[0] for line in doubts_in(lines)] == ["train.lr_scale", "compression.share"]
