"""What works without Ray, W&B and the extras, and what is said where one of them is needed."""

import json

import pytest

from tests.packaging.sites import PROJECT, ROOT, closure, link, python

CALLS = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from fedbench.cli import main
for words in json.loads(sys.argv[1]):
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, out.getvalue(), err.getvalue(), "torch" in sys.modules]))
"""


LATE = ("ray", "wandb")
CORE = [text for text in PROJECT["dependencies"] if not text.startswith(LATE)]
"""What is left of the dependencies without those that are imported late."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory):
    """Runs commands, one after another in one process, in an environment with what `--hosts 0` needs alone."""
    folder = tmp_path_factory.mktemp("core")
    site, here = link(closure(CORE).values(), folder / "site"), folder / "here"
    here.mkdir()

    def run(*commands: str) -> list[tuple[int, str, str, bool]]:
        words = json.dumps([command.split() for command in commands])
        done = python("-c", CALLS, words, sites=[ROOT, site], cwd=here)
        assert done.returncode == 0, done.stderr
        return [tuple(json.loads(line)) for line in done.stdout.splitlines()]

    return run


RAY = "Ray is not installed: pip install fedbench-pfl"
ALONE = "--hosts 0 --trials 1"
REFUSED = {
    "run --hosts 2": f"{RAY}, or use --hosts 0",
    "run --address auto": f"{RAY}, or use --hosts 0",
    "grid --method fedper": f"{RAY}, or use {ALONE}",
    "compare --methods fedper --hosts 0": f"{RAY}, or use {ALONE}",
    f"grid --method fedper {ALONE} --search optuna --samples 3": (
        "Optuna and Ray are not installed: pip install 'fedbench-pfl[tune]', or use --search random"
    ),
    "run --hosts 0 --loggers wandb": "W&B is not installed: pip install fedbench-pfl",
    "wandb .": "W&B is not installed: pip install fedbench-pfl",
    "figure .": "matplotlib is not installed: pip install 'fedbench-pfl[plots]'",
}


def test_what_needs_an_extra_is_refused_in_one_line_before_pytorch_is_loaded(core):
    for said, result in zip(REFUSED.values(), core(*REFUSED), strict=True):
        assert result == (2, "", f"fedbench: error: {said}\n", False)


SMALL = "--rounds 2 --partition.clients 3 --train.epochs 1"


def test_runs_and_comparisons_in_one_process(core):
    run, auto, report, grid, board, doctor, methods = core(
        f"run --method fedper --hosts 0 {SMALL} --out one",
        f"run --method fedper {SMALL} --out auto",
        "report one",
        f"grid --method fedper {ALONE} {SMALL} --space train.lr=0.01 --baselines none --seeds 0 --out grid",
        f"run --hosts 0 {SMALL} --loggers tensorboard --out board",
        "doctor",
        "methods fedper",
    )
    assert run[0] == auto[0] == grid[0] == methods[0] == 0
    assert "hosts = auto: in this process, because Ray is not installed (pip install fedbench-pfl)" in auto[2]
    assert report[:2] == (0, "one/report.html\n")
    assert board[2].endswith("fedbench: error: TensorBoard is not installed: pip install 'fedbench-pfl[tensorboard]'\n")
    assert doctor[0] == 0
    assert "note   extras         without W&B: pip install fedbench-pfl" in doctor[1].splitlines()


def test_what_is_imported_late_is_installed_too():
    names = {*closure(PROJECT["dependencies"])}
    assert {"ray", "wandb", "wandb-workspaces", "torch", "lightning"} <= names
    assert not {*closure(CORE)} & {"ray", "wandb", "wandb-workspaces", "optuna", "matplotlib", "tensorboardx"}
    extras = PROJECT["optional-dependencies"]
    needs = [text for name in ("tune", "plots", "tensorboard", "privacy") for text in extras[name]]
    assert {*closure(needs)} >= {"optuna", "matplotlib", "tensorboardx", "dp-accounting"}
