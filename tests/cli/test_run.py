"""What a run says before its first round."""

from pathlib import Path
from typing import Any

import pytest

from fedbench.cli.run import main, title
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from tests.runtime.rounds import largest_file


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"seeds": [3]}, "fedcac on digits, iid over 10 clients: 5 rounds, seed 3, in this process"),
        ({"seeds": [0, 1], "resources": {"hosts": 2}}, "5 rounds, 2 seeds, 2 hosts"),
        ({"resources": {"hosts": "auto"}}, "5 rounds, seed 0"),
    ],
)
def test_the_title_says_what_runs_where(keys: dict[str, Any], said: str) -> None:
    request = {"method": "fedcac", "partition": {"name": "iid", "clients": 10}, "rounds": 5, "seeds": [0]}
    assert said in title(Config(**{**request, "resources": {"hosts": 0}, **keys}))


def test_a_disk_that_is_full_in_the_middle_of_a_run_is_one_line_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ["--model", "mlp", "--model.hidden", "2", "--train.epochs", "1", "--rounds", "30", "--hosts", "0"]
    words += ["--checkpoint.every", "0", "--out", str(tmp_path / "out")]
    Dataset.load(Config().data)  # decoded before the disk is full
    with largest_file(12_000):
        assert main(words) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert said == [
        f"fedbench: error: {tmp_path / 'out' / 'metrics.jsonl'}: File too large; make room there, or let it be written "
        "to, then give the same command again: it goes on from the last checkpoint"
    ]
    assert main(words) == 0
