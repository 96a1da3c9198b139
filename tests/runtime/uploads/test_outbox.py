"""Uploads that leave a host by themselves, or as a sum."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedbench.errors import ConfigError
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.uploads.outbox import Outbox
from fedbench.runtime.uploads.sums import merged_uploads


def client(number: int, samples: int = 5) -> Any:
    return SimpleNamespace(id=number, samples=samples)


def upload(number: int) -> Upload:
    return Upload(number, 5, params=torch.full((2,), float(number)))


def test_an_upload_without_a_share_is_shipped_as_it_is():
    shipped: list[Message] = []
    outbox, own = Outbox(shipped.append, torch.device("cpu")), upload(3)
    outbox.put(own, client(3), None)
    assert shipped == [own]
    assert not outbox.close().message.tensors
    assert shipped == [own]


def test_the_total_is_shipped_in_place_of_uploads_with_shares():
    shipped: list[Message] = []
    outbox, uploads = Outbox(shipped.append, torch.device("cpu")), [upload(1), upload(3)]
    for own in uploads:
        outbox.put(own, client(own.client), 0.5)
    total = outbox.close()
    assert shipped == [total.message]
    assert not any(own.tensors for own in uploads)
    (mean,) = merged_uploads(uploads, [total], {1: 0.5, 3: 0.5})
    assert mean.params.tolist() == [2, 2]


def test_another_number_of_samples_than_the_one_of_its_share_is_refused():
    with pytest.raises(ConfigError, match="upload of client 3 reports 5 samples of 6"):
        Outbox(lambda message: None, torch.device("cpu")).put(upload(3), client(3, samples=6), 0.5)


def test_what_cannot_be_shipped_ends_the_run():
    def refuse(message: Message) -> None:
        raise OSError("no room")

    outbox, own = Outbox(refuse, torch.device("cpu")), upload(1)
    own.add(count=torch.tensor([1e9]))  # too large for a sum, so it stays in its upload
    with pytest.raises(ConfigError, match=r"uploads cannot be sent: .*no room"):
        outbox.put(own, client(1), 0.5)
