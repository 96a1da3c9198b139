"""Sends from a host uploads by themselves, or their sum."""

from collections.abc import Callable

import torch

from fedbench.errors import ConfigError, first_line
from fedbench.methods.client import Client
from fedbench.methods.messages import Message, Upload
from fedbench.runtime.machine.gpu import GpuFullError
from fedbench.runtime.messages.transfer import on_cpu
from fedbench.runtime.uploads.sums import Total

ADD_BYTES = {"cpu": 0, "cuda": 32 << 20}
"""Bytes of uploads that are added up at once, by device."""


class Outbox:
    """The uploads of one exchange.

    ship: called with every upload, and with their total: it may put what stands for a tensor in its place.
    """

    def __init__(self, ship: Callable[[Message], None], device: torch.device) -> None:
        self.total = Total()
        self._ship, self._device = ship, device
        self._pending: list[tuple[Upload, float]] = []
        """Uploads that are not yet in the total, and their shares."""
        self._pending_bytes = 0

    def put(self, upload: Upload, client: Client, share: float | None) -> None:
        """Send an upload of a client, or add it to the total with its share, on a GPU several at once."""
        if share is None:
            self._send(upload)
            return
        if upload.samples != client.samples:
            raise ConfigError(
                f"the upload of client {client.id} reports {upload.samples} samples of {client.samples}, but hosts "
                "weight uploads before: override aggregate in the method's class, without @mean_suffices"
            )
        self._pending.append((upload, share))
        self._pending_bytes += sum(tensor.nbytes for tensor in upload.tensors.values())
        if self._pending_bytes >= ADD_BYTES[self._device.type]:
            self._add_pending()

    def close(self) -> Total:
        """Send the total of all."""
        self._add_pending()
        if self.total.message.tensors:
            self._ship(self.total.message)
        return self.total

    def _add_pending(self) -> None:
        """Add the uploads up that wait for it. An error ends the run: it is not that of the client whose turn it is."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not pending:
            return
        self.total.take([upload for upload, _ in pending], [share for _, share in pending])
        try:
            for upload, _ in pending:
                self._send(upload)
        except Exception as error:
            raise GpuFullError.behind(error) or ConfigError(f"uploads cannot be sent: {first_line(error)}") from error

    def _send(self, upload: Upload) -> None:
        """Send what is left of an upload."""
        if upload.tensors:
            self._ship(upload)
            on_cpu(upload)
