"""FedBN: federated averaging but for normalisation layers (Li, Jiang, Zhang, Kamp, Dou; ICLR 2021).

Private: parameters, running statistics and counters of BatchNorm layers, as in the authors' code; the paper names the
parameters only. Up and down: the rest.

Where we decide:
- Layers are found by type. The authors' code asks for 'bn' in the name and misses the shortcuts of the usual resnet.
- GroupNorm, LayerNorm and InstanceNorm are outside the paper and shared, unless `norm_types=all`.
- Clients are weighted by images, as in FedAvg and the paper's text, so that only the layers differ from it; its
  Algorithm 1 averages uniformly.
- A client that never trained has the initial layers; the trace `untrained` counts such clients.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.methods.base import Method, Server, Upload


class FedBN(Method):
    """Every client keeps its own normalisation layers."""

    class Options(Method.Options):
        private: Literal["all", "stats", "none"] = Field(
            "all", description="of normalisation layers: all, the running statistics only, or nothing (fedavg)"
        )
        norm_types: Literal["batch", "all"] = Field(
            "batch", description="BatchNorm layers, or every kind of normalisation layer"
        )

    def check(self) -> None:
        if self.options.buffers != "average":
            raise ConfigError("method.buffers = 'private': fedbn names it method.private = stats")

    def warnings(self) -> list[str]:
        params, buffers = self._norm(self.context.layout)
        if params.any() or buffers.any():
            return []
        kind = "BatchNorm" if self.options.norm_types == "batch" else "normalisation"
        return [f"fedbn: the model has no {kind} layer with numbers of its own, so this is fedavg"]

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = self._norm(layout)
        return params & (self.options.private == "all"), buffers & (self.options.private != "none")

    def _norm(self, layout: Layout) -> tuple[Tensor, Tensor]:
        if self.options.norm_types == "all":
            return layout.mask("any_norm"), layout.buffer_mask("any_norm")
        return layout.mask("norm"), layout.buffer_mask("norm")

    def open(self, server: Server) -> None:
        super().open(server)
        server.trained = {}

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        server.trained.update({upload.client: True for upload in uploads})

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        if not (self.own.size or self.own_buffers.size):
            return {}
        return {(-1, "untrained"): float(self.context.clients - len(server.trained))}
