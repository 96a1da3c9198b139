"""The retry policy stands in one file, and all of it is used."""

import re
from pathlib import Path

from fedbench.runtime import retries

PRODUCT = Path(retries.__file__).parents[1]
NAMES = [name for name in vars(retries) if name.isupper()]


def test_every_limit_is_used():
    text = "".join(path.read_text() for path in PRODUCT.rglob("*.py"))
    assert [name for name in NAMES if f"retries.{name}" not in text] == []


def test_no_other_file_has_limits_of_its_own():
    pattern = re.compile(r"^\w*(RETRIES|RESTARTS|ATTEMPTS|PATIENCE)\w* *=", re.M)
    found = [path.name for path in PRODUCT.rglob("*.py") if pattern.search(path.read_text())]
    assert found == []
