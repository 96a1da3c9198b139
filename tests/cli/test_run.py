"""What a run says before its first round."""

from pathlib import Path
from typing import Any

import pytest

from fedbench.cli.run import main
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.errors import RunError
from fedbench.methods.base import Method
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.weights import Weights
from fedbench.results.events import Evaluation
from fedbench.studies.run import run
from tests.methods import mistakes
from tests.runtime.accidents import broken
from tests.runtime.rounds import largest_file, small


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
        f"fedbench: error: {tmp_path / 'out' / 'metrics.jsonl'}: File too large; raise the limit of a "
        "file's size (`ulimit -f`) and repeat the command: it continues from the last checkpoint"
    ]
    assert main(words) == 0


WORDS = ["--model", "mlp", "--train.epochs", "1", "--rounds", "2", "--hosts", "0", "--partition.clients", "3"]


@pytest.mark.parametrize(
    ("mistake", "error", "function"),
    [("LossInTorch", ValueError, "short"), ("TypoInAggregate", AttributeError, "aggregate")],
)
def test_debug_raises_where_it_happens(mistake: str, error: type[Exception], function: str, tmp_path: Path) -> None:
    """A debugger goes to where it was raised, through the line of the author."""
    with pytest.raises(error) as caught:
        main([*WORDS, "--method", f"tests.methods.mistakes:{mistake}", "--out", str(tmp_path / "out"), "--debug"])
    frames = [(Path(str(frame.path)).name, frame.name) for frame in caught.traceback]
    assert (Path(mistakes.__file__).name, function) in frames


def test_in_debug_the_first_client_that_fails_is_raised_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no such class"):
        run(broken("Crashing", out=str(tmp_path)), report=False, debug=True)


def test_of_several_seeds_those_that_are_done_stay(tmp_path: Path) -> None:
    """The second seed fails; without it the first one is taken as it is."""
    asked: dict[str, Any] = dict(rounds=1, out=str(tmp_path))
    with pytest.raises(RunError, match=r"^seed 1, round 1: every client"):
        run(small("tests.cli.test_run:SecondSeed", seeds=[0, 1], **asked), report=False)
    begun: list = []
    run(small("tests.cli.test_run:SecondSeed", seeds=[0, 2], **asked), report=False, watch=begun.append)
    assert {event.seed for event in begun if isinstance(event, Evaluation)} == {2}


class SecondSeed(Method):
    """Fails with seed 1."""

    def train(self, client: Client, received: Weights) -> Upload:
        if client.seed == 1:
            raise ValueError("not this one")
        return super().train(client, received)
