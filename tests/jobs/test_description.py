"""A run's folder says what was asked, on what it ran and who held what, and is as good as empty until it says all."""

import json

import pytest
from markupsafe import escape

from fedbench import methods
from fedbench.config import TrainConfig
from fedbench.data.partitions import partition
from fedbench.data.partitions.rows import PARTITION_PARTS
from fedbench.jobs.description import decisions, environment
from fedbench.jobs.resolve import resolve
from fedbench.methods.base import Method
from fedbench.results.reader import Records
from fedbench.runtime.ray.cluster import COMMAND
from fedbench.studies.run import run
from tests.data.toys import EVEN
from tests.runtime.rounds import described, read, small


def test_every_seed_is_described(tmp_path):
    run(small(rounds=1, seeds=[0, 5], out=str(tmp_path)), report=False)
    known = json.loads((tmp_path / "environment.json").read_text())
    prints = known["partition_fingerprint"]
    assert known["partition_headline"] == ["alpha"]
    resolved = resolve(small())
    config, dataset = resolved.config, resolved.dataset
    assert prints == {str(seed): partition(dataset, config, seed).fingerprint() for seed in (0, 5)}
    dealt = partition(dataset, config, 0)
    assert known["data"]["parts"]["dealt"] == [sum(dealt.sizes(part)) for part in PARTITION_PARTS]
    assert known["data"]["rows"][0] == ["data", "digits"]
    assert len(known["data"]["shown"]["pictures"]) == 8
    drawn = json.loads((tmp_path / "partition.json").read_text())
    assert drawn["5"]["clients"][3]["train"] == partition(dataset, config, 5).clients[3].train.tolist()


def test_where_fedbench_decides_is_kept_and_stands_on_the_page(tmp_path):
    reading = {"method__server_rule": "or_mask", "method__merge_mask": "server", "method__loo_update": "current"}
    folder = run(small("co-pfl", rounds=1, out=str(tmp_path / "a"), **reading)).folder
    first, *others = json.loads((folder / "environment.json").read_text())["decisions"]
    assert first.startswith("Reading: literal (server_rule=or_mask")
    page = (folder / "report.html").read_text()
    assert len(others) > 5
    assert all(str(escape(line)) in page for line in [first, *others])


def test_a_folder_that_was_being_described_when_the_power_went_is_as_good_as_new(tmp_path):
    """config.yaml comes last: a folder that has it has everything."""
    described(small(rounds=1), tmp_path / "a")
    (tmp_path / "a/config.yaml").unlink()
    result = run(small(rounds=1, out=str(tmp_path / "a")), report=False)
    assert json.loads((result.folder / "environment.json").read_text())["finished"]
    assert result.summary["complete"]


def test_a_run_repeats_itself_on_the_partition_that_it_left(tmp_path):
    asked = {"rounds": 1, "seeds": [0, 5]}
    run(small(**asked, public__size=20, out=str(tmp_path / "a")), report=False)
    saved = {"name": "file", "clients": 10, "path": str(tmp_path / "a" / "partition.json")}
    run(small(**asked, public__size=20, partition=saved, out=str(tmp_path / "b")), report=False)
    assert read(tmp_path / "a") == read(tmp_path / "b")
    left = json.loads((tmp_path / "a" / "partition.json").read_text())
    assert left["0"]["public_class_counts"] == [2] * 10
    first, second = (json.loads((tmp_path / name / "environment.json").read_text()) for name in "ab")
    assert first["partition_fingerprint"] == second["partition_fingerprint"]


def test_what_many_clients_hold_is_kept_as_arrays(tmp_path, monkeypatch):
    """A run of two seeds repeats itself on what it left, and its page shows who holds what."""
    monkeypatch.setattr("fedbench.jobs.description.MANY", 9)
    asked = {"rounds": 1, "seeds": [0, 5]}
    run(small(**asked, out=str(tmp_path / "a")))
    assert not (tmp_path / "a" / "partition.json").exists()
    saved = {"name": "file", "clients": 10, "path": str(tmp_path / "a" / "partition.npz")}
    run(small(**asked, partition=saved, out=str(tmp_path / "b")), report=False)
    assert read(tmp_path / "a") == read(tmp_path / "b")
    resolved = resolve(small())
    config, dataset = resolved.config, resolved.dataset
    counts = partition(dataset, config, 5).class_counts(dataset.labels, 10).tolist()
    assert Records(tmp_path / "a").partition()["5"] == {"class_counts": counts}
    assert "<h2>Partition</h2>" in (tmp_path / "a" / "report.html").read_text()


