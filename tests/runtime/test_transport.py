"""Messages arrive as they were sent: through shared memory, through Ray's store, or along with their order."""

import gc
import os
from pathlib import Path

import pytest
import torch

from fedbench.methods.base import Message, Upload
from fedbench.runtime.arena import LEAST, Arena, Files, Place
from fedbench.runtime.host import Order, Reply, Report, Task
from fedbench.runtime.transport import KeptReports, Mailbox, Packet, Post

LARGE = torch.arange(5000, dtype=torch.float32)
SMALL = torch.arange(3)


def message(**more: torch.Tensor) -> Message:
    return Message({"params": LARGE, "counters": SMALL, **more}, {"counters": 0}, charge=7)


@pytest.fixture(params=["near", "far", "full"])
def near(request, monkeypatch):
    """Whether the host sees the arena; in the third case nothing fits in there any more."""
    if request.param == "full":

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("fedbench.runtime.arena.Files._map", full)
    return request.param != "far"


def exchange(post: Post, mailbox: Mailbox, order: Order, near: bool, uploads: list[Upload]) -> list[Report]:
    """One round with a host that answers with these uploads."""
    packet, references = post.packet(order, near)
    opened = mailbox.opened(packet, references)
    for sent, arrived in zip(order.tasks, opened.tasks, strict=True):
        for name, tensor in sent.download.tensors.items():
            assert torch.equal(arrived.download.tensors[name], tensor)
            assert arrived.download.tensors[name].dtype == tensor.dtype
        assert (arrived.download.bits, arrived.download.charge) == (sent.download.bits, sent.download.charge)
    return arrived_reports(post, mailbox, packet, uploads)


def arrived_reports(post: Post, mailbox: Mailbox, packet: Packet, uploads: list[Upload]) -> list[Report]:
    reports = [Report(upload.client, upload=upload) for upload in uploads]
    for report in reports:
        mailbox.ship(report)
    reply, arrays = mailbox.packed(Reply(reports, 0, 0, 0, 0, 0))
    return post.unpacked(packet, reply, arrays).reports


def test_there_and_back(near, tmp_path):
    post, mailbox = Post(tmp_path, lambda array: array), Mailbox(tmp_path)
    shared = message()
    order = Order(1, [Task(0, shared, fit=True), Task(1, message(own=LARGE[7:4000]), fit=True), Task(2, shared)])
    for round in range(3):
        tensors = {
            "params": LARGE + round,
            "bits": torch.ones(LEAST, dtype=torch.uint8),
            "matrix": LARGE.double().view(50, 100).T,
            "counters": SMALL,
        }
        post.begin_round()
        sent = [Upload(dict(tensors), client=client, samples=client + 3) for client in range(2)]
        for report in exchange(post, mailbox, order, near, sent):
            assert report.upload.samples == report.client + 3
            assert list(report.upload.tensors) == list(tensors)
            for name, tensor in tensors.items():
                assert torch.equal(report.upload.tensors[name], tensor)
                report.upload.tensors[name].zero_()  # the server's own


