"""A share of clients is one number, whoever asks."""

import pandas as pd
import pytest

from fedbench.config.counts import count_of, newcomer_count
from fedbench.jobs.resolve import resolve
from fedbench.results.summary import counted_participants
from fedbench.studies.cost import steps_of
from tests.runtime.rounds import driver, small

SHARES = [(0.25, 3), (0.45, 5), (0.65, 7), (0.01, 1), (1.0, 10), (4, 4)]


@pytest.mark.parametrize(("share", "count"), SHARES)
def test_halves_are_rounded_up(share, count):
    assert count_of(10, share) == count


@pytest.mark.parametrize(("share", "count"), SHARES)
def test_a_run_its_estimate_and_its_summary_agree(share, count):
    resolved = resolve(small(participation=share))
    config = resolved.config
    assert len(driver(resolved).calendar.participants(1)) == count
    assert steps_of(config) == steps_of(resolve(small()).config) * count // 10
    rounds = pd.DataFrame({"seed": [0, 0], "round": [1, 2], "clients": [10, 10]})
    asked = {"participation": share, "partition": {"clients": 10}, "evaluate": {"clients": 3}}
    assert counted_participants(pd.DataFrame(), asked, rounds).tolist() == [count, count]
    asked["partition"] = {"clients": 12, "new_clients": 2}
    assert counted_participants(pd.DataFrame(), asked, rounds).tolist() == [count, count]


def test_newcomers_are_a_count_or_a_share():
    assert [newcomer_count(10, asked) for asked in (0, 0.01, 0.25, 0.9, 3)] == [0, 1, 3, 9, 3]
