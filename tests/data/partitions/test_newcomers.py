"""Clients that join after the last round: who they are, and that nobody else depends on them."""

import json
from functools import partial

import numpy as np
import pytest

from fedbench.config import Config
from fedbench.data.partitions import ClientRows, Clients, Partition
from fedbench.data.partitions.newcomers import with_newcomers
from fedbench.errors import ConfigError
from tests.data.partitions import dealing

deal = partial(dealing.deal, seed=3, name="dirichlet", clients=7)


def rows(clients: Clients) -> list[bytes]:
    return [own.train.tobytes() + own.val.tobytes() + own.test.tobytes() for own in clients]


def test_the_clients_of_a_partition_are_split_and_stay_in_order():
    everyone, some = rows(deal().clients), deal(new_clients=2)
    stay, later = rows(some.clients), rows(some.newcomers)
    assert [len(stay), len(later)] == [5, 2]
    assert [own for own in everyone if own in stay] == stay
    assert [own for own in everyone if own in later] == later
    assert rows(Clients.of([some.rows_of(number) for number in range(7)])) == stay + later


def test_a_share_is_a_count_and_seeds_draw_others():
    assert rows(deal(new_clients=0.3).newcomers) == rows(deal(new_clients=2).newcomers)
    same = Clients.of([ClientRows(*(np.array([n]) for _ in range(3))) for n in range(30)])
    options = Config(partition={"clients": 30, "new_clients": 4}).partition
    drawn = {seed: rows(with_newcomers(Partition(same, seed=seed), options).newcomers) for seed in (0, 1)}
    assert drawn[0] != drawn[1]


def test_without_newcomers_nothing_changes_and_with_them_the_fingerprint_does():
    assert deal(new_clients=0).fingerprint() == deal().fingerprint()
    some = deal(new_clients=2)
    assert len({some.fingerprint(), Partition(some.clients).fingerprint(), deal().fingerprint()}) == 3


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_file_brings_its_newcomers_or_the_partition_without_them(tmp_path, suffix):
    before, path = deal(new_clients=2), tmp_path / f"p.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps(before.tree()))
    else:
        np.savez(path, **{f"3/{name}": array for name, array in before.arrays().items()})
    again, without = deal(name="file", path=path, new_clients=2), deal(name="file", path=path, clients=5)
    assert rows(again.clients) == rows(without.clients) == rows(before.clients)
    assert rows(again.newcomers) == rows(before.newcomers)
    assert not len(without.newcomers)
    with pytest.raises(ConfigError, match=r"the file has 7 clients, 2 of them newcomers, partition.clients = 5"):
        deal(name="file", path=path, clients=5, new_clients=2)
    with pytest.raises(ConfigError, match=r"the file has 2 newcomers, partition.new_clients = 3; set .* 2$"):
        deal(name="file", path=path, new_clients=3)


def test_somebody_must_train():
    assert len(deal(new_clients=6).clients) == 1
    with pytest.raises(ConfigError, match=r"partition.new_clients = 7: at least 1 of 7 clients must train; .* most 6$"):
        deal(new_clients=7)
    with pytest.raises(ConfigError, match=r"at least 1 of 1 clients must train; leave it out"):
        deal(clients=1, new_clients=0.5)
    with pytest.raises(ConfigError, match=r"must be a whole number >= 0 or number in \(0, 1\)"):
        deal(new_clients=1.5)
