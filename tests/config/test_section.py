"""How strictly values are taken."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import Field, ValidationError

from fedbench.config.section import OpenSection, PositiveInt, Section, Seed, make_section
from fedbench.errors import ConfigError


class Example(Section):
    count: PositiveInt = 1
    share: float = 0.5
    limit: float | None = 1.0
    path: Path = Path(".")
    flag: bool = False
    seed: Seed = 0
    sizes: list[int] = Field(default_factory=list)
    layers: list[str] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("count", True),
        ("count", 1.0),
        ("count", "1"),
        ("count", 0),
        ("share", True),
        ("share", "0.5"),
        ("share", float("nan")),
        ("share", float("inf")),
        ("sizes", [1, 2.0]),
        ("seed", 2**31),
        ("path", "a\0b"),
        ("path", ""),
        ("unknown", 1),
    ],
)
def test_what_is_refused(key, value):
    with pytest.raises(ValidationError):
        Example(**{key: value})


def test_a_section_of_options_names_its_keys_in_full():
    assert make_section(Example, {"count": 2}, "method.") == Example(count=2)
    with pytest.raises(ConfigError, match=r"^method\.count = 0: must be a whole number >= 1$"):
        make_section(Example, {"count": 0}, "method.")


def test_words_stand_for_a_list_of_text():
    assert Example(layers="body.1").layers == ["body.1"]
    assert Example(layers="body.1,head").layers == Example(layers=["body.1", "head"]).layers == ["body.1", "head"]


def test_a_whole_number_is_a_number():
    assert Example(share=1).share == 1.0


def test_none_by_name_is_no_value_where_there_may_be_none():
    assert Example(limit="none").limit is None
    with pytest.raises(ValidationError):
        Example(share="none")


def test_assignments_are_checked_too():
    example = Example()
    with pytest.raises(ConfigError, match="count = 0: must be a whole number >= 1"):
        example.count = 0


class Open(OpenSection):
    known: int = 0


def test_an_open_section_stands_for_its_name_and_keeps_further_keys():
    assert Open.model_validate("iid").name == "iid"
    assert Open(name="iid", known=1, more=2).options == {"more": 2}


def test_further_keys_have_pythons_numbers_and_lists_in_place_of_those_of_numpy():
    made = Open(name="x", width=np.int64(3), flag=np.True_, sizes=(np.int64(1), [np.float32(0.5)]), rates=np.ones(2))
    made.later = {"rate": np.float64(0.1)}
    assert made.options == {"width": 3, "flag": True, "sizes": (1, [0.5]), "rates": [1, 1], "later": {"rate": 0.1}}
    assert {type(made.width), type(made.flag), type(made.later["rate"])} == {int, bool, float}


def test_further_keys_that_no_file_can_hold_are_refused():
    said = "width = an object of type object: must be a number, a text, true, false or none, or a list or mapping"
    with pytest.raises(ConfigError, match=rf"^section\.{said}"):
        make_section(Open, {"name": "x", "width": object()}, "section.")
    with pytest.raises(ConfigError, match=f"^{said}"):
        Open(name="x").width = object()
