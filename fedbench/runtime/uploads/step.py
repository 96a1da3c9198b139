"""A step on the way of uploads from a client's training to the aggregation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedbench.methods.client import Client
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.uploads.sums import Total

Reference = Callable[[Upload, Message], Tensor | None]
"""What the parameters of an upload would be if its client, which received the message, had changed nothing."""


@dataclass(frozen=True)
class Delivery:
    """How the uploads of a round came to the server.

    round: in which they were trained. received: the message that each client had received. shares: the weights of
    clients whose uploads hosts add up. totals: of the hosts.
    """

    round: int
    received: Mapping[int, Message]
    shares: Mapping[int, float]
    totals: Sequence[Total] = ()


class UploadStep:
    """A step changes uploads at the clients, at the server, or at both; by default it leaves them alone."""

    def at_client(self, upload: Upload, client: Client) -> None:
        """Change the upload of a client before it leaves."""

    def at_server(self, uploads: list[Upload], delivery: Delivery) -> list[Upload]:
        """The uploads of a round, ascending by client, after this step."""
        return uploads
