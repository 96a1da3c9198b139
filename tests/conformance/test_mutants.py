"""Ways to break a method are ways still: the text that each replaces stands in its file once."""

import pytest

from tests.mutants import ROOT, listed, source_of

TESTS = sorted((ROOT / "tests" / "methods").glob("test_*.py"))


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.stem.removeprefix("test_"))
def test_every_mutant_has_its_text(tests):
    for mutant in listed(tests):
        what, old, new = mutant[:3]
        text = source_of(tests.stem.removeprefix("test_"), mutant, ROOT).read_text()
        assert (what, text.count(old), new != old) == (what, 1, True)
