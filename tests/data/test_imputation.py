"""Missing values of a table take the medians of each client's own training samples."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedbench
from fedbench.config import Config
from fedbench.data import Dataset, partition
from fedbench.data.describe import description_of
from fedbench.data.imputation import medians_of
from fedbench.jobs.resolve import resolve
from fedbench.runtime.clients.client_data import ClientData

ROWS = 120
HOSPITALS = ("fulda", "jena", "ulm")


def frame() -> pd.DataFrame:
    """age and bmi lack values; ulm has no bmi at all, and job is a category that lacks some."""
    rng = np.random.default_rng(3)
    hospital = np.arange(ROWS) % 3
    age, bmi = rng.normal(50 + 9 * hospital, 9), rng.normal(25, 4, ROWS)
    age[rng.random(ROWS) < 0.3] = np.nan
    bmi[(rng.random(ROWS) < 0.2) | (hospital == 2)] = np.nan
    job = np.array(["cook", "nurse", None], object)[rng.integers(0, 3, ROWS)]
    columns = {"age": age, "height": rng.normal(170, 9, ROWS), "bmi": bmi, "job": job}
    return pd.DataFrame({**columns, "user": np.array(HOSPITALS)[hospital], "y": rng.permutation(hospital % 2)})


def config_of(**more: Any) -> Config:
    given = {"partition": "natural", "model": "mlp", "rounds": 2, "resources": {"hosts": 0}, **more}
    return Config(**{"data": {"name": frame(), "impute": "median", "val": 0.2}, **given})


def client_data(config: Config, seed: int) -> ClientData:
    run = resolve(config)
    dealt = partition(run.dataset, run.config, seed)
    return ClientData(run.config, run.dataset, dealt, torch.device("cpu"), torch.float32)


def test_what_is_missing_is_a_column_and_the_constants_are_of_the_values_that_are_there():
    dataset, table = Dataset.of_run(config_of()), frame()
    names = ("age", "age missing", "height", "bmi", "bmi missing", "job=cook", "job=nurse", "job missing")
    assert (dataset.columns, dataset.shape, dataset.void) == (names, (8,), (0, 3))
    assert dataset.samples[:, 1].tolist() == table["age"].isna().tolist()
    assert dataset.samples[:, 5:].sum(1).tolist() == [1] * ROWS
    assert dataset.samples[:, 7].tolist() == table["job"].isna().tolist()
    np.testing.assert_array_equal(dataset.samples[:, 3], table["bmi"].to_numpy(np.float32))
    np.testing.assert_allclose([dataset.mean[0], dataset.std[0]], [table["age"].mean(), table["age"].std(ddof=0)], 1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_client_takes_the_medians_of_its_training_samples_alone(seed):
    data, table = client_data(config_of(), seed), frame()
    dataset = data.dataset
    for client, hospital in enumerate(HOSPITALS):
        rows = data.partition.clients[client]
        assert {*table["user"][rows.test]} == {hospital}
        medians = table.iloc[rows.train][["age", "bmi"]].median().fillna({"bmi": dataset.mean[3]})
        for part in ("train", "val", "test"):
            split = data.split([client], part, (0,))
            x, _ = split.batch(torch.arange(len(split)))
            own = table.iloc[getattr(rows, part)]
            for place, name in ((0, "age"), (3, "bmi")):
                expected = (own[name].fillna(medians[name]) - dataset.mean[place]) / dataset.std[place]
                np.testing.assert_allclose(x[:, place], expected, atol=1e-5)
                if (client, name) == (2, "bmi"):
                    assert x[:, place].abs().max() < 1e-5  # it has no value at all
    assert not np.array_equal(data._medians, client_data(config_of(), seed + 1)._medians)


def test_parts_of_several_clients_keep_each_ones_medians():
    data = client_data(config_of(), 0)
    both, single = data.split([2, 0], "test", (0,)), [data.split([client], "test", (0,)) for client in (2, 0)]
    expected = torch.cat([split.batch(torch.arange(len(split)))[0] for split in single])
    places = torch.arange(len(both)).flip(0)
    assert torch.equal(both.batch(torch.arange(len(both)))[0], expected)
    assert torch.equal(both.part(places).batch(torch.arange(len(both)))[0], expected.flip(0))
    assert not expected.isnan().any()


def test_newcomers_take_their_own_medians_and_the_public_set_takes_its_own():
    keys = {"partition": {"name": "natural", "new_clients": 1}, "public": {"size": 12, "balance": "none"}}
    data, table = client_data(config_of(**keys), 0), frame()
    newcomer, public = data.partition.newcomers[0], data.partition.public
    medians = medians_of(data.dataset, data.partition)
    assert len(medians) == 4
    for owner, rows in ((2, newcomer.train), (3, public)):
        np.testing.assert_allclose(medians[owner, 0], table["age"].iloc[rows].median(), 1e-6)
    split = data.public((0,))
    x = split.batch(torch.arange(12))[0]
    expected = table["age"].iloc[public].fillna(table["age"].iloc[public].median())
    np.testing.assert_allclose(x[:, 0], (expected - data.dataset.mean[0]) / data.dataset.std[0], atol=1e-5)


def test_a_run_trains_alike_with_every_engine(tmp_path):
    losses = {}
    for engine in ("loop", "compiled", "trainer"):
        config = config_of(train={"engine": engine, "epochs": 1}, out=tmp_path / engine)
        metrics = fedbench.run(config, report=False).metrics
        losses[engine] = metrics["train_loss"].dropna().to_numpy()
        assert len(losses[engine]) == 2
    np.testing.assert_array_equal(losses["loop"], losses["trainer"])
    np.testing.assert_allclose(losses["loop"], losses["compiled"], 1e-3)


def test_the_choice_is_described_and_identifies_the_data():
    config = config_of()
    dataset = Dataset.of_run(config)
    table = frame()
    counts = {name: int(table[name].isna().sum()) for name in ("age", "bmi", "job")}
    said = next(own for own in dataset.decisions if own.key == "data.impute")
    assert (said.how, said.value) == ("given", "median")
    assert said.said == (
        f"missing values of columns age ({counts['age']}), bmi ({counts['bmi']}) are the median of the client's "
        f"training samples, missing values of column job ({counts['job']}) are a category, with a column of 0 and 1 "
        "each"
    )
    assert said.said in str(description_of(dataset, config))
    filled = table.fillna({"age": 50.0, "bmi": 25.0, "job": "none"})
    whole, asked = (Dataset.of_run(Config(data={"name": filled, **keys})) for keys in ({}, {"impute": "median"}))
    assert whole.content == asked.content != dataset.content
    assert (whole.void, medians_of(whole, None)) == ((), None)
