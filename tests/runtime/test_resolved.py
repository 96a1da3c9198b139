"""What everything that works on a run is given."""

from dataclasses import replace

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedprox import FedProx
from fedbench.runtime.resolved import ResolvedRun
from tests.runtime.rounds import small


def test_names_are_found_and_options_typed_once():
    run = resolve(small("fedprox", method__mu=0.5, aggregator="median"))
    assert run.method is FedProx
    assert isinstance(run.options, FedProx.Options)
    assert (run.options.mu, run.aggregator.name) == (0.5, "median")
    assert run.task.name == run.dataset.task == "classification"


def test_another_process_makes_the_same_of_the_configuration():
    run = resolve(small("fedprox", method__mu=0.5))
    other = ResolvedRun.of(run.config)
    assert (other.method, other.options, other.dataset.content) == (run.method, run.options, run.dataset.content)


def test_a_run_of_several_seeds_has_one_for_each():
    run = resolve(small(seeds=[0, 3]))
    assert run.of_seed(run.config.model_copy(update={"seeds": [3]})).seed == 3
    with pytest.raises(ValueError, match="too many values"):
        _ = run.seed


def test_an_option_that_the_method_does_not_know_is_refused():
    with pytest.raises(ConfigError, match=r"unknown key method\.nu"):
        ResolvedRun.of(small("fedprox", method__nu=1))


def test_a_partition_that_is_known_is_not_dealt_again():
    run = resolve(small(seeds=[3]))
    known = run.partition()
    assert replace(run, dealt={3: known}).partition() is known
    assert replace(run, dealt={4: known}).partition() is not known
