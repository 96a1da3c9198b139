"""Gradient steps and seconds before anything is run."""

import pytest
import torch
from torch.utils.data import TensorDataset

from fedbench.config import Config, DataConfig
from fedbench.data.partitions.scheme import Scheme, load
from fedbench.data.sources import published_names, published_of
from fedbench.errors import ConfigError
from fedbench.methods.base import Method
from fedbench.studies import cost
from fedbench.studies.cost import RUN, Cost, dataset_of, steps_of, total_cost
from tests.runtime.networks import Awkward

ASKED = {"partition": {"name": "shards", "clients": 10, "classes": 2, "images": 50}, "data": {"name": "cifar10"}}


@pytest.mark.parametrize(
    ("more", "images"),
    [
        ({}, 100),
        ({"partition": {"name": "pathological", "train_size": 500}}, 500),
        ({"partition": {"name": "dirichlet", "clients": 100, "test": "pooled"}}, 450),  # of both parts
        ({"partition": {"name": "dirichlet", "clients": 100}}, 450),
        ({"partition": {"name": "dirichlet", "clients": 100, "test": "part", "train_size": 7}}, 500),
        ({"partition": {"name": "dirichlet-fixed", "clients": 100}}, 500),
        ({"partition": {"name": "iid", "clients": 10, "total": 2000}}, 200),
        ({"partition": {"name": "counts", "clients": 2, "counts": [[30] * 10, [50] * 10], "images": 3}}, 400),
        ({"partition": {"name": "tests.studies.test_cost:DOUBLE", "clients": 2, "train_size": 40}}, 80),
    ],
)
def test_images_of_a_client(more, images):
    assert Cost.of(Config(**{**ASKED, **more})).images == images


def test_steps_are_batches_times_epochs_times_clients_times_rounds():
    base = Config(**ASKED, train={"batch_size": 32, "epochs": 5}, rounds=100)
    assert steps_of(base.model_copy(update={"data": base.data.model_copy(update={"val": 0})})) == 100 * 10 * 5 * 4
    half = Config(**ASKED, train={"batch_size": "full", "epochs": 1}, rounds=10, participation=0.5)
    assert steps_of(half) == 10 * 5


def test_newcomers_cost_time_and_no_steps_of_the_training():
    asked = {**ASKED, "partition": ASKED["partition"] | {"new_clients": 2}}
    config = Config(**asked, train={"batch_size": 32, "epochs": 5}, rounds=7)
    assert steps_of(config) == 7 * 8 * 5 * 3
    assert Cost.of(config).joining_steps == 2 * (18 * 3 + 3 * 10)  # three batches of 90 images, one of a few
    assert Cost.of(Config(**ASKED)).joining_steps == 0


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("fedavg", 5 * 3 * 5),  # five of ten clients, three batches of 90 images, five epochs
        ("fedrep", 5 * 3 * (10 + 1)),
        ("co-pfl", 5 * 3 * 3 * 2),  # its own three epochs, two phases
        ("centralized", 29 * 5),  # 900 images
        ("tests.studies.test_cost:Twice", 5 * 3 * 5 * 2),
    ],
)
def test_a_method_says_how_many_steps_it_makes(method, steps):
    assert steps_of(Config(**ASKED, method=method, train={"batch_size": 32}, participation=0.5, rounds=7)) == 7 * steps


DOUBLE = Scheme(load("iid").deal, reads=("train_size",), size=lambda options, part: 2 * (options.train_size or 0))
"""A scheme of a user, which says by itself how many samples a client has."""


class Twice(Method):
    """Trains twice."""

    @classmethod
    def steps(cls, options, train, samples, public):
        return 2 * super().steps(options, train, samples, public)


@pytest.mark.parametrize(
    ("more", "images"),
    [
        ({"partition": {**ASKED["partition"], "test_images": 40}}, 80),
        ({"partition": {"name": "pathological", "train_size": 500, "test_size": 30}}, 30),
        ({"partition": {"name": "dirichlet", "clients": 100, "test": "pooled"}}, 150),
        ({"partition": {"name": "dirichlet", "clients": 100, "test_size": 20}}, 150),
        ({"partition": {"name": "dirichlet", "clients": 100, "test": "drawn", "test_size": 20}}, 20),
        ({"partition": {"name": "dirichlet", "clients": 100, "test": "part", "test_share": 0.9}}, 100),
        ({}, 20),
    ],
)
def test_test_images_of_a_client(more, images):
    assert Cost.of(Config(**{**ASKED, **more})).tests == pytest.approx(images)


