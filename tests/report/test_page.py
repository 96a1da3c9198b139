"""The sections of a page."""

import json
import re

import pytest

from fedbench.cli.compare import outcome
from tests.report.reading import page_of
from tests.report.test_settings_tables import folder

__all__ = ["folder"]


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"ends": {"fedper": ["train.lr"]}},
        {"untried": {"fedper": ["train.lr"]}},
        {"stopping_rule": {"margin": 1.0, "most": 5}},
        {"search": "random", "refused": [["fedper", "train.lr=-1", "must be > 0"]]},
    ],
    ids=lambda plan: next(iter(plan), "told"),
)
def test_points_are_differences_and_what_was_tuned_is_a_candidate(make_comparison, plan) -> None:
    folder = make_comparison({"local": 0.7, "fedper": 0.8, "fedcac": 0.85, "centralized": 0.95}, **plan)
    page = page_of(folder)
    said = "\n".join([page.text, json.dumps(page.charts), outcome(folder)[0], (folder / "table.md").read_text()])
    assert "candidates" in page.text
    assert not re.findall(r".{0,30}\btuned points?\b.{0,30}|.{0,30}\bpoints? of\b.{0,30}", said)
    others = re.sub(r"(?i)\bevaluation points?\b|[0-9] points?\b|, points\b", "", said)
    assert not re.findall(r"(?i).{0,30}\bpoints?\b.{0,30}", others)


def test_its_page_leads_to_the_pages_of_its_settings_and_shows_the_ranks(folder):
    page = page_of(folder)
    assert "settings/alpha=0.1/report.html" in page.references
    names = [mark["text"] for mark in page.charts["ranks"]["layout"]["annotations"]]
    assert sorted(names) == ["fedcac 1.00", "fedper 2.50", "local 2.50"]