def test_the_command_is_the_users_also_in_a_worker_of_ray(monkeypatch):
    monkeypatch.setattr("sys.argv", ["fedbench", "grid", "--method", "fedcac"])
    assert environment({}, EVEN)["command"] == "fedbench grid --method fedcac"
    monkeypatch.setattr("sys.argv", ["/ray/workers/default_worker.py", "--node-ip-address=127.0.0.1"])
    monkeypatch.delenv(COMMAND, raising=False)
    assert environment({}, EVEN)["command"] is None
    monkeypatch.setenv(COMMAND, "fedbench grid --method fedcac")
    assert environment({}, EVEN)["command"] == "fedbench grid --method fedcac"


@pytest.mark.parametrize(("method", "pooled"), [("centralized", True), ("fedavg", False), ("pfedme", False)])
def test_whether_one_model_is_trained_on_all_data_is_noted(method, pooled, tmp_path):
    described(small(method), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["pooled"] is pooled


@pytest.mark.parametrize(
    ("method", "model", "sizes"),
    [
        ("fedavg", "mlp", {"mlp": (55_210, 55_210)}),
        ("fedper", "mlp", {"mlp": (55_210, 53_200)}),
        ("local", "mlp", {"mlp": (55_210, 0)}),
        ("fml", "mlp,resnet8", {"mlp": (2 * 55_210, 55_210), "resnet8": (1_235_274 + 55_210, 55_210)}),
    ],
)
def test_the_sizes_of_models_are_noted(method, model, sizes, tmp_path):
    result = run(small(method, rounds=1, seeds=[0], model={"name": model}, out=str(tmp_path)))
    models = Records(result.folder).environment()["models"]
    assert {name: (one["parameters"], one["shared"]) for name, one in models.items()} == sizes


@pytest.mark.parametrize(
    ("options", "reading"),
    [
        ({}, "working"),
        ({"server_rule": "or_mask", "merge_mask": "server", "loo_update": "current"}, "literal"),
        ({"server_rule": "or_mask"}, "neither literal nor working"),
    ],
)
def test_a_run_of_co_pfl_names_its_reading_first(options, reading):
    chosen = methods.load("co-pfl").Options(**options)
    first, *others = decisions("co-pfl", chosen, TrainConfig())
    assert first.startswith(f"Reading: {reading} (server_rule=")
    assert any(line.startswith("The literal reading is `server_rule=or_mask") for line in others)


@pytest.mark.parametrize(
    ("method", "train", "said"),
    [
        ("fedcac", {}, ["train.lr 0.1, not 0.01", "train.batch_size 100, not 50"]),
        ("fedcac", {"lr": 0.1, "batch_size": 100}, []),
        (
            "fedobp",
            {},
            ["train.momentum 0, not 0.5", "train.weight_decay 0, not 0.0005", "train.batch_size 32, not 50"],
        ),
        ("fedobp", {"momentum": 0.0, "weight_decay": 0.0, "batch_size": 32}, []),
        (
            "fedct",
            {"optimizer": "sgd", "lr": 0.05},
            ["train.optimizer adam, not sgd", "train.lr 0.001 or 0.01, not 0.05"],
        ),
        ("local", {}, []),
    ],
)
def test_training_that_is_not_the_papers_is_said(method, train, said):
    options = methods.load(method).Options()
    lines = decisions(method, options, TrainConfig(**train))
    assert len(lines) == len(methods.load(method).decisions(options)) + bool(said)
    assert all(part in lines[-1] for part in said)


class Own(Method):
    """A method of one's own, of whose file nothing is known."""


def test_of_a_method_of_ones_own_nothing_is_said_that_its_file_does_not_say():
    assert decisions(f"{__name__}:Own", Own.Options(), TrainConfig()) == []
