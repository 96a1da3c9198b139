"""Figures of the classes of public sets."""

from fedbench.config import Config
from fedbench_papers.tables.figure import Figure
from fedbench_papers.tables.reproduce import reproduce
from tests.report.reading import page_of


def test_classes_of_public_sets_need_no_run():
    assert Figure("public", over="public.alpha", values=(1.0, 0.5)).runs("full") == {}


def test_the_classes_of_public_sets_are_counted_and_drawn_without_a_run(tmp_path):
    keys = {"partition": {"clients": 3}, "public": {"size": 50}, "seeds": [0, 1], "out": tmp_path / "out"}
    made = reproduce("fedmosaic/figure-10", Config(**keys), sources={"cifar10": "digits"}, trials=1)
    assert not (made.folder / "cells").exists()
    page, seeds = page_of(made.folder), [f"figure-{number}" for number in range(2)]
    for name in seeds:
        (drawn,) = page.charts[name]["data"]
        assert drawn["y"] == ["alpha=1", "alpha=0.7", "alpha=0.5", "alpha=0.3", "alpha=0.1"]
        assert drawn["z"][0] == [5] * 10, "IID"
        assert {sum(row) for row in drawn["z"]} == {50}
        assert max(drawn["z"][4]) > 15
    assert page.answer == "fedmosaic/figure-10: 50 numbers counted, in 1 panel."
    assert "without training" in page.text
    assert "Reports:" not in page.text
    table = made.table.set_index(["line", "at"])
    assert (table["seeds"] == 2).all()
    assert "alpha = 1: a perfectly IID public set" in page.text
