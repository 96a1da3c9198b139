"""The end of a page: warnings, decisions, what was read, and the configuration."""

import json
import re

import pytest

from fedbench.report.footer import settings_warnings
from fedbench.report.settings_study import SettingsStudy
from tests.report.reading import Make, page_of
from tests.report.test_settings_tables import LEVELS, write_matrix


def test_where_fedbench_decides_is_said(make_run: Make) -> None:
    folder = make_run()
    path = folder / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "decisions": ["Overlap < all.", "No decay."]}))
    page = page_of(folder)
    assert "decisions" in page.sections
    found = re.search(r'<section id="decisions">(.*?)</section>', page.source, re.S)[1]
    assert re.findall("<li>(.*?)</li>", found) == ["Overlap &lt; all.", "No decay."]
    assert "Overlap" not in re.search(r'<section id="environment">(.*?)</section>', page.source, re.S)[1]


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ({"pictures": [["cat & dog", "data:image/png;base64,AA=="]]}, ["cat &amp; dog", "data:image/png;base64,AA=="]),
        ({"heads": ["age", "target"], "rows": [["50", "yes"]]}, [">age<", ">target<", ">50<", ">yes<"]),
    ],
)
def test_what_was_read_has_a_section_with_samples(make_run: Make, shown, seen) -> None:
    folder = make_run()
    path = folder / "environment.json"
    data = {"rows": [["targets", "2 classes: < 5, 5"]], "shown": shown}
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": data}))
    page = page_of(folder)
    found = re.search(r'<section id="read">(.*?)</section>', page.source, re.S)[1]
    assert all(text in found for text in ["2 classes: &lt; 5, 5", *seen])
    assert "2 classes" not in re.search(r'<section id="environment">(.*?)</section>', page.source, re.S)[1]


def test_failed_clients_and_warnings_are_listed(make_run: Make) -> None:
    page = page_of(make_run(warnings=["the public set is small"], failed=[(5, 3, "loss is nan")]))
    assert "fedcac: the public set is small" in page.text
    assert "client 3 was left out in round 5 of seed 0: loss is nan" in page.text


def test_the_configuration_shows_what_differs_first(make_run: Make) -> None:
    found = re.search(r'<section id="configuration">(.*?)</section>', page_of(make_run()).source, re.S)[1]
    table, everything = found.split("<details>")
    assert re.findall(r'<th scope="row"><code>(.*?)</code>', table) == ["method.name", "rounds", "seeds"]
    assert "batch_size: 50" in everything


def test_a_run_that_diverged_has_no_last_score(make_run: Make) -> None:
    """Not that of the last round in which it had one."""
    for seeds, answer in (((2,), "; 1 of 3 seeds of fedcac failed."), ((0, 1, 2), "fedcac failed.")):
        folder = make_run(f"run{len(seeds)}")
        path = folder / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lost = [line for line in lines if line["seed"] in seeds and line["round"] >= 5]
        for line in lost:
            line.update(test_accuracy=None, val_accuracy=None)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        page = page_of(folder)
        assert page.answer.endswith(answer)
        assert "fedcac: no finite test accuracy at the last evaluated round of seed" in page.text


def test_what_is_missing_is_said(tmp_path):
    survey = SettingsStudy.load(write_matrix(tmp_path, LEVELS))
    assert [setting.name for setting in survey.settings] == ["alpha=0.1"]
    assert settings_warnings(survey) == ["alpha=0.5: nothing was evaluated yet."]
    assert page_of(tmp_path).answer
