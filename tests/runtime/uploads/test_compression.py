"""Shorter uploads against calculations by hand."""

import pytest
import torch

from fedbench.config.fleet import CompressionConfig
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import check_run, resolve
from fedbench.methods import load, names
from fedbench.methods.base import Method
from fedbench.methods.client import Client
from fedbench.methods.messages import Encoded, Upload
from fedbench.module.weights import Weights
from fedbench.results.reader import Records
from fedbench.runtime.uploads.compression import compress
from tests.runtime.rounds import driver, play, small

ENCODES = {"co-pfl", "fedkd", "fedselect"}
UPDATE = torch.tensor([0.5, -3.0, 1.0, 0.0, 2.0, -0.25, 0.1, 0.2], dtype=torch.float64)


def sent(name: str, seed: int = 0, update=UPDATE, **keys):
    return compress(update, CompressionConfig(name=name, **keys), torch.Generator().manual_seed(seed))


def test_topk_sends_the_largest_entries_and_their_places():
    found = sent("topk", share=0.25)
    assert found.tensor.tolist() == [0, -3, 0, 0, 2, 0, 0, 0]
    assert found.nbytes == 2 * 8 + 1  # two numbers, and a bit for every entry
    assert sent("topk", share=0.01, update=torch.arange(1000.0)).nbytes == 10 * 4 + 10 * 4
    assert torch.equal(sent("topk", share=1.0).tensor, UPDATE)


def test_a_mask_is_without_bias_and_needs_no_places():
    found = sent("mask", share=0.5)
    assert found.nbytes == 4 * 8
    assert int((found.tensor != 0).sum()) in (3, 4)  # one entry is 0 itself
    kept = found.tensor != 0
    assert torch.equal(found.tensor[kept], 2 * UPDATE[kept])
    mean = torch.stack([sent("mask", seed, share=0.5).tensor for seed in range(4000)]).mean(0)
    torch.testing.assert_close(mean, UPDATE, rtol=0, atol=0.15)


def test_quantised_entries_are_the_nearest_multiples_of_a_step_without_bias():
    found = sent("quantised", bits=3)
    assert found.nbytes == 3 + 8  # 8 entries of 3 bits, and the largest one
    steps = found.tensor / 1.0  # 3 levels for 3.0
    assert torch.equal(steps, steps.round())
    assert (found.tensor - UPDATE).abs().max() < 1
    assert found.tensor[1] == -3
    mean = torch.stack([sent("quantised", seed, bits=3).tensor for seed in range(4000)]).mean(0)
    torch.testing.assert_close(mean, UPDATE, rtol=0, atol=0.03)
    assert not sent("quantised", update=torch.zeros(3)).tensor.any()


class Halved(Method):
    """Encodes its parameters and does not say so."""

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        upload.add(params=Encoded(upload.params, upload.params.nbytes // 2))
        return upload


@pytest.mark.parametrize("keys", [{"compression": {"name": "topk"}}, {"privacy": {"clip": 0.5}}], ids=str)
def test_a_method_that_hides_its_encoding_is_refused_when_a_client_sends(keys, tmp_path):
    with pytest.raises(ConfigError, match=r"(topk|0.5): .*:Halved encodes its parameters itself"):
        play(small(f"{__name__}:Halved", **keys), tmp_path)


def test_error_feedback_sends_later_what_was_left_out(tmp_path):
    run = driver(resolve(small("fedavg", compression={"name": "topk", "share": 0.1}, rounds=2)), tmp_path)
    run.begin()
    seen, aggregate = [], run.method.aggregate
    run.method.aggregate = lambda server, own: (seen.append(own), aggregate(server, own))[1]  # type: ignore[method-assign]
    before = run.server.params.clone()
    run.exchange(0)
    first = seen[0][0]
    moved = int((first.params != before).sum())
    assert 0 < moved <= int(0.1 * len(before) + 0.5)
    assert first.nbytes == moved * 4 + min(moved * 4, (len(before) + 7) // 8)
    kept = run.hosts._host.store.load(first.client, 1)["residual"]
    assert torch.count_nonzero(kept) > moved
    assert not kept[first.params != before].any()


@pytest.mark.parametrize("method", ["feddpa", "pfedhn"])
def test_of_a_difference_that_is_sent_only_a_part_arrives(method, tmp_path):
    seen = []
    for keys in ({}, {"compression": {"name": "topk", "share": 0.1}}):
        run = driver(resolve(small(method, rounds=1, **keys)), tmp_path)
        run.begin()
        run.method.aggregate = lambda server, own: seen.append(own)  # type: ignore[method-assign]
        run.exchange(0)
    for whole, part in zip(*seen, strict=True):
        arrived = part.params != 0
        assert 0 < int(arrived.sum()) <= int(0.1 * len(arrived) + 0.5)
        assert torch.equal(part.params[arrived], whole.params[arrived])


def test_without_error_feedback_nothing_is_kept(tmp_path):
    asked = {"name": "topk", "share": 0.1, "feedback": False}
    run = driver(resolve(small("fedavg", compression=asked, rounds=1)), tmp_path)
    run.run()
    assert not any(run.homes.round_saved(client) for client in range(10))


def test_what_was_left_out_of_another_part_of_the_model_is_dropped(tmp_path):
    asked = {"name": "topk", "share": 0.1}
    play(small("lg-fedavg", method__pretrain_rounds=2, rounds=4, compression=asked), tmp_path)
    assert Records(tmp_path).metrics()["failed"].map(len).sum() == 0


def test_all_of_it_is_what_is_sent_without_compression(tmp_path):
    plain = play(small("fedper", rounds=2), tmp_path / "plain")
    whole = play(small("fedper", rounds=2, compression={"name": "topk", "share": 1.0}), tmp_path / "whole")
    read = [Records(tmp_path / name).clients()["test_loss"].to_numpy() for name in ("plain", "whole")]
    assert read[0] == pytest.approx(read[1], rel=1e-4)
    assert plain.keys() == whole.keys()


@pytest.mark.parametrize("method", names())
def test_every_method_that_sends_parameters_sends_fewer_bytes(method, tmp_path):
    asked = resolve(small(method, rounds=2, compression={"name": "quantised", "bits": 8}))
    plain = resolve(small(method, rounds=2))
    shared = driver(plain, tmp_path).method.shared_params.size
    if load(method).also_sends and not shared:
        with pytest.raises(ConfigError, match=f"clients of {method} send .* and no parameters to compress"):
            check_run(asked)
        return
    if method in ENCODES:
        with pytest.raises(ConfigError, match=f"compression.name = quantised: {method} encodes its"):
            check_run(asked)
        return
    check_run(asked)
    bytes_up = []
    for name, run in (("plain", plain), ("asked", asked)):
        play(run.config, tmp_path / name)
        bytes_up.append(Records(tmp_path / name).metrics()["bytes_up"].sum())
    trains_nobody = method in ("local", "centralized")
    assert bytes_up[1] < bytes_up[0] or trains_nobody
