"""The papers of the methods agree with what the methods say of them."""

import re
import sys

import pytest

from fedbench.methods import METHODS
from fedbench.studies.citations import bibtex, entry_of

BASELINES = ["local", "centralized", "fedavg-ft"]


@pytest.mark.parametrize("name", [name for name in METHODS.built_in if name not in BASELINES])
def test_each_method_s_paper_has_its_first_author_venue_and_year(name):
    entry, about = entry_of(name), METHODS.load(name).about
    assert entry is not None
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.M))
    assert set(fields) >= {"title", "author", "year"}
    assert int(fields["year"]) == about.year
    assert entry.count("{") == entry.count("}")
    who, _, venue = about.paper.partition(", ")
    first = re.sub(r"[{}.]", "", fields["author"].split(" and ")[0])
    if venue:
        assert first.endswith(who.removesuffix(" et al.").partition(" and ")[0])
        assert venue in fields.get("booktitle", fields.get("journal", "preprint"))
    else:
        assert (about.paper, first) == ("anonymous submission", "Anonymous")


def test_entries_come_once_and_methods_without_a_paper_are_named():
    text = bibtex(["fedcac", "local", "fedavg", "fedcac"])
    assert re.findall(r"^@\w+\{(.*),$", text, re.M) == ["fedcac", "fedavg"]
    assert text.startswith("% no paper is known of local\n@inproceedings{fedcac,\n")
    assert "eprint = {2309.11103}" in text


def test_a_method_elsewhere_has_its_file_beside_its_module(tmp_path, monkeypatch):
    (tmp_path / "cited.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "papers.bib").write_text("@misc{other, year = {1999}}\n@misc{Mine,\n  year = {2026},\n}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert entry_of("cited:Mine") == "@misc{Mine,\n  year = {2026},\n}\n"
    assert entry_of("cited:Unknown") is None
    assert entry_of("no_such_package.module:Mine") is None
    assert "cited" not in sys.modules
