"""Wrong labels for chosen clients."""

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data import Partition, partition
from fedbench.data.partitions.label_noise import client_targets
from tests.data.toys import EVEN

PARTS = ("train", "val", "test")


def drawn(seed: int = 0, **options) -> tuple[Config, Partition]:
    config = Config(partition={"name": "iid", "clients": 3, **options})
    return config, partition(EVEN, config, seed)


def wrong(config: Config, dealt: Partition, client: int, part: str) -> np.ndarray:
    """How far each label is from the true one, modulo classes."""
    seen = client_targets(EVEN, dealt, config, client, part)
    return (seen - EVEN.labels[getattr(dealt.clients[client], part)]) % 10


def test_flipped_clients_see_the_next_class_in_every_part():
    config, dealt = drawn(flip_clients=[1])
    for part in PARTS:
        for client, shift in ((0, 0), (1, 1), (2, 0)):
            assert set(wrong(config, dealt, client, part)) == {shift}


@pytest.mark.parametrize("rate", [0.0, 0.2, 1.0])
def test_noisy_clients_have_their_share_of_wrong_labels_outside_the_test_part(rate):
    config, dealt = drawn(noise_clients=[2], noise_rate=rate)
    shifts = np.concatenate([wrong(config, dealt, 2, part) for part in ("train", "val")])
    assert (shifts > 0).sum() == round(rate * 333)
    assert not wrong(config, dealt, 2, "test").any(), "what the client is measured by stays true"
    assert not any(wrong(config, dealt, client, part).any() for client in (0, 1) for part in PARTS)


def test_wrong_labels_are_any_of_the_others():
    config, dealt = drawn(noise_clients=[0], noise_rate=1.0)
    assert set(wrong(config, dealt, 0, "train")) == set(range(1, 10))


def test_the_seed_of_the_partition_decides():
    for_seed = [wrong(*drawn(seed, noise_clients=[0]), 0, "train").tolist() for seed in (0, 0, 1)]
    assert for_seed[0] == for_seed[1] != for_seed[2]
    config, dealt = drawn(noise_clients=[0, 1])
    assert wrong(config, dealt, 0, "train").tolist() == for_seed[0], "whoever else is noisy"


def test_copies_of_an_image_have_one_label():
    options = {"name": "dirichlet-fixed", "train_size": 900, "alpha": 0.05}
    config, dealt = drawn(noise_clients=[0], noise_rate=0.5, **options)
    rows, seen = dealt.clients[0].train, client_targets(EVEN, dealt, config, 0, "train")
    assert len(np.unique(rows)) < len(rows)
    assert len(np.unique(np.stack([rows, seen]), axis=1).T) == len(np.unique(rows))


def test_noisy_and_flipped_at_once():
    config, dealt = drawn(noise_clients=[1], flip_clients=[1])
    noise_only, _ = drawn(noise_clients=[1])
    for part in PARTS:
        flips = (wrong(config, dealt, 1, part) - wrong(noise_only, dealt, 1, part)) % 10
        assert set(flips) == {1}
