"""Which methods take an aggregator, by what they do."""

import pytest
import torch

from fedbench.aggregation.rules import names as aggregators
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.base import Method, takes_aggregators
from tests.runtime.rounds import driver, play, small, stop

HERE = "tests.conformance.test_aggregators"
SHORTENS = {"fedkd"}
"""Methods that send the change of the shared model in low rank, which this step has."""
OWN_SERVER_HALF = {name for name in names() if not takes_aggregators(load(name))}


def step(vectors, weights, current):
    """The model that the participants were sent, moved a little, wherever they went."""
    return current + 0.01


def test_the_base_class_and_whoever_leaves_aggregate_alone_take_any():
    left_alone = {name for name in names() if load(name).aggregate is Method.aggregate}
    assert {"fedavg", "fedper", "ditto"} <= left_alone
    assert not left_alone & OWN_SERVER_HALF
    assert {"local", "fedamp"} <= OWN_SERVER_HALF


@pytest.mark.parametrize("method", sorted(set(names()) - OWN_SERVER_HALF))
def test_the_shared_model_is_what_the_aggregator_makes(method, tmp_path):
    resolved = resolve(small(method, rounds=2, evaluate__every=2, aggregator=f"{HERE}:step"))
    check_run(resolved)
    made = driver(resolved, tmp_path)
    start = made.server.params.clone()
    assert len(start)
    made.run()
    error = {"rtol": 0, "atol": 1e-6 if method in SHORTENS else 0}
    torch.testing.assert_close(made.server.params, start + 0.01 + 0.01, **error)


@pytest.mark.parametrize("method", sorted(OWN_SERVER_HALF))
def test_a_server_half_of_its_own_refuses_in_one_line(method):
    resolved = resolve(small(method, aggregator="median"))
    with pytest.raises(
        ConfigError, match=f"the server half of method {method} does not average.*ditto.*fedavg.*pfedme"
    ) as no:
        check_run(resolved)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("name", aggregators())
def test_same_bits_stopped_in_every_round_and_resumed(name, tmp_path):
    """lg-fedavg goes from the whole model to a part of it, with what the aggregator keeps."""
    config = small(
        "lg-fedavg", method__pretrain_rounds=2, rounds=4, aggregator=name, model={"name": "mlp", "hidden": 8}
    )
    whole = play(config, tmp_path / "whole")
    config.checkpoint.every = 1
    for round in range(2, 5):
        stop(config, tmp_path / "parts", round, resume=round > 2)
    assert play(config, tmp_path / "parts", resume=True) == whole
