"""Machines that share neither memory nor files: the same bits, and a machine that is lost costs no run."""

import subprocess
import sys

import pytest

from tests.end_to_end.commands import DEADLINE
from tests.machines import possible

METHODS = ("fedavg", "fedper", "fedcac", "co-pfl", "fedmosaic", "fedamp", "ditto", "fedala")
"""Without private states, with private entries, with states that grow, with an extra pass, with a public set."""


@pytest.mark.slow
@pytest.mark.skipif(not possible(), reason="mount namespaces are not allowed here")
def test_three_machines_give_the_bits_of_one_process_and_one_of_them_may_be_lost():
    command = [sys.executable, "-m", "tests.machines", *METHODS, "--place", "on 3 machines", "--lose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()  # Ray puts its own words between them
    assert {"on 3 machines: the same bits", "data set: no machine lacks it", "a machine was lost: the same bits"} <= {
        *lines
    }
    assert "private states lie on the machines of their hosts" in done.stdout
    assert "is lost with its host: going on from the last checkpoint" in done.stdout
