"""A step has the half that it overrides."""

import torch

from fedbench.methods.messages import Message, Upload
from fedbench.runtime.uploads.step import Delivery, UploadStep


def test_a_step_without_a_server_half_leaves_uploads_alone():
    uploads = [Upload(client, 1, params=torch.ones(2)) for client in range(3)]
    delivery = Delivery(1, {client: Message() for client in range(3)}, {})
    assert UploadStep().at_server(uploads, delivery) is uploads
    assert all(upload.params.tolist() == [1, 1] for upload in uploads)
