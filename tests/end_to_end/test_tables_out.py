"""A model of a table predicts elsewhere by the table's own rows what it has predicted in the run."""

import io
import json
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import fedbench
from fedbench.cli import main
from fedbench.data import partition
from fedbench.jobs.resolve import resolve
from fedbench.runtime.clients.client_data import ClientData
from fedbench.studies.export import export
from fedbench.studies.run import Result

ROWS = 240
HOSPITALS = ("fulda", "jena", "ulm", "wien")
WITHOUT_FEDBENCH = """
import runpy, sys
sys.modules.update({"fedbench": None, "lightning": None, "tests": None})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def patients() -> pd.DataFrame:
    """Texts as a CSV has them: numbers marked as missing, two spellings of a category, and ulm without any bmi."""
    rng = np.random.default_rng(3)
    hospital = np.arange(ROWS) % len(HOSPITALS)
    born = rng.normal(1950 + 9 * hospital, 9).round(1)
    bmi = pd.Series(rng.normal(25, 4, ROWS).round(2).astype(str))
    bmi[(rng.random(ROWS) < 0.2) | (hospital == 2)] = "NA"
    columns = {
        "born": pd.Series(born.astype(str)).where(rng.random(ROWS) > 0.3, ""),
        "height": rng.integers(150, 190, ROWS).astype(str),
        "smokes": rng.choice(["true", "False", ""], ROWS),
        "bmi": bmi,
        "job": rng.choice(["cook", " COOK", "nurse, night", "Zoë", ""], ROWS),
        "city": rng.choice(["Bonn", "Köln"], ROWS),
        "hospital": np.array(HOSPITALS)[hospital],
        "y": np.where(born + rng.normal(0, 9, ROWS) > 1960, "well", "ill"),
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Result:
    """A run of personal models beside a global one, with a client that joins later."""
    folder = tmp_path_factory.mktemp("table")
    patients().to_csv(folder / "patients.csv", index=False)
    data = {"user": "hospital", "impute": "median", "spelling": "merged", "val": 0.2}
    words = [f"--data.{key}={value}" for key, value in data.items()]
    words += ["--partition", "natural", "--partition.new_clients", "1", "--hosts", "0", "--rounds", "2"]
    words += ["--model", "mlp", "--method", "ditto", "--save-models", "--save-predictions"]
    assert main(["run", "--data", f"csv:{folder / 'patients.csv'}", *words, "--out", str(folder / "out")]) == 0
    result = fedbench.load(folder / "out")
    assert isinstance(result, Result)
    return result


def printed(script: Path, *words: str | Path) -> str:
    """What a script prints, in this process."""
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(text):
        patch.setattr(sys, "argv", [str(script), *map(str, words)])
        runpy.run_path(str(script))
    return text.getvalue()


def printed_without_fedbench(*words: str | Path) -> str:
    """What it prints in a process that has torch and numpy alone."""
    start = [sys.executable, "-I", "-W", "ignore", "-c", WITHOUT_FEDBENCH]
    done = subprocess.run([*start, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def probabilities(text: str) -> np.ndarray:
    head, *lines = [line.split("\t") for line in text.splitlines()]
    assert head == ["class", "ill", "well"]
    return np.array([line[1:] for line in lines], float)


def rows_of(folder: Path, rows: np.ndarray) -> Path:
    """These patients as somebody else may have them: columns in another order, one of them new, none of the target."""
    own = patients().iloc[rows][["city", "job", "bmi", "smokes", "height", "born"]].assign(ward="7")
    own.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def softmax(outputs: np.ndarray) -> np.ndarray:
    odds = np.exp(outputs.astype(float) - outputs.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def run_outputs(kept: Result, client: int, point: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a client's test samples, and the outputs of the run for them."""
    found = np.load(kept.folder / "predictions" / "seed-0.npz")
    own = found[f"{point}/clients"] == client
    assert own.sum() > 5
    return found[f"{point}/rows"][own], found[f"{point}/outputs"][own]


@pytest.mark.parametrize("point", ["after_agg", "after_fit"])
@pytest.mark.parametrize("client", [0, 1, 2])
def test_every_test_row_has_the_probabilities_of_the_run(client, point, kept, tmp_path):
    rows, outputs = run_outputs(kept, client, point)
    script = kept.models / "seed-0" / f"client-{client}" / "predict.py"
    found = probabilities(printed(script, rows_of(tmp_path, rows), point, "--probabilities"))
    np.testing.assert_allclose(found, softmax(outputs), atol=1e-6, rtol=0)


