"""What `from fedbench import ...` gives."""

import doctest
import inspect
from pathlib import Path

import pytest

import fedbench
from fedbench.cli import COMMANDS
from fedbench.config.files import load_yaml


@pytest.mark.parametrize("name", fedbench.STUDIES)
def test_every_study_is_a_call_that_says_what_it_takes(name):
    call = getattr(fedbench, name)
    assert inspect.isfunction(call)
    assert call.__name__ == name
    assert call.__doc__
    assert name in fedbench.__all__
    assert name in COMMANDS


def test_the_citation_is_of_this_version():
    cited = load_yaml(Path(__file__).parents[1] / "CITATION.cff")
    assert (cited["version"], cited["type"]) == (fedbench.__version__, "software")
    assert {"cff-version", "message", "title", "authors"} <= {*cited}


def test_a_name_that_is_none_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'fedbench' has no attribute 'rnu'"):
        fedbench.rnu  # noqa: B018


@pytest.mark.parametrize("name", [*fedbench.STUDIES, *fedbench.LOADERS, "Config"])
def test_the_example_in_a_docstring_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    thing = getattr(fedbench, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs={name: thing})
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0
