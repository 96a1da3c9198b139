"""Messages arrive as they were sent: through shared memory, through Ray's store, or along with their order."""

import gc

import pytest
import torch

from fedbench.methods.messages import Message, Upload, zero_bytes
from fedbench.runtime.exchange import ClientTask, Order, Reply, Report
from fedbench.runtime.messages.arena import SMALLEST_SHARED
from fedbench.runtime.messages.channel import DriverEnd, HostEnd, PackedOrder
from fedbench.runtime.uploads.sums import Total

LARGE = torch.arange(5000, dtype=torch.float32)
SMALL = torch.arange(3)


def message(**more: torch.Tensor) -> Message:
    return Message(params=LARGE, counters=zero_bytes(SMALL), **more)


@pytest.fixture(params=["near", "far", "full", "crowded"])
def near(request, monkeypatch):
    """Whether the host sees the arena; in the last two cases it has no memory, or no files, for everything."""
    if request.param == "crowded":
        monkeypatch.setattr("fedbench.runtime.messages.arena.MOST_FILES", 1)
    if request.param == "full":

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("fedbench.runtime.messages.arena.Files._map", full)
    return request.param != "far"


def exchange(driver: DriverEnd, host: HostEnd, order: Order, near: bool, uploads: list[Upload]) -> list[Report]:
    """One round with a host that answers with these uploads."""
    packed, references = driver.pack(order, near)
    opened = host.open(packed, references)
    for sent, arrived in zip(order.tasks, opened.tasks, strict=True):
        for name, tensor in sent.message.tensors.items():
            assert torch.equal(arrived.message.tensors[name], tensor)
            assert arrived.message.tensors[name].dtype == tensor.dtype
        assert arrived.message.sizes == sent.message.sizes
    return arrived_reports(driver, host, packed, uploads)


def arrived_reports(driver: DriverEnd, host: HostEnd, packed: PackedOrder, uploads: list[Upload]) -> list[Report]:
    reports = [Report(upload.client, upload=upload) for upload in uploads]
    for report in reports:
        host.ship(report.upload)
    reply, arrays = host.pack(Reply(reports, 0, 0, 0, 0, 0, 0))
    return driver.open(packed, reply, arrays).reports


def test_there_and_back(near, tmp_path):
    driver, host = DriverEnd(tmp_path, lambda array: array), HostEnd(tmp_path)
    shared = message()
    order = Order(
        1,
        [
            ClientTask(0, shared, train=True),
            ClientTask(1, message(own=LARGE[7:4000]), train=True),
            ClientTask(2, shared),
        ],
    )
    for round in range(3):
        tensors = {
            "params": LARGE + round,
            "bits": torch.ones(SMALLEST_SHARED, dtype=torch.uint8),
            "matrix": LARGE.double().view(50, 100).T,
            "counters": SMALL,
        }
        driver.begin_exchange()
        sent = [Upload(client, client + 3, **tensors) for client in range(2)]
        for report in exchange(driver, host, order, near, sent):
            assert report.upload.samples == report.client + 3
            assert list(report.upload.tensors) == list(tensors)
            for name, tensor in tensors.items():
                assert torch.equal(report.upload.tensors[name], tensor)
                report.upload.tensors[name].zero_()  # the server's own


def test_a_total_lies_in_shared_memory_too(near, tmp_path):
    driver, host = DriverEnd(tmp_path, lambda array: array), HostEnd(tmp_path)
    order = Order(1, [ClientTask(client, message(), train=True, share=0.5) for client in range(2)])
    for round in range(3):
        driver.begin_exchange()
        packed, references = driver.pack(order, near)
        host.open(packed, references)
        total = Total()
        total.take([Upload(client, 1, params=LARGE / 100 + round, counters=SMALL) for client in range(2)], [0.5, 0.5])
        expected = dict(total.message.tensors)
        host.ship(total.message)
        reply, arrays = host.pack(Reply([], 0, 0, 0, 0, 0, 0, total=total))
        if packed.files and any(tmp_path.iterdir()):
            assert sum(array.nbytes for array in arrays) < SMALLEST_SHARED
        arrived = driver.open(packed, reply, arrays).total
        assert arrived.message.tensors.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in arrived.message.tensors.items())


