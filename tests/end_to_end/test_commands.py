"""The commands as a user gives them: what they print, what they leave, and that a run is done once."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedbench import Config, run
from fedbench.cli import COMMANDS, main
from fedbench.methods import names
from tests.tracking.test_loggers import wandb_history

# In one process where tests run side by side, so that the run which most of them look at is made once.
pytestmark = pytest.mark.xdist_group("commands")
ROOT = Path(__file__).parents[2]
LEFT = {
    *("metrics.jsonl", "timings.jsonl", "clients.parquet", "traces.parquet", "summary.json"),
    *("config.yaml", "environment.json", "partition.json", "outcomes", "report.html"),
}
SMALL = ["--method", "fedcac", "--rounds", "3", "--train.epochs", "1", "--partition.clients", "4", "--seeds", "0", "1"]
METRIC_KEYS = [
    *("seed", "round", "point", "val_accuracy", "test_accuracy", "val_loss", "test_loss", "test_worst_tenth"),
    *("test_spread", "clients", "train_loss", "steps", "bytes_up", "bytes_down", "failed"),
]
CLIENT_KEYS = ["seed", "round", "client", "point", "split", "metric", "value", "n", "participated"]


def fresh(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run([sys.executable, "-m", "fedbench", *words], cwd=cwd, capture_output=True, text=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a small run was made by the command; its output in said.txt."""
    place = tmp_path_factory.mktemp("user")
    done = fresh(place, "run", *SMALL, "--hosts", "0", "--out", "out")
    assert done.returncode == 0, done.stderr
    (place / "said.txt").write_text(done.stdout)
    return place


def test_what_a_run_prints(finished):
    said = (finished / "said.txt").read_text().splitlines()
    assert said[0].startswith("method  evaluated")
    assert " ".join(said[0].split()).endswith("last round sd pooled worst client best-val round best on test*")
    assert [line.split()[:2] for line in said if line.startswith("fedcac")] == [
        ["fedcac", "after_fit"],
        ["fedcac", "after_agg"],
    ]
    assert said[-2:] == ["results: out", "report:  out/report.html"]


def test_a_run_leaves_every_file_of_the_schema(finished):
    out = finished / "out"
    assert {path.name for path in out.iterdir()} == LEFT | {"plan.json", "run"}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(list(line) == METRIC_KEYS for line in lines)
    assert [(line["seed"], line["round"], line["point"]) for line in lines] == [
        (seed, round_, point) for seed in (0, 1) for round_ in (1, 2, 3) for point in ("after_fit", "after_agg")
    ]
    assert list(pd.read_parquet(out / "clients.parquet")) == CLIENT_KEYS
    scores = len({"val_accuracy", "val_loss", "test_accuracy", "test_loss"})
    assert len(pd.read_parquet(out / "clients.parquet")) == 2 * 3 * 2 * 4 * scores
    assert list(pd.read_parquet(out / "traces.parquet")) == ["seed", "round", "client", "name", "value"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is True
    assert len(summary["points"]["after_agg"]["last"]["test_accuracy"]["values"]) == 2
    environment = json.loads((out / "environment.json").read_text())
    assert set(environment) >= {"versions", "machine", "git", "partition_fingerprint", "started", "finished"}
    assert environment["finished"] is not None
    drawn = json.loads((out / "partition.json").read_text())
    assert {seed: len(part["clients"]) for seed, part in drawn.items()} == {"0": 4, "1": 4}
    assert yaml.safe_load((out / "config.yaml").read_text())["model"]["name"] == "mlp"


def test_asked_twice_done_once(finished, capsys, monkeypatch):
    monkeypatch.chdir(finished)
    before = {path.name: path.stat().st_mtime_ns for path in (finished / "out").iterdir()}
    assert main(["run", *SMALL, "--out", "out"]) == 0
    said = capsys.readouterr()
    assert said.out == (finished / "said.txt").read_text()
    assert said.err == "already finished: delete out to run it again\n"
    assert {path.name: path.stat().st_mtime_ns for path in (finished / "out").iterdir()} == before


def test_its_configuration_repeats_it_to_the_bit(finished, tmp_path):
    assert main(["run", "--config", str(finished / "out" / "config.yaml"), "--out", str(tmp_path), "--hosts", "0"]) == 0
    for name in ("metrics.jsonl", "clients.parquet", "traces.parquet", "partition.json"):
        assert digest(tmp_path / name) == digest(finished / "out" / name), name


def test_the_page_can_be_made_again(finished, capsys):
    page = finished / "out" / "report.html"
    before = page.read_text()
    page.unlink()
    assert main(["report", str(finished / "out")]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert len(page.read_text()) == len(before)


def test_help_in_a_fresh_process(tmp_path):
    overview, run_help = (fresh(tmp_path, *words, "--help") for words in ([], ["run"]))
    assert (overview.returncode, overview.stderr, run_help.returncode, run_help.stderr) == (0, "", 0, "")
    assert all(f"  {name} " in overview.stdout for name in COMMANDS)
    assert run_help.stdout.startswith("usage: fedbench run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: fedbench {name}")


def test_methods(capsys):
    assert main(["methods"]) == 0
    assert sorted(line.split()[0] for line in capsys.readouterr().out.splitlines()) == names()
    assert main(["methods", "fedcac"]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("Wu et al., ICCV 2023", "--method.tau", "[number in [0, 1]", "default 0.5]"))


def test_print_config_shows_what_differs_and_runs_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--method", "fedcac", "--rounds", "7", "--print-config"]) == 0
    told = capsys.readouterr().out
    assert [line.split("#")[0].strip() for line in told.splitlines() if "  # " in line] == ["name: fedcac", "rounds: 7"]
    assert yaml.safe_load(told) == {"method": {"name": "fedcac"}, "rounds": 7}
    assert not list(tmp_path.iterdir())


def test_from_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {"method": "fedper", "rounds": 2, "train": {"epochs": 1}, "resources": {"hosts": 0}}
    result = run(Config(**asked))
    assert result.folder.parent == Path("results/run")
    assert set(result.metrics["point"]) == {"after_fit", "after_agg"}
    assert set(result.clients["client"]) == set(range(10))
    assert result.summary["method"] == "fedper"
    assert result.report.exists()
    assert run(Config(**asked)).metrics.equals(result.metrics)


def test_wandb_offline_from_the_command(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    small = [
        "--method",
        "fedmosaic",
        "--method.first_vote",
        "1",
        "--public.size",
        "50",
        "--partition.clients",
        "3",
        "--rounds",
        "3",
        "--hosts",
        "0",
    ]
    monkeypatch.chdir(tmp_path)
    assert main(["run", *small, "--train.epochs", "1", "--loggers", "wandb", "--out", "out"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    rows = {row["round"]: row for row in wandb_history(tmp_path / "out")}
    for line in lines:
        assert rows[line["round"]][f"{line['point']}/test_accuracy"] == pytest.approx(line["test_accuracy"])
    assert {line["point"] for line in lines} >= {"after_fit", "after_agg"}
    weights = pd.read_parquet(tmp_path / "out" / "traces.parquet").query("name == 'lambda'").dropna()
    assert set(zip(weights["round"], weights["client"], strict=True)) == {(r, c) for r in (2, 3) for c in range(3)}
    for weight in weights.itertuples():  # there is none before the first vote
        assert rows[weight.round][f"lambda/client_{weight.client:02d}"] == pytest.approx(weight.value)