def test_evaluations_look_at_validation_and_test_images_at_both_points():
    asked = Config(**ASKED, rounds=25, evaluate={"every": 10})
    assert Cost.of(asked).evaluated_images == pytest.approx(3 * 10 * (20 + 10) * 2)
    sampled = asked.model_copy(update={"evaluate": asked.evaluate.model_copy(update={"clients": 4})})
    assert Cost.of(sampled).evaluated_images == pytest.approx(Cost.of(asked).evaluated_images * 0.4)
    assert total_cost([sampled])[1] < total_cost([asked])[1]


def cifar10_of_mine(train: bool = True) -> TensorDataset:
    """Not CIFAR-10, whatever its name says: 90 and 30 sequences of eight tokens, three classes."""
    count = 90 if train else 30
    return TensorDataset(torch.arange(8).expand(count, 8).contiguous(), torch.arange(count) % 3)


class Noted(Awkward):
    """Notes the batches that it trains on."""

    seen: list[tuple[int, ...]] = []  # noqa: RUF012 - of all instances

    def training_step(self, batch, batch_idx):
        self.seen.append(tuple(batch[0].shape))
        return super().training_step(batch, batch_idx)


MINE = {"data": f"{__name__}:cifar10_of_mine", "partition": {"name": "iid", "clients": 3}}


def test_an_own_set_counts_as_it_is_whatever_it_is_called():
    dataset = dataset_of(DataConfig(name=MINE["data"]))
    assert (dataset.train_rows, dataset.test_rows, dataset.shape, dataset.classes) == (90, 30, (8,), 3)
    asked = Config(**MINE)
    assert (Cost.of(asked).images, Cost.of(asked).tests) == (30, 10)
    assert Cost.of(Config(**{**MINE, "partition": {**MINE["partition"], "test": "pooled"}})).images == 30


def test_a_published_set_that_is_not_here_counts_by_the_table_and_is_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    cost._dataset_of.cache_clear()
    for name in published_names():
        extent, dataset = published_of(name).extent, dataset_of(DataConfig(name=name))
        assert (dataset.train_rows, dataset.shape, dataset.classes, dataset.kind) == extent
        assert dataset.outputs == extent.classes
    assert dataset_of(DataConfig(name="pacs", size=32)).shape == (3, 32, 32)
    assert not list(tmp_path.iterdir())
    cost._dataset_of.cache_clear()


def test_a_set_whose_clients_are_asked_for_has_to_be_here(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="data har: not here"):
        Cost.of(Config(data={"name": "har"}, partition={"name": "natural"}))


def test_the_step_of_the_real_module_is_measured_on_batches_of_the_real_shape():
    Noted.seen.clear()
    asked = Config(model={"name": f"{__name__}:Noted"}, partition={"name": "iid", "clients": 100})
    assert Cost.of(asked).seconds > 0
    assert set(Noted.seen) == {(15, 1, 8, 8)}  # no more than a client has: 1,438 images by 100
    Noted.seen.clear()
    again = asked.model_copy(update={"rounds": 2 * asked.rounds})
    assert Cost.of(again).seconds - RUN == pytest.approx(2 * (Cost.of(asked).seconds - RUN))
    assert not Noted.seen  # measured once


def test_of_a_large_batch_a_part_is_measured(monkeypatch):
    monkeypatch.setattr(cost, "NUMBERS", 5 * 64)
    Noted.seen.clear()
    asked = Config(model={"name": f"{__name__}:Noted"}, train={"batch_size": "full", "precision": "64-true"})
    assert Cost.of(asked).seconds > 0
    assert set(Noted.seen) == {(5, 1, 8, 8)}


def test_what_cannot_be_trained_is_said_before_it_is_run():
    asked = Config(**MINE, model="avgcnn")
    with pytest.raises(ConfigError, match="model avgcnn: needs images"):
        total_cost([asked])


class Stepless(Method):
    @classmethod
    def steps(cls, options, train, samples, public=0):
        raise ValueError("boom")


def test_a_method_that_cannot_count_its_steps_is_named():
    asked = Config(data="digits", method=Stepless)
    with pytest.raises(ConfigError, match=r"Stepless.steps fails: ValueError: boom \(test_cost.py:"):
        total_cost([asked])


def test_steps_and_hours_are_those_of_all_runs():
    one, other = (Config(**ASKED, model="mlp", seeds=[seed]) for seed in (0, 1))
    longer = Config(**ASKED, model="mlp", rounds=2 * one.rounds)
    steps, hours = total_cost([one])
    assert steps == steps_of(one)
    assert total_cost([one, other]) == (2 * steps, pytest.approx(2 * hours))
    assert total_cost([one, longer, other])[0] == 4 * steps
