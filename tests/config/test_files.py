"""Values mean what they look like; files that cannot be read are named."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.config.files import load_yaml, parse_value, write_yaml
from fedbench.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("12", 12),
        ("-0.5", -0.5),
        ("true", True),
        ("null", None),
        ("[1, 2e1]", [1, 20.0]),
        ("none", "none"),
        ("yes", "yes"),
        ("007", "007"),
        ("1:30", "1:30"),
        ("2026-11-21", "2026-11-21"),
        ("parquet:/data/x", "parquet:/data/x"),
    ],
)
def test_values_mean_what_they_look_like(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "cannot be read"),
        ("a: [1", "not valid YAML (line 1"),
        ("a:\n\tb: 1", "indent with spaces, not with tabs"),
        ("5", "mapping"),
        ("", "mapping"),
        ("rounds: 1\nrounds: 2", "line 2: duplicate key rounds"),
        ("train:\n  lr: 1\n  lr: 1", "line 3: duplicate key lr"),
        ("1: 2", "line 1: key 1 is not text"),
        ("train: {[1]: 2}", "line 1: key [1] is not text"),
        ("train: &a\n  lr: *a", "more than 50 levels of nesting"),
        ("train: " + "[" * 3000 + "]" * 3000, "more than 50 levels of nesting"),
        ("rounds: " + "9" * 5000, "Exceeds the limit (4300 digits)"),
        (
            "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 99)}]\n" for a, b in pairwise("abcdef")),
            "more than 100000 values",
        ),
    ],
)
def test_unreadable_files_are_named(tmp_path, content, part):
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"c\.yaml") as caught:
        load_yaml(path)
    assert part in str(caught.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"])) | st.sampled_from(
    ["1e3", "0012", "1.10", "on", "yes", "null", "~", "1:30", "2026-11-21", "0x1f", "1_000", ".5", "=", "- a", "a: b"]
)


@given(tree=st.dictionaries(TEXTS, SCALARS | TEXTS | st.lists(TEXTS)))
def test_what_is_written_is_read_as_the_same(tree, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "written.yaml"
    write_yaml(file, tree)
    assert load_yaml(file) == tree


def test_a_file_that_cannot_be_written_is_named():
    with pytest.raises(ConfigError, match="/dev/null/x: cannot be written"):
        write_yaml(Path("/dev/null/x"), {})


@pytest.mark.parametrize("text", ["#site", "Dose #2", "a: b", "- a", "-", "@t", "%fat", "*p", "&q"])
def test_what_yaml_reads_as_more_than_a_value_is_text_on_the_command_line(text):
    assert parse_value(text) == text


def test_brackets_are_still_yaml():
    assert parse_value("{a: 1}") == {"a": 1}
    assert parse_value('["Height, cm"]') == ["Height, cm"]
    with pytest.raises(ConfigError, match="is not a value in YAML"):
        parse_value("[1")
