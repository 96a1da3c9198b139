"""The tables at the head of a report, in files and in a terminal."""

import math

import pandas as pd
import pytest

from fedbench.cli.compare import outcome
from fedbench.report.leaderboard import leaderboard
from fedbench.report.page import write_page
from fedbench.report.study import Study
from tests.report.test_leaderboard_table import LEVELS, shown, study

__all__ = ["study"]


def test_files_and_pages_hold_the_same_numbers(study):
    rows, texts = leaderboard(study), shown(study)
    write_page(study.folder)
    table = pd.read_csv(study.folder / "table.csv").set_index("method")
    assert table.loc["fedper", "over_local"] == pytest.approx(rows[1].over_local.interval.mean)
    assert table.loc["fedper", "best_ahead"] == pytest.approx(rows[1].behind.interval.mean)
    assert table.loc["fedper", "over_local_resolves"] == pytest.approx(rows[1].over_local.interval.half)
    assert table.loc["fedper", "better_off_high"] == pytest.approx(rows[1].over_local.better_off.high)
    assert table.loc["local", "tuned_points"] == 3
    last = study.last_rows("fedcac")
    half = 4.302653 * last["test_worst_tenth"].sem()  # t of 2 degrees of freedom
    assert table.loc["fedcac", "worst_tenth_high"] == pytest.approx(last["test_worst_tenth"].mean() + half, abs=1e-7)
    assert texts["fedcac"]["worst client"] == f"{100 * last['test_worst_tenth'].mean():.1f} ± {100 * half:.1f}"
    assert table.loc["fedcac", "spread"] == pytest.approx(last["test_spread"].mean())
    assert texts["fedcac"]["client sd"] == f"{100 * last['test_spread'].mean():.1f}"
    assert texts["fedcac"]["sd"] == f"{100 * rows[0].score.sd:.1f}"
    assert table.loc["fedcac", "pooled"] == pytest.approx(rows[0].score.mean, abs=0.01)
    assert texts["fedcac"]["pooled"] == f"{100 * table.loc['fedcac', 'pooled']:.1f}"


def test_a_reference_that_failed_comes_last_with_its_reason(make_comparison):
    folder = make_comparison(LEVELS, spread=0.0, fail={"centralized": (0, 1, 2), "fedcac": (1,)})
    write_page(folder)
    table = pd.read_csv(folder / "table.csv").set_index("method")
    assert table[["seeds", "failed_seeds"]].loc[["fedcac", "local"]].to_numpy().tolist() == [[2, 1], [3, 0]]
    assert table.loc["centralized", ["status", "error"]].tolist() == ["failed", "RuntimeError: boom"]
    assert math.isnan(table.loc["centralized", "mean"])
    assert '<td title="RuntimeError: boom">failed</td>' in (folder / "report.html").read_text()
    assert "fedcac (2 of 3 seeds)" in shown(Study.load(folder))


def test_where_all_failed_there_is_a_table_of_reasons(make_comparison, capsys):
    folder = make_comparison({"local": 0.6, "fedcac": 0.9}, fail={"local": (0,), "fedcac": (0,)}, seeds=(0,))
    write_page(folder)
    assert pd.read_csv(folder / "table.csv")["status"].tolist() == ["failed", "failed"]
    text, code = outcome(folder)
    assert code == 1
    assert "fedcac  failed" in text
    assert "Every method failed." in text.splitlines()
