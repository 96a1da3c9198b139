"""Two methods with traces for a claim; their results equal those of the methods that they extend."""

from itertools import combinations

import torch
from torch import Tensor

from fedbench.methods.client import Client
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.fedcac import sensitivity
from fedbench.methods.local import Local
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


class UpdateAngles(FedAvg):
    """FedAvg that traces the mean angle between the updates of two clients of a round, in degrees."""

    def aggregate(self, server: ServerState, uploads: list[Upload]) -> None:
        if server.traced and len(uploads) > 1:
            updates = [upload.params - server.params for upload in uploads]
            angles = [angle(one, other) for one, other in combinations(updates, 2)]
            server.trace("update_angle", sum(angles) / len(angles))
        super().aggregate(server, uploads)


class HeadSensitivity(Local):
    """Local training that traces the mean sensitivity (eq. 5 of FedCAC) of every class's classifier row."""

    needs = frozenset({"head"})

    def train(self, client: Client, received: Weights) -> Upload:
        upload = super().train(client, received)
        assert upload.trained is not None
        scores = sensitivity(received.params, upload.trained.params)
        slot = next(slot for slot in self.context.layout.params if slot.head and len(slot.shape) == 2)
        rows = slot.view(scores).mean(1)  # [classes]
        for label, value in enumerate(rows.tolist()):
            upload.traces[f"head_sensitivity/{label}"] = value
        return upload


def angle(one: Tensor, other: Tensor) -> float:
    """Angle between two vectors, in degrees."""
    one, other = one.double(), other.double()
    cosine = torch.dot(one, other) / (one.norm() * other.norm())
    return float(torch.rad2deg(torch.arccos(cosine.clamp(-1, 1))))