def test_what_is_kept_is_not_written_over_and_what_is_not_is_used_again(tmp_path):
    driver, host = DriverEnd(tmp_path, pytest.fail), HostEnd(tmp_path)
    order = Order(1, [ClientTask(client, message(), train=True) for client in range(2)])
    kept: list[torch.Tensor] = []
    for round in range(6):
        driver.begin_exchange()
        uploads = [Upload(client, 1, params=LARGE + 10 * round + client) for client in range(2)]
        reports = exchange(driver, host, order, True, uploads)
        kept = [*kept[-2:], *(report.upload.params[5:9] for report in reports)]
        expected = [5 + 10 * r + client for r in (round - 1, round) for client in range(2)]
        assert [int(tensor[0]) for tensor in kept] == expected[-len(kept) :]
    del reports, uploads
    gc.collect()
    assert len(list(tmp_path.iterdir())) <= 2 + 2 * 3  # two downloads; uploads of two rounds kept and one under way


def test_a_row_that_lies_in_shared_memory_already_is_not_copied(tmp_path):
    driver, host = DriverEnd(tmp_path, pytest.fail), HostEnd(tmp_path)
    (report,) = exchange(
        driver, host, Order(1, [ClientTask(0, message(), train=True)]), True, [Upload(0, 1, params=LARGE)]
    )
    row = report.upload.params
    files = len(list(tmp_path.iterdir()))
    driver.begin_exchange()
    packed, _ = driver.pack(Order(2, [ClientTask(0, Message(params=row))]), True)
    row[3] = -1
    assert host.open(packed, []).tasks[0].message.params[3] == -1
    assert len(list(tmp_path.iterdir())) == files


def test_what_the_server_allocates_to_be_sent_is_in_memory_once(tmp_path):
    driver, host = DriverEnd(tmp_path, pytest.fail), HostEnd(tmp_path)
    rows = [driver.empty_like(LARGE).fill_(client) for client in range(2)]
    assert all(row.shape == LARGE.shape and row.dtype == LARGE.dtype for row in rows)
    for round in range(2):
        rows[0][3] = round
        packed, _ = driver.pack(
            Order(1, [ClientTask(client, Message(params=row)) for client, row in enumerate(rows)]), True
        )
        own, other = (task.message.params for task in host.open(packed, []).tasks)
        assert torch.equal(own, rows[0])
        assert torch.equal(other, rows[1])
        assert len(list(tmp_path.iterdir())) == 2
        driver.begin_exchange()


def test_small_tensors_and_those_without_room_are_allocated_in_ordinary_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.runtime.messages.arena.MOST_FILES", 1)
    driver = DriverEnd(tmp_path, pytest.fail)
    made = [driver.empty_like(tensor) for tensor in (SMALL, LARGE, LARGE)]
    assert [tensor.shape for tensor in made] == [SMALL.shape, LARGE.shape, LARGE.shape]
    assert made[0].dtype == SMALL.dtype
    made[1][:], made[2][:] = 1, 2
    assert torch.all(made[1] == 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_order_whose_host_died_gives_its_files_back(tmp_path):
    driver = DriverEnd(tmp_path, pytest.fail)
    order = Order(1, [ClientTask(0, message(), train=True)])
    first, _ = driver.pack(order, True)
    driver.release(first)
    again, _ = driver.pack(order, True)
    assert again.files == first.files


def test_a_client_that_failed_leaves_its_file_free(tmp_path):
    driver, host = DriverEnd(tmp_path, pytest.fail), HostEnd(tmp_path)
    order = Order(1, [ClientTask(0, Message(), train=True)])
    assert exchange(driver, host, order, True, []) == []
    assert driver.pack(order, True)[0].files == [0]
