"""Pages of comparisons agree with what is recomputed from clients.parquet, and a broken number or word is noticed."""

import re
from pathlib import Path

import pytest

from fedbench.report.page import write_page
from tests.report import recompute
from tests.report.conftest import write_comparison

LEVELS = {"local": 0.7, "fedper": 0.78, "fedcac": 0.8, "ditto": 0.795, "centralized": 0.9}
CLEAR = {"local": 0.6, "fedper": 0.5, "fedcac": 0.85}
STUDIES = {
    "close": {"levels": LEVELS, "seeds": range(4), "spread": 0.04, "fail": {"ditto": (1,)}},
    "clear": {"levels": CLEAR, "seeds": range(6), "spread": 0.01},
    "sequential": {"levels": LEVELS, "seeds": range(12), "spread": 0.06, "stopping_rule": {"margin": 3.0, "most": 18}},
    "won": {"levels": CLEAR, "seeds": range(5), "spread": 0.02, "stopping_rule": {"margin": 2.0, "most": 5}},
    "shared rows": {"levels": LEVELS, "seeds": range(4), "spread": 0.02, "asked": {"": {"outcomes": True}}},
    "sequential, on shared rows": {
        "levels": LEVELS,
        "seeds": range(12),
        "spread": 0.02,
        "stopping_rule": {"margin": 3.0, "most": 18},
        "asked": {"": {"outcomes": True}},
    },
}
WORDS = {
    "close": [
        ("it cannot be told from ditto", "it cannot be told from fedper", "answer"),
        ('<td class="baseline"', '<td class="above"', "local, colour"),
        (" =</td>", "</td>", "ditto, mark"),
    ],
    "clear": [
        ("it is the best of them on this data", "no winner is named", "answer"),
        ("Better than local training: fedcac", "Better than local training: fedper", "against local training"),
    ],
    "sequential": [
        ("; ditto and fedper may be better (12", "; ditto may be better (12", "answer"),
        ("Better than local", "Equal to local", "Better than local training"),
        (">not the best<", ">open<", "local, who is best"),
    ],
    "won": [
        ("it is the best, decided", "it may be the best, decided", "answer"),
        (">worse<", ">better<", "fedper, against local"),
        ('<td class="below"', '<td class=""', "fedper, colour"),
    ],
}
"""What pages say, what they might say instead, and which line notices."""
CELL = re.compile(r"(<td[^>]*>(?:<b>|<u>)?[+\u2212]?)(\d)")
"""The first number of a cell."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of one of these studies, made when it is asked for."""
    made: dict[str, Path] = {}

    def give(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("study")
            asked = {"": {"rounds": 2, "clients": 6, **STUDIES[name].get("asked", {}).get("", {})}}
            write_comparison(made[name], **STUDIES[name] | {"asked": asked})
            write_page(made[name])
        return made[name]

    return give


@pytest.mark.parametrize("name", STUDIES)
def test_every_number_and_word_is_that_of_the_records(folder, name):
    found = recompute.check(folder(name))
    assert found.wrong == []
    assert found.numbers > 150


@pytest.mark.parametrize("name", ["close", "sequential"])
def test_every_broken_number_is_noticed(folder, name):
    page = (folder(name) / "report.html").read_text()
    leaders = re.search(r'<section id="leaders">.*?</tbody>', page, re.S)[0]
    final = re.search(r'<section id="table"[^>]*>.*?</section>', page, re.S)[0]
    forest = re.search(r'data-chart="chart-forest">.*?</script>', page, re.S)[0]
    numbers = len(CELL.findall(leaders)), len(CELL.findall(final))
    page = page.replace(leaders, CELL.sub(r"\g<1>7\2", leaders)).replace(final, CELL.sub(r"\g<1>7\2", final))
    page = page.replace(forest, re.sub(r'\["(\w+)","\+', r'["\1","+9', forest))
    page = re.sub(r"reached (\d)", r"reached 1\1", page)
    wrong = recompute.check(folder(name), page).wrong
    of = {kind: [line for line in wrong if line.startswith(kind)] for kind in ("final table", "forest", "answer")}
    assert (len(wrong) - sum(map(len, of.values())), len(of["final table"])) == numbers
    assert min(numbers) > 20
    assert len(of["forest"]) >= 3
    assert len(of["answer"]) == 1


@pytest.mark.parametrize("name", WORDS)
def test_every_changed_word_mark_and_colour_is_noticed(folder, name):
    page = (folder(name) / "report.html").read_text()
    for said, other, _ in WORDS[name]:
        assert said in page
        page = page.replace(said, other)
    wrong = recompute.check(folder(name), page).wrong
    for said, _, line in WORDS[name]:
        assert any(found.startswith(line) for found in wrong), said


def test_a_broken_table_is_noticed(folder):
    text = (folder("clear") / "table.csv").read_text()
    try:
        (folder("clear") / "table.csv").write_text(
            re.sub(r"(fedcac,done,after_agg,samples,6,0,,0\.\d)\d", r"\g<1>0", text)
        )
        wrong = recompute.check(folder("clear")).wrong
    finally:
        (folder("clear") / "table.csv").write_text(text)
    assert [line.partition(":")[0] for line in wrong] == ["table.csv, fedcac, mean"]


def test_it_is_a_script_that_imports_nothing_of_fedbench(folder, capsys):
    assert not re.search(r"^\s*(from|import) (fedbench|tests)", Path(recompute.__file__).read_text(), re.M)
    assert recompute.main(str(folder("won"))) == 0
    assert capsys.readouterr().out.endswith(": 0 disagree\n")
