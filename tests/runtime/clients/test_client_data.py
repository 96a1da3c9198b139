"""A host gathers every client's part out of one copy of the data set."""

import pytest
import torch

from fedbench.jobs.resolve import resolve
from fedbench.runtime.clients.client_data import ClientData
from tests.runtime.rounds import SCENES, driver, small


def made(**more) -> ClientData:
    resolved = resolve(small(**more))
    config, dataset = resolved.config, resolved.dataset
    dealt = driver(resolved).setup.partition
    return ClientData(config, dataset, dealt, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_part_has_the_samples_of_its_clients_one_after_the_other(part):
    data = made()
    whole, (first, second) = data.split([4, 1], part, (0,)), [data.split([n], part, (0,)) for n in (4, 1)]
    rows = [*getattr(data.partition.clients[4], part), *getattr(data.partition.clients[1], part)]
    x, y = whole.batch(torch.arange(len(whole)))
    assert len(whole) == len(first) + len(second) == len(rows)
    assert y.tolist() == data.dataset.labels[rows].tolist()
    pixels = torch.from_numpy(data.dataset.samples[rows]).float() / 255
    assert torch.allclose(x, (pixels - data.dataset.mean[0]) / data.dataset.std[0], atol=1e-5)


def test_a_part_of_nobody_is_empty_and_keeps_its_types():
    nobody, somebody = (made().split(clients, "train", (0,)) for clients in ([], [0]))
    assert len(nobody) == 0
    assert (nobody.rows.dtype, nobody.targets.dtype) == (somebody.rows.dtype, somebody.targets.dtype)


def test_all_parts_share_the_samples_of_the_data_set():
    data = made(public={"size": 40})
    splits = [data.split([0], "train", (0,)), data.split([1], "test", (0,)), data.public((0,))]
    assert {split._samples.data_ptr() for split in splits} == {data.dataset.samples.ctypes.data}


def test_what_is_scored_apart_are_the_classes_and_domains_that_are_there():
    data = made(**SCENES, evaluate={"by": ["class", "domain"]})
    split = data.split([1], "test", (0,))
    groups, rows = data.groups(split), data.partition.clients[1].test
    labels, domains = data.dataset.labels[rows], data.dataset.domains[rows]
    names = [f"class={c}" for c in sorted(set(labels))]
    assert list(groups) == [*names, "domain=photo", "domain=sketch/ink"]
    assert len(names) == 2
    assert groups[names[0]].tolist() == (labels == int(names[0][-1])).tolist()
    assert groups["domain=sketch/ink"].tolist() == (domains == 1).tolist()
    assert made(**SCENES).groups(split) == {}


def test_nobody_is_told_the_labels_of_the_public_set():
    data = made(public={"size": 40})
    public = data.public((3,))
    assert public.rows.tolist() == data.partition.public.tolist()
    assert public.targets.tolist() == [0] * 40
    assert public.key == (3,)
    assert made().public((3,)) is None


def test_noise_is_for_the_clients_that_are_to_have_it():
    true, seen = made(), made(partition={"name": "dirichlet", "clients": 10, "flip_clients": [2]})
    for client in (1, 2):
        labels = [data.split([client], "train", (0,)).labels for data in (true, seen)]
        assert torch.equal(*labels) == (client != 2)
