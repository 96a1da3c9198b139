"""docs/api.md names what its directives name, with signatures as they are."""

import importlib.util
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
make_api = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_api)


class Shown:
    """A thing. It has parts."""

    def __init__(self, a, *, b=(), c=make_api.SHORT, **more):
        pass

    @cached_property
    def kept(self):
        """Kept once."""

    @classmethod
    def of(cls, *asked):
        """Made of
        what is asked."""

    def undocumented(self):
        pass


def test_the_page_is_current():
    text = (ROOT / "docs" / "api.md").read_text()
    assert make_api.with_lists(text) == text, "run: python docs/make_api.py"


def test_a_class_has_a_line_and_one_for_each_part_with_a_docstring():
    assert [*make_api.entries("Shown", Shown)] == [
        "- `Shown(a, *, b=(), c=..., **more)`: A thing.",
        "    - `kept`: Kept once.",
        "    - `of(*asked)`: Made of what is asked.",
    ]


def test_every_public_name_of_the_package_is_on_the_page():
    import fedbench

    text = (ROOT / "docs" / "api.md").read_text()
    for name in set(fedbench.__all__) - {"__version__"}:
        assert f"\n- `fedbench.{name}" in text
