"""Captured steps: the bits of the loop for any number of clients at a time. On a CPU, a replay repeats the step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedbench.engine.graph as graph
from fedbench.config import TrainConfig
from fedbench.data.augmentation import Augmentation
from fedbench.data.split import Split
from fedbench.engine.cursor import Batch
from fedbench.engine.fit import Fit, Step
from fedbench.engine.graph import CapturedStep, Feed, fill_feeds
from fedbench.engine.learner import Learner, engine_on
from fedbench.engine.row_engine import MOST_KINDS
from tests.engine.test_compiled import (
    NAMES,
    There,
    assert_needs_are_same,
    assert_same,
    fits,
    learner_of,
    normed,
    trained,
)

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")]
on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])


class Repeats:
    """In place of a stream where no GPU is: a replay does the work again. captures: how often work was captured."""

    captures = 0

    def __init__(self, device: torch.device) -> None:
        pass

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    without_waiting = active

    def follow(self) -> None:
        pass

    lead = follow

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        type(self).captures += 1
        return work


@pytest.fixture(autouse=True)
def streams(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if "cuda" not in request.node.name:
        monkeypatch.setattr(graph, "GraphStream", type("Counted", (Repeats,), {}))
        monkeypatch.setattr("fedbench.engine.learner.engine_on", lambda device, engine: engine)


def pair(net: Any, device: str, width: int = 3, **train: Any) -> tuple[Learner, Learner]:
    return learner_of(net, "loop", device=device, **train), learner_of(net, "graph", width, device, **train)


def on(device: str, blobs: Callable) -> Callable:
    return lambda *args, **more: There(blobs(*args, **more), device) if device != "cpu" else blobs(*args, **more)


@on_every_device
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    "name", NAMES if not torch.cuda.is_available() else [n for n in NAMES if n not in ("rows", "one batch")]
)
def test_a_replay_is_the_loop_to_the_bit(name, width, device, net, blobs):
    loop, other = pair(net, device, width)
    for _ in range(2):  # the second time on graphs that were captured before
        asked, again = fits(name, loop, on(device, blobs)), fits(name, other, on(device, blobs))
        (a, costs), (b, same_costs) = trained(loop, asked), trained(other, again)
        assert not other.row_engine.remarks
        for one, same in zip(a, b, strict=True):
            assert_same(one, same)
        for one, same in zip(costs, same_costs, strict=True):
            assert (one.loss, one.steps, one.logged) == (same.loss, same.steps, same.logged)
        for one, same in zip(asked, again, strict=True):
            assert_needs_are_same(one, same)


@on_every_device
@pytest.mark.parametrize("name", ["plain", "head", "resting norm", "edit"])
def test_running_statistics_are_each_clients_own(name, device, net, blobs):
    loop, other = pair(normed(net), device)
    for a, b in zip(*(trained(own, fits(name, own, on(device, blobs)))[0] for own in (loop, other)), strict=True):
        assert_same(a, b)
    assert not other.row_engine.remarks


@on_every_device
def test_a_rate_that_decays_and_a_longer_fit_need_no_new_capture(device, net, blobs):
    loop, other = pair(net, device, 1, epochs=1)
    data = on(device, blobs)(600, key=(0, 1, 1))  # more batches than a feed has room for
    for decay in (1.0, 0.5):
        asked = [Fit(loop.initial(), data, step=Step(decay=decay))]
        assert_same(*(trained(own, asked)[0][0] for own in (loop, other)))
    (group,) = other.engine._groups.values()
    assert len(group._steps) == 1


@on_every_device
def test_precision_is_the_loops(device, net, blobs):
    loop, other = pair(net, device, precision="bf16-mixed")
    for a, b in zip(*(trained(own, fits("plain", own, on(device, blobs)))[0] for own in (loop, other)), strict=True):
        assert_same(a, b)
    assert not other.row_engine.remarks


@on_every_device
def test_images_are_augmented_as_in_the_loop(device, conv_net):
    class Plain(conv_net):
        def training_step(self, batch: Any) -> Tensor:
            return F.cross_entropy(self.head(batch[0][:, 0, 0, :1].repeat(1, self.head.in_features)), batch[1])

    stream = torch.Generator().manual_seed(0)
    samples = torch.randint(0, 256, (40, 2, 6, 6), dtype=torch.uint8, generator=stream).to(device)
    targets = (torch.arange(40) % 3).to(device)
    factors = (torch.full((2, 1, 1), 0.01, device=device), torch.zeros(2, 1, 1, device=device))
    change = Augmentation(["flip", "crop"], padding=1)
    rows = torch.arange(3, 38, device=device)
    data = Split(samples, rows, targets[rows], factors, (0, 1, 1), torch.channels_last, augmentation=change)
    found = [trained(own, [Fit(own.initial(), data)])[0][0] for own in pair(Plain, device)]
    assert_same(*found)


def test_what_the_module_logs_is_the_loops(net, blobs):
    def step(self: Any, batch: Any) -> Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("twice", 2 * loss)
        self.log_dict({"most": loss}, reduce_fx="max")
        return loss

    loop, other = pair(type("Talks", (net,), {"training_step": step}), "cpu", epochs=3)
    a, b = (trained(own, fits("plain", own, blobs))[1] for own in (loop, other))
    for one, same in zip(a, b, strict=True):
        assert one.logged.keys() == {"twice", "most"}
        assert one.logged == same.logged


def test_a_rare_size_is_not_captured(net, blobs):
    loop, other = pair(net, "cpu", 1, epochs=1)
    asked = lambda own, n: [Fit(own.initial(), blobs(n, key=(n,)))]  # noqa: E731
    for n in (33, 37):  # four batches of 8, and one or five images at the end
        assert_same(*(trained(own, asked(own, n))[0][0] for own in (loop, other)))
    (group,) = other.engine._groups.values()
    assert {size for _, size in group._steps} == {(8,)}


def test_graphs_of_old_kinds_are_dropped(net, blobs):
    _, other = pair(net, "cpu", 1)
    for number in range(MOST_KINDS + 3):
        trained(other, [Fit(other.initial(), blobs(20), step=Step(scaled_by[number]))])
    assert len(other.engine._groups) == MOST_KINDS


scaled_by = [eval(f"lambda g, w, s: g.mul_({number + 1})") for number in range(MOST_KINDS + 3)]


def test_a_replay_with_other_bits_is_not_used(net, blobs, monkeypatch):
    tried = []

    def capture(self: Any, work: Callable[[], None]) -> Callable[[], None]:
        tried.append(work)
        return lambda: None

    loop, other = pair(net, "cpu")
    monkeypatch.setattr(graph.GraphStream, "capture", capture)
    for a, b in zip(*(trained(own, fits("plain", own, blobs))[0] for own in (loop, other)), strict=True):
        assert_same(a, b)
    (line,) = other.row_engine.remarks
    assert line == (
        "train.engine = graph: fits are done one client after another: a replay of its step gives other bits than the "
        "step"
    )
    trained(other, fits("plain", other, blobs))
    assert len(tried) == 1, "what cannot be captured is not tried in every round"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
def test_a_step_that_waits_for_the_gpu_on_cuda_is_the_loops(net, blobs):
    class Asks(net):
        def training_step(self, batch: Any) -> Tensor:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            return loss * 2 if loss.item() > 1 else loss

    loop, other = pair(Asks, "cuda")
    for a, b in zip(*(trained(own, fits("plain", own, on("cuda", blobs)))[0] for own in (loop, other)), strict=True):
        assert_same(a, b)
    (line,) = other.row_engine.remarks
    assert "its step cannot be captured" in line


@on_every_device
def test_a_client_that_fails_leaves_the_others_alone(device, net, blobs):
    _, other = pair(net, device)
    asked = lambda: fits("plain", other, on(device, blobs))[:3]  # noqa: E731
    expected = trained(other, asked())[0]
    broken = asked()
    broken[1].data.batch = None
    found, _ = trained(other, broken)
    assert [type(one).__name__ for one in found] == ["Weights", "TypeError", "Weights"]
    assert_same(found[2], expected[2])
    assert_same(trained(other, asked())[0][1], expected[1])


def test_a_feed_gives_batches_in_order_and_in_their_layout():
    batches = [torch.rand(4, 2, 3, 3).to(memory_format=torch.channels_last) for _ in range(5)]
    index = torch.arange(20).view(5, 4)
    feed = Feed(Batch(index[0], [batches[0], index[0]]))
    fill_feeds([feed], [5], Batch(index, [torch.stack(batches), index]))
    for number, x in enumerate(batches):
        batch = feed.current()
        assert torch.equal(batch.index, index[number])
        assert torch.equal(batch.tensors[0], x)
        assert batch.tensors[0].stride() == x.stride()
        feed.note([torch.tensor(float(number))])
        feed.at.add_(1)
    assert [float(row) for row in CapturedStep(feed, lambda: None, filled=5).logs()] == [0, 1, 2, 3, 4]


def test_the_engine_is_chosen_by_the_device():
    assert {where: engine_on(torch.device(where), "auto") for where in ("cpu", "cuda")} == {
        "cpu": "loop",
        "cuda": "graph",
    }
    assert engine_on(torch.device("cuda"), "loop") == "loop"
    assert TrainConfig().engine == "auto"


@on_every_device
@pytest.mark.parametrize("name", ["plain", "masked", "edit"])
def test_clipped_steps_are_replayed(name, device, net, blobs):
    loop, other = pair(net, device, clip_norm=0.3)
    for a, b in zip(*(trained(own, fits(name, own, on(device, blobs)))[0] for own in (loop, other)), strict=True):
        assert_same(a, b)
    assert not other.row_engine.remarks
