"""The index of a folder of results."""

import os
import re
from pathlib import Path

import pytest

from fedbench.cli.report import main
from fedbench.report.index import page_folders, study_state
from fedbench.results.plan import Entry, Plan
from tests.report.conftest import write_comparison, write_run

LEVELS = {"local": 0.7, "fedper": 0.8}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A comparison, a run, a damaged study, and jobs of a study over settings that is not over."""
    few = {"": {"rounds": 2, "clients": 4}}
    write_comparison(tmp_path / "compare" / "two", LEVELS, seeds=(0, 1), asked=few)
    write_run(tmp_path / "run" / "one", "fedcac", seeds=(0,), rounds=2, clients=4)
    (tmp_path / "grid" / "broken").mkdir(parents=True)
    (tmp_path / "grid" / "broken" / "plan.json").write_text("{")
    for part in ("settings/alpha=1", "run/job"):
        write_run(tmp_path / "compare" / "over" / part, "fedcac", seeds=(0,), rounds=2, clients=4)
    return tmp_path


def test_every_study_and_run_has_a_line_and_broken_ones_are_named(results, capsys):
    assert [path.relative_to(results).as_posix() for path in page_folders(results)] == [
        *("compare/over/settings/alpha=1", "compare/two", "grid/broken", "run/one")
    ]
    assert main([str(results)]) == 0
    assert capsys.readouterr().out.strip() == str(results / "index.html")
    page = (results / "index.html").read_text()
    assert "4 results: 3 finished and 1 cannot be read." in page
    rows = {
        re.search(r'data-sort="(.*?)"', row)[1]: row
        for row in re.findall(r"<tr>\s*<th scope=\"row\".*?</tr>", page, re.S)
    }
    assert 'href="compare/two/report.html">2 methods on digits</a>' in rows["compare/two"]
    assert "fedper reached" in rows["compare/two"]
    assert '<td data-head="seeds">2</td>' in rows["compare/two"]
    assert "local, fedper" in rows["compare/two"]
    assert "damaged (" in rows["grid/broken"]
    assert "href" not in rows["grid/broken"]
    assert (results / "run" / "one" / "report.html").exists()
    assert "plotly.js v" not in page


def test_pages_are_made_anew_only_if_their_study_changed(results):
    main([str(results)])
    page = results / "run" / "one" / "report.html"
    for age, is_made in ((3600, False), (-3600, True)):
        page.write_text("<h1>old</h1>")
        later = (results / "run" / "one" / "metrics.jsonl").stat().st_mtime + age
        os.utime(page, (later, later))
        main([str(results)])
        assert (page.read_text() != "<h1>old</h1>") == is_made


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (("done", "done"), "finished"),
        (("done", "missing"), "open"),
        (("failed", "missing"), "open, 1 failed"),
        (("done", "failed"), "finished, 1 job failed"),
        (("failed", "failed"), "failed"),
    ],
)
def test_the_state_of_a_study(states, words, tmp_path):
    entries = [Entry("final", "fedper", {}, seed, "x", state) for seed, state in enumerate(states)]
    assert study_state([(tmp_path, Plan("compare", None, {}, entries))]) == words
