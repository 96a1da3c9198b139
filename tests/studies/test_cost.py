"""Gradient steps and seconds before anything is run."""

import pytest
from torch import nn

from fedbench import models
from fedbench.config import Config
from fedbench.methods.base import Method
from fedbench.studies.cost import held_for_testing, hours_of, images_of, looks_of, step_seconds, steps_of, work

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
    ],
)
def test_images_of_a_client(more, images):
    assert images_of(Config(**{**ASKED, **more})) == images


def test_steps_are_batches_times_epochs_times_clients_times_rounds():
    base = Config(**ASKED, train={"batch_size": 32, "epochs": 5}, rounds=100)
    assert steps_of(base.model_copy(update={"data": base.data.model_copy(update={"val": 0})})) == 100 * 10 * 5 * 4
    half = Config(**ASKED, train={"batch_size": "full", "epochs": 1}, rounds=10, participation=0.5)
    assert steps_of(half) == 10 * 5


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
    assert held_for_testing(Config(**{**ASKED, **more})) == pytest.approx(images)


def test_evaluations_look_at_validation_and_test_images_at_both_points():
    asked = Config(**ASKED, rounds=25, evaluate={"every": 10})
    assert looks_of(asked) == pytest.approx(3 * 10 * (20 + 10) * 2)
    sampled = asked.model_copy(update={"evaluate": asked.evaluate.model_copy(update={"clients": 4})})
    assert looks_of(sampled) == pytest.approx(looks_of(asked) * 0.4)
    assert hours_of([sampled]) < hours_of([asked])


def test_of_a_large_batch_a_part_is_measured(monkeypatch):
    seen = []

    class Noted(nn.Linear):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x.flatten(1)[:, :4])

    monkeypatch.setattr(models, "load", lambda name: lambda input_shape, classes: Noted(4, classes))
    for shape, batch, timed in (((3, 256, 256), 64, 5), ((1, 2, 2), 64, 64), ((3, 2048, 2048), 64, 2)):
        assert step_seconds("noted", shape, 10, batch) > 0
        assert set(seen) == {timed}
        seen.clear()


def test_a_step_is_measured_and_hours_follow():
    assert step_seconds("mlp", (1, 28, 28), 10, 32) > 0
    config = Config(**ASKED, model="mlp")
    assert work(config) == ("mlp", (3, 32, 32), 10, 50)
    assert hours_of([config, config]) == pytest.approx(2 * hours_of([config]))
