"""What a run says before its first round."""

from typing import Any

import pytest

from fedbench.cli.run import title
from fedbench.config import Config


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"seeds": [3]}, "fedcac on digits, iid over 10 clients: 5 rounds, seed 3, in this process"),
        ({"seeds": [0, 1], "resources": {"hosts": 2}}, "5 rounds, 2 seeds, 2 hosts"),
        ({"resources": {"hosts": "auto"}}, "seed 0, hosts: auto"),
    ],
)
def test_the_title_says_what_runs_where(keys: dict[str, Any], said: str) -> None:
    request = {"method": "fedcac", "partition": {"name": "iid", "clients": 10}, "rounds": 5, "seeds": [0]}
    assert said in title(Config(**{**request, "resources": {"hosts": 0}, **keys}))