@pytest.mark.parametrize("format", ["torch.export", "onnx"])
def test_programs_have_them_too_where_fedbench_is_not_installed(format, kept, tmp_path):
    made = export(kept.folder, 2, format, out=tmp_path / "out")
    assert made.difference is not None
    assert made.difference <= 1e-6
    rows, outputs = run_outputs(kept, 2, "after_agg")
    script, path = made.file.parent / "predict.py", rows_of(tmp_path, rows)
    found = probabilities(printed_without_fedbench(script, path, "--probabilities"))
    np.testing.assert_allclose(found, softmax(outputs), atol=1e-6, rtol=0)


def test_a_threshold_moves_the_class_of_rows(kept, tmp_path):
    rows, outputs = run_outputs(kept, 0, "after_agg")
    script, path = kept.models / "seed-0" / "client-0" / "predict.py", rows_of(tmp_path, rows)
    chance = softmax(outputs)[:, 1]
    bar = float(np.sort(chance)[-3] + np.sort(chance)[-2]) / 2
    found = printed(script, path, "--threshold", str(bar)).split()
    assert [name == "well" for name in found] == (chance >= bar).tolist()
    assert found.count("well") == 2


def test_what_fills_missing_numbers_is_each_client_own_and_of_the_global_model_the_means(kept):
    run = resolve(kept.config)
    dealt = partition(run.dataset, run.config, 0)
    born, bmi = (pd.to_numeric(patients()[name], errors="coerce") for name in ("born", "bmi"))
    fills = {}
    for name in ("client-0", "client-1", "client-2", "global"):
        about = json.loads((kept.models / "seed-0" / name / "model.json").read_text())
        columns = {column["name"]: column for column in about["columns"]}
        assert [*columns] == ["born", "height", "smokes", "bmi", "job", "city"]
        assert columns["job"]["categories"] == ["Zoë", "cook", "nurse, night"]
        assert "fill" not in columns["height"]
        fills[name] = columns["born"]["fill"], columns["bmi"]["fill"]
    for client in range(2):
        train = dealt.clients[client].train
        np.testing.assert_allclose(fills[f"client-{client}"], [born[train].median(), bmi[train].median()], 1e-6)
    means = run.dataset.mean[0], run.dataset.mean[5]
    np.testing.assert_allclose(fills["client-2"], [born[dealt.clients[2].train].median(), means[1]], 1e-6)
    np.testing.assert_allclose(fills["global"], means, 1e-6)


def test_a_newcomer_predicts_by_the_global_model_with_the_medians_of_its_own_training_rows(kept, tmp_path):
    """As the run prepares a newcomer's samples."""
    run = resolve(kept.config)
    data = ClientData(
        run.config, run.dataset, partition(run.dataset, run.config, 0), torch.device("cpu"), torch.float32
    )
    newcomer, split = data.partition.newcomers[0], data.split([3], "test", (0,))
    with torch.no_grad():
        outputs = fedbench.load_model(kept.folder, "global")(split.batch(torch.arange(len(split)))[0])
    script = kept.models / "seed-0" / "global" / "predict.py"
    patients().iloc[newcomer.train].to_csv(tmp_path / "own.csv", index=False)
    path = rows_of(tmp_path, newcomer.test)
    found = probabilities(printed(script, path, "--probabilities", "--medians", tmp_path / "own.csv"))
    np.testing.assert_allclose(found, softmax(outputs.numpy()), atol=1e-6, rtol=0)
    assert abs(probabilities(printed(script, path, "--probabilities")) - found).max() > 1e-4, "the means are others"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda rows: rows.drop(columns="bmi"), "rows.csv: no column is called bmi"),
        (lambda rows: rows.assign(**{"bmi ": "1"}), "rows.csv: two columns are called bmi"),
        (
            lambda rows: rows.assign(job=["cook", "pilot", *rows["job"][2:]]),
            "rows.csv, row 2, column job: 'pilot' is none of its categories, Zoë, cook, nurse, night",
        ),
        (lambda rows: rows.assign(born="old"), "rows.csv, row 1, column born: 'old' is no number"),
        (lambda rows: rows.assign(smokes="1"), "rows.csv, row 1, column smokes: '1' is no truth value"),
        (
            lambda rows: rows.assign(height=["170", "NA", *rows["height"][2:]]),
            "rows.csv, row 2, column height: no value, and the model knows none that are missing here",
        ),
    ],
)
def test_rows_that_are_no_rows_of_the_data_are_one_line(change, line, kept, tmp_path):
    change(patients().head(5)).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(SystemExit) as end:
        printed(kept.models / "seed-0" / "client-0" / "predict.py", tmp_path / "rows.csv")
    assert end.value.code == f"{tmp_path}/{line}"
