"""What `on_machines.py` tests, in a process of its own: a process is connected to one Ray at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.commands import DEADLINE
from tests.machines import possible


@pytest.mark.night
@pytest.mark.skipif(not possible(), reason="mount namespaces are not allowed here")
def test_machines_that_share_neither_memory_nor_files():
    tests = Path(__file__).with_name("on_machines.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * DEADLINE)
    assert done.returncode == 0, done.stdout
