"""One file that loads nothing and runs nothing of a user's."""

import re
from pathlib import Path

from tests.report.reading import Make, Page, page_of


def test_the_page_is_one_file_that_loads_nothing(a_grid: Path, grid_page: Page) -> None:
    page = grid_page
    assert {path.name for path in a_grid.iterdir()} == {"plan.json", "final", "report.html"}
    assert page.references == []
    assert "link" not in page.tags
    assert not re.search(r"@import|url\(", re.search(r"<style>(.*?)</style>", page.source, re.S)[1])
    assert "default-src 'none'" in page.source


def test_the_charting_library_is_inlined_once(make_run: Make) -> None:
    assert len(re.findall(r"plotly\.js v\d", page_of(make_run()).source)) == 1


def test_values_are_escaped(make_run: Make, make_grid: Make) -> None:
    evil = "<script>alert(1)</script>"
    run = page_of(make_run(warnings=[evil], failed=[(1, 1, evil)]))
    grid = page_of(
        make_grid(fail=(1,), error=evil, final=False, space={"method.tau": [0.1, 0.3, evil], "method.beta": [5, 10]})
    )
    for page in (run, grid):
        assert evil not in page.source
    assert evil in run.text
