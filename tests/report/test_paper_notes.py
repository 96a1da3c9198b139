"""The captions of tables for papers say how far their runs are."""

import re

from fedbench.report.paper import paper_table
from fedbench.report.paper_notes import Choice
from tests.report.conftest import write_comparison, write_run

LEVELS = {"local": 0.7, "fedper": 0.78, "fedcac": 0.85, "ditto": 0.6, "centralized": 0.95}


def is_latex(text: str) -> bool:
    """Whether environments are nested, braces and dollars are in pairs, and every row has as many cells as columns."""
    plain = re.sub(r"\\[%_#$&{}\\~^]", "", re.sub(r"^%.*$", "", text, flags=re.M).replace("\\\\", ""))
    opened: list[str] = []
    for what, name in re.findall(r"\\(begin|end)\{([\w*]+)\}", text):
        if what == "begin":
            opened.append(name)
        elif opened.pop() != name:
            return False
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    wide = {len(re.split(r"(?<!\\)&", row)) for row in rows}
    pairs = plain.count("{") == plain.count("}") and plain.count("$") % 2 == 0
    return not opened and wide == {len(columns)} and pairs and not re.search(r"[%#]", plain)


def test_the_caption_of_a_run_that_is_not_over_says_how_far_it_is(tmp_path):
    for done, when in ((4, "so far, after round 4 of 6"), (6, "last round")):
        table = paper_table(write_run(tmp_path / str(done), done=done), "scores", Choice())
        assert table.title == f"Test accuracy after aggregation in %, {when}."


def test_the_caption_of_a_comparison_says_which_runs_are_not_complete(tmp_path):
    folder = write_comparison(tmp_path, LEVELS)
    write_run(folder / "final" / "fedper", "fedper", 0.78, 0.73, (0, 1, 2), done=4)
    assert paper_table(folder, "scores", Choice()).title == (
        "Test accuracy after aggregation in %, last round so far (the runs of fedper are not complete)."
    )
