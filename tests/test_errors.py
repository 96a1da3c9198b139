"""A mistake is one line that helps."""

import pickle
from pathlib import Path

import pytest
import torch

from fedbench.config import Config
from fedbench.errors import ConfigError, RunError, nearest, place_of, place_of_code


def test_it_is_one_line_whatever_it_tells():
    assert str(ConfigError("  first\n\n  second  \n")) == "first second"


def test_a_mistake_in_a_value_is_a_value_error():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(RunError, ConfigError)
    with pytest.raises(ValueError, match=r"rounds = 0: must be a whole number in \[1, 10000000\]"):
        Config(rounds=0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fedcaq", "did you mean fedcac or fedper?"),
        ("fedp", "did you mean fedper or fedprox?"),
        ("xyz", "known: fedcac, fedper, fedprox"),
    ],
)
def test_the_nearest_names_or_all_of_them(name, said):
    assert nearest(name, ["fedprox", "fedcac", "fedper"], count=2) == said


def line_of(text: str) -> str:
    """The place of the first line of this file with a text."""
    lines = Path(__file__).read_text().splitlines()
    return f"test_errors.py:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def caught(call) -> Exception:
    with pytest.raises(Exception) as found:
        call()
    return found.value


def in_torch():
    return torch.cat([torch.zeros(2, 2), torch.zeros(3)])  # the author's line


def in_python():
    return Path(3)  # type: ignore[arg-type]  # another line of the author's


def test_the_place_of_an_error_is_the_last_line_of_its_author():
    assert place_of(caught(in_torch)) == line_of("# the author's line")
    assert place_of(caught(in_python)) == line_of("# another line of the author's")
    assert place_of(ValueError("never raised")) == ""


def test_the_place_of_code_is_where_it_begins():
    assert place_of_code(in_torch) == line_of("def in_torch")
    assert place_of_code(int) == "builtins"


def test_an_error_of_the_users_code_keeps_its_line_and_trace_in_another_process():
    found = pickle.loads(pickle.dumps(RunError.of(caught(in_torch))))
    assert str(found).startswith("RuntimeError: Tensors must have same number of dimensions")
    assert str(found).endswith(f"({line_of('# the author')})")
    assert "Traceback" in found.trace
    assert str(RunError.of(RunError("first\n second", "mine.py:3"))) == "first second (mine.py:3)"
