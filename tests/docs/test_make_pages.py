"""The site has a page per method and per key, and is built without a warning."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest

from fedbench import methods
from fedbench.cli.flags import keys_of_command
from fedbench.config.tuning import ComparisonTuning

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
make_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_pages)
RESULTS = """# Measurements

## Speed, and more
| method | seconds |
| --- | ---: |
| fedper | 1 |
| fedcac | 2 |
| fedper | 3 |

| workload | fedper |
| --- | --- |
| fedper | 4 |
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    """A checkout with nothing but what the site is made of."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "zensical.toml").write_text((ROOT / "zensical.toml").read_text())
    for name in ("docs", "fedbench", "papers"):
        (folder / name).symlink_to(ROOT / name)
    make_pages.make_pages(folder / "build" / "docs")
    return folder / "build" / "docs"


def test_links_out_of_docs_become_paths():
    text = "See [`scaffold.py`](../fedbench/methods/scaffold.py), [this](../a.yaml#L1) and [data](data.md)."
    found = make_pages.OUTSIDE.sub(make_pages._path_in_checkout, text)
    assert found == "See `fedbench/methods/scaffold.py`, this (`a.yaml` in the checkout) and [data](data.md)."


def test_pages_of_the_papers_link_to_others_as_if_they_lay_in_one_folder(pages):
    assert "[Claims of the papers](claims.md)" in (pages / "guarantees.md").read_text()
    assert "[you get yourself](data.md)" in (pages / "reproducing.md").read_text()


def test_links_show_the_titles_of_pages():
    text = "[own.md](own.md#a-method), [faq.md](faq.md) and [the words](glossary.md)."
    found = (
        "[Your own method, model, data and metric](own.md#a-method), [Questions](faq.md) and [the words](glossary.md)."
    )
    assert make_pages.with_titles(text) == found


def test_lists_after_text_get_an_empty_line_and_code_does_not():
    text = "Text:\n- one\n- two\n  more\n- three\n\n```yaml\na:\n- b\n```\n"
    assert make_pages.with_empty_lines(text) == text.replace("Text:\n", "Text:\n\n")


def test_rows_of_a_method_stand_below_the_head_of_their_table():
    found = make_pages.results_of(["fedper", "fedbn"], RESULTS)
    link = "[Speed, and more](../results.md#speed-and-more):"
    table = ["| method | seconds |", "| --- | ---: |", "| fedper | 1 |", "| fedper | 3 |"]
    assert found == {"fedper": ["", link, "", *table], "fedbn": []}


def test_every_method_has_a_page(pages):
    listed = (pages / "methods" / "index.md").read_text()
    for name in methods.names():
        text = (pages / "methods" / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        assert f"[{name}]({name}.md)" in listed
        assert all(f"`--method.{key}`" in text for key in methods.load(name).Options.model_fields)


def test_a_page_of_a_method_has_options_decisions_space_and_paper(pages):
    text = (pages / "methods" / "fedcac.md").read_text()
    assert "| `--method.tau` | critical share of every parameter tensor, sec. 3.3 | number in [0, 1] | `0.5` |" in text
    assert "- After round beta no clients collaborate" in text
    assert "| `method.beta` | none, 30.0 |" in text
    assert "@inproceedings{fedcac," in text


def test_every_key_is_listed(pages):
    assert (pages / "keys.md").read_text().count("\n| `--") == len(keys_of_command(ComparisonTuning))


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page(pages):
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = {page for entry in nav for page in leaves(entry)}
    made = {str(page.relative_to(pages)) for page in pages.rglob("*.md") if page.parent == pages}
    assert listed == made | {"methods/index.md"}


def leaves(entry) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [page for inner in (entry.values() if isinstance(entry, dict) else entry) for page in leaves(inner)]


def test_the_site_is_built_strictly(pages):
    for package in ("zensical", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="the site needs the extra `docs`: pip install -e '.[docs]'")
    checkout = pages.parents[1]
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {page.parent.name: page.read_text() for page in (checkout / "site").rglob("index.html")}
    assert made.keys() >= {*methods.names(), "faq", "keys", "results"}
    words = unescape(re.sub("<[^>]+>", "", made["api"]))
    assert "Run a configuration, or continue its run" in words
    assert '>>> result = run({"method": "fedper"' in words
    assert "The model evaluated at a point" in words
    assert "<table>" in made["fedcac"]
    assert '"../../site.css"' in made["fedcac"]
    assert (checkout / "site" / "site.css").exists()
    assert (checkout / "site" / "search.json").stat().st_size > 100_000


def test_a_broken_link_ends_the_build(pages):
    pytest.importorskip("zensical", reason="the site needs the extra `docs`: pip install -e '.[docs]'")
    broken = pages / "broken.md"
    broken.write_text("# Broken\n\n[nothing](nothing.md)\n")
    try:
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=pages.parents[1], capture_output=True, text=True, timeout=120)
    finally:
        broken.unlink()
    assert done.returncode != 0
    assert "page does not exist" in done.stdout + done.stderr
