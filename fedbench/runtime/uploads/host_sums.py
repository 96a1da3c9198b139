"""Hosts add up the uploads of large rounds, and the server puts their totals together."""

from collections.abc import Sequence

from fedbench.methods.base import Method
from fedbench.methods.contract import server_hook
from fedbench.methods.messages import Upload
from fedbench.runtime.uploads.step import Delivery, UploadStep
from fedbench.runtime.uploads.sums import merged_uploads, upload_shares


class HostSums(UploadStep):
    """The server's half; that of hosts is `Outbox`. is_open: false where the server must see every upload."""

    def __init__(self, method: Method, is_open: bool = True) -> None:
        self.method, self.is_open = method, is_open

    def shares(self, arriving: Sequence[int], device: str) -> dict[int, float]:
        """The weights of these clients' uploads in the sums of hosts on a device; empty if hosts add nothing up."""
        with server_hook(self.method, "weights"):
            return upload_shares(self.method, arriving, device) if self.is_open else {}

    def at_server(self, uploads: list[Upload], delivery: Delivery) -> list[Upload]:
        """One upload for all, if hosts added them up."""
        return merged_uploads(uploads, delivery.totals, delivery.shares)
