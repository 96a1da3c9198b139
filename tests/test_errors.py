"""A mistake is one line that helps."""

import pytest

from fedbench.errors import ConfigError, nearest


def test_it_is_one_line_whatever_it_tells():
    assert str(ConfigError("  first\n\n  second  \n")) == "first second"


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