def test_what_is_kept_is_not_written_over_and_what_is_not_is_used_again(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    order = Order(1, [Task(client, message(), fit=True) for client in range(2)])
    kept: list[torch.Tensor] = []
    for round in range(6):
        post.begin_round()
        uploads = [Upload({"params": LARGE + 10 * round + client}, client=client) for client in range(2)]
        reports = exchange(post, mailbox, order, True, uploads)
        kept = [*kept[-2:], *(report.upload.params[5:9] for report in reports)]
        expected = [5 + 10 * r + client for r in (round - 1, round) for client in range(2)]
        assert [int(tensor[0]) for tensor in kept] == expected[-len(kept) :]
    del reports, uploads
    gc.collect()
    assert len(list(tmp_path.iterdir())) <= 2 + 2 * 3  # two downloads; uploads of two rounds kept and one under way


def test_a_row_that_lies_in_shared_memory_already_is_not_copied(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    (report,) = exchange(post, mailbox, Order(1, [Task(0, message(), fit=True)]), True, [Upload({"params": LARGE})])
    row = report.upload.params
    files = len(list(tmp_path.iterdir()))
    post.begin_round()
    packet, _ = post.packet(Order(2, [Task(0, Message({"params": row}))]), True)
    row[3] = -1
    assert mailbox.opened(packet, []).tasks[0].download.params[3] == -1
    assert len(list(tmp_path.iterdir())) == files


def test_a_file_grows_with_what_is_written_to_it(tmp_path):
    files = Files(tmp_path)
    for size in (LEAST, 3 * LEAST, LEAST):
        tensors = [torch.full((size,), 1.5), torch.arange(size)]
        places = files.write(0, tensors)
        assert all(torch.equal(files.read(place), tensor) for place, tensor in zip(places, tensors, strict=True))
    assert len(list(tmp_path.iterdir())) == 1


def test_an_order_whose_host_died_gives_its_files_back(tmp_path):
    post = Post(tmp_path, pytest.fail)
    order = Order(1, [Task(0, message(), fit=True)])
    first, _ = post.packet(order, True)
    assert post.rescued(first) == []
    again, _ = post.packet(order, True)
    assert again.files == first.files


def test_a_client_that_failed_leaves_its_file_free(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    order = Order(1, [Task(0, Message(), fit=True)])
    assert exchange(post, mailbox, order, True, []) == []
    assert post.packet(order, True)[0].files == [0]


def rows_of(post: Post, mailbox: Mailbox, clients: int) -> dict[int, torch.Tensor]:
    """Uploads of a first round: vectors that lie in shared memory."""
    order = Order(1, [Task(client, message(), fit=True) for client in range(clients)])
    uploads = [Upload({"params": LARGE + client, "counters": SMALL}, client=client) for client in range(clients)]
    rows = {r.client: r.upload.params for r in exchange(post, mailbox, order, True, uploads)}
    post.begin_round()
    return rows


def giving(rows: dict[int, torch.Tensor], round: int) -> Order:
    """Sends everybody the own row, which the server half does not need any more."""
    return Order(round, [Task(c, Message({"params": row}, given=["params"]), fit=True) for c, row in rows.items()])


def test_uploads_take_the_place_of_what_was_given_away(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    rows = rows_of(post, mailbox, 5)
    for round in range(2, 6):
        post.begin_round()
        order = giving(rows, round)
        uploads = [Upload({"params": LARGE * round + c, "counters": SMALL + c}, client=c) for c in rows]
        for report in exchange(post, mailbox, order, True, uploads):
            rows[report.client] = report.upload.params
            assert report.upload.counters.tolist() == [report.client, report.client + 1, report.client + 2]
        assert all(torch.equal(row, LARGE * round + c) for c, row in rows.items())
    del order, uploads, report
    assert len(arena_files(tmp_path)) == 5 + 1  # one to begin a round with, before that the first download


def test_what_a_client_was_given_stays_while_it_has_sent_nothing(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    rows = rows_of(post, mailbox, 4)
    found = exchange(post, mailbox, giving(rows, 2), True, [Upload({"params": -LARGE}, client=c) for c in (0, 2)])
    assert all(torch.equal(report.upload.params, -LARGE) for report in found)
    assert all(torch.equal(rows[c], LARGE + c) for c in (1, 3))
    later = [post.packet(Order(3, [Task(c, message(), fit=True)]), True)[0].files for c in range(9)]
    assert not {file for files in later for file in files} & {place.file for place in places_of(post, rows, found)}


def test_what_cannot_be_done_again_is_rescued_from_a_host_that_died(tmp_path):
    post, dead = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    rows = rows_of(post, dead, 4)
    order = giving(rows, 2)
    packet, references = post.packet(order, True)
    dead.opened(packet, references)
    for client in (0, 1):
        upload = Upload({"params": LARGE / 7 + client, "counters": SMALL}, client=client, traces={"t": client})
        dead.ship(Report(client, upload=upload, loss=float(client), steps=3))
    dead._files.write(dead._free[-1], [torch.zeros(5000)])  # the third upload was under way
    rescued = post.rescued(packet)
    assert [(r.client, r.loss, r.steps, r.upload.traces) for r in rescued] == [(c, c, 3, {"t": c}) for c in (0, 1)]
    left = giving({c: rows[c] for c in (2, 3)}, 2)
    others = exchange(post, Mailbox(tmp_path), left, True, [Upload({"params": -LARGE - c}, client=c) for c in (2, 3)])
    for report in rescued:
        assert torch.equal(report.upload.params, LARGE / 7 + report.client)
        assert torch.equal(report.upload.counters, SMALL)
    for report in others:
        assert torch.equal(report.upload.params, -LARGE - report.client)
    packet, _ = post.packet(giving({r.client: r.upload.params for r in [*rescued, *others]}, 3), True)
    assert post.rescued(packet) == []  # the reports of the round before are there still


def test_a_report_that_was_not_written_to_the_end_is_none(tmp_path, monkeypatch):
    kept, write, parts = KeptReports(tmp_path), os.pwrite, iter(range(9))
    old, new = (Report(3, upload=Upload({"params": torch.full((n,), float(n))}, client=3)) for n in (40, 20))

    def dies(*what):
        if next(parts) >= written:
            raise KeyboardInterrupt
        return write(*what)

    for written in range(3):
        monkeypatch.setattr("fedbench.runtime.transport.os.pwrite", write)
        assert kept.write(old, 2)
        assert torch.equal(kept.read(3, 2).upload.params, old.upload.params)
        parts = iter(range(9))
        monkeypatch.setattr("fedbench.runtime.transport.os.pwrite", dies)
        with pytest.raises(KeyboardInterrupt):
            kept.write(new, 2)  # a second time in this round, after its host died
        assert (kept.read(3, 2) is None) == (written > 0)
    monkeypatch.setattr("fedbench.runtime.transport.os.pwrite", write)
    assert kept.write(new, 3)
    assert kept.read(3, 2) is None
    assert torch.equal(kept.read(3, 3).upload.params, new.upload.params)
    monkeypatch.setattr("fedbench.runtime.transport.os.pwrite", lambda file, part, place: len(part) - 1)
    assert not kept.write(old, 4)  # a part, where the disk is full


def test_a_file_with_more_in_it_than_what_is_given_is_left_alone(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    order = Order(1, [Task(client, message(), fit=True) for client in range(3)])
    first = [Upload({"params": LARGE + c, "control": LARGE / 2 - c}, client=c) for c in range(3)]
    kept = {r.client: r.upload for r in exchange(post, mailbox, order, True, first)}
    post.begin_round()
    uploads = [Upload({"params": -LARGE, "control": LARGE}, client=client) for client in range(3)]
    exchange(post, mailbox, giving({c: upload.params for c, upload in kept.items()}, 2), True, uploads)
    assert all(torch.equal(upload.control, LARGE / 2 - client) for client, upload in kept.items())


def test_a_small_part_of_what_was_given_may_be_sent_back(tmp_path):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    packet, references = post.packet(giving(rows_of(post, mailbox, 3), 2), True)
    tasks = mailbox.opened(packet, references).tasks
    reports = [
        Report(t.client, upload=Upload({"params": -LARGE, "part": t.download.params[1:4]}, client=t.client))
        for t in tasks
    ]
    for report in reports:
        mailbox.ship(report)
    reply, arrays = mailbox.packed(Reply(reports, 0, 0, 0, 0, 0))
    for report in post.unpacked(packet, reply, arrays).reports:
        assert torch.equal(report.upload.part, LARGE[1:4] + report.client)


def test_without_room_for_its_report_a_fit_can_be_done_again(tmp_path, monkeypatch):
    post, mailbox = Post(tmp_path, pytest.fail), Mailbox(tmp_path)
    rows = rows_of(post, mailbox, 3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedbench.runtime.transport.os.pwrite", full)
    uploads = [Upload({"params": -LARGE - client}, client=client) for client in rows]
    for report in exchange(post, mailbox, giving(rows, 2), True, uploads):
        assert torch.equal(report.upload.params, -LARGE - report.client)
    assert all(torch.equal(row, LARGE + client) for client, row in rows.items())


def arena_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()]


def places_of(post: Post, rows: dict[int, torch.Tensor], found: list[Report]) -> list[Place]:
    """Where tensors that are still read lie."""
    return [post._arena.store(tensor)[0] for tensor in (*rows.values(), *(r.upload.params for r in found))]


def test_an_arena_knows_its_own_tensors_only(tmp_path):
    arena = Arena(tmp_path)
    place, kept = arena.store(LARGE)
    assert arena.store(kept)[0] == place
    assert arena.store(kept[10:])[0] == Place(place.file, place.offset + 40, (4990,), torch.float32)
    for stranger in (kept.clone(), kept[::2]):
        assert arena.store(stranger)[0].file != place.file
