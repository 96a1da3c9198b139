import runpy

import pytest

from fedbench.checks.methods import METHOD_CHECKS
from fedbench.checks.problem import table_of, trajectory, write_test


def test_fedavg_by_hand():
    """Two steps of 0.5 go three quarters of the way; the mean weighs one sample and three."""
    rows = trajectory("fedavg", rounds=2)
    assert rows[0] == (1, 0, (0, 0), (0.75, 1.5), (0.75, 1.5))
    assert rows[1] == (1, 1, (0, 0), (2.25, -1.5), (2.25, -1.5))
    mean = (0.25 * 0.75 + 0.75 * 2.25, 0.25 * 1.5 - 0.75 * 1.5)
    assert rows[2].receives == rows[3].receives == mean
    assert rows[2].trains_to == (0.25 * mean[0] + 0.75, 0.25 * mean[1] + 1.5)


def test_a_private_head_does_not_travel():
    row = trajectory("fedper", rounds=2)[2]
    assert row.sends == row.trains_to[:1]
    assert len(row.receives) == 1


def test_a_pull_is_seen():
    assert trajectory("fedprox", {"mu": 1.0})[0].trains_to == pytest.approx((0.5, 1.0))


def test_the_table_and_the_test_that_keeps_it(tmp_path):
    rows = trajectory("fedavg", {"weighting": "uniform"}, rounds=3)
    assert len(table_of(rows).splitlines()) == 7
    assert "0.75, 1.5" in table_of(rows)
    write_test(tmp_path / "test_mine.py", "fedavg", {"weighting": "uniform"}, rows)
    test = runpy.run_path(str(tmp_path / "test_mine.py"))
    test["test_numbers_by_hand"]()
    test["NUMBERS"][0] = (1, 0, (0.0, 0.0), (0.75, 1.5), (0.75, 1.4))
    with pytest.raises(AssertionError):
        test["test_numbers_by_hand"]()
    (cases,) = [mark.args for mark in test["test_check"].pytestmark]
    assert cases[0] == "check"
    assert [case.id for case in cases[1]] == [check.name.replace(" ", "-") for check in METHOD_CHECKS]
