"""Random streams named by what they are for."""

import random

import numpy as np
import torch

from fedbench.module import seeds


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_a_seed_depends_on_every_part_of_its_key():
    keys = [(0, 1, 2, "fit"), (1, 1, 2, "fit"), (0, 2, 2, "fit"), (0, 1, 3, "fit"), (0, 1, 2, "ft"), (0, 1, 2), (0, 12)]
    assert len({seeds.derive(*key) for key in keys}) == len(keys)
    assert seeds.derive(1, "2") != seeds.derive("1", 2)
    assert all(0 <= seeds.derive(*key) < 2**63 for key in keys)


def test_the_seeds_are_the_same_on_every_machine_and_in_every_version():
    assert seeds.derive(0, 3, 7, "fit") == 2793625158802367380


def test_generators_of_a_key_are_equal_and_independent_of_the_global_streams():
    first = torch.rand(3, generator=seeds.generator(0, "a"))
    torch.rand(5)
    assert torch.equal(first, torch.rand(3, generator=seeds.generator(0, "a")))
    assert not torch.equal(first, torch.rand(3, generator=seeds.generator(0, "b")))
    assert seeds.numpy_generator(0, "a").random() == seeds.numpy_generator(0, "a").random()


def test_all_global_streams_are_set():
    seeds.seed_everything(0, "x")
    first = draws()
    draws()
    seeds.seed_everything(0, "x")
    assert draws() == first


def test_streams_are_preserved_also_through_an_error():
    seeds.seed_everything(0)
    expected = draws()
    seeds.seed_everything(0)
    try:
        with seeds.preserved_streams():
            seeds.seed_everything(1)
            draws()
            raise ValueError
    except ValueError:
        pass
    assert draws() == expected


def test_the_torch_stream_alone():
    seeds.seed_everything(0)
    expected = float(torch.rand(()))
    seeds.seed_everything(0)
    with seeds.preserved_torch_stream():
        torch.rand(3)
    assert float(torch.rand(())) == expected
