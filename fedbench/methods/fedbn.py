"""FedBN: federated averaging but for normalisation layers (Li, Jiang, Zhang, Kamp, Dou; ICLR 2021).

Private: parameters, running statistics and counters of BatchNorm layers, as in the authors' code; the paper names the
parameters only. Up and down: the rest.

Where we decide:
- Layers are found by type. The authors' code looks for 'bn' in names and misses the shortcuts of the usual resnet.
- GroupNorm, LayerNorm and InstanceNorm are outside the paper and shared, unless `norm_types=all`.
- Clients are weighted by images, as in FedAvg and the paper's text, so that only the layers differ from it; its
  Algorithm 1 averages uniformly.
- A client that never trained has the initial layers; the trace `untrained` counts such clients.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.methods.base import About, Method, uses_aggregator
from fedbench.methods.client import PrivateState
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks


class FedBN(Method["FedBN.Options", PrivateState, "FedBN.Server"]):
    """Every client keeps its own normalisation layers."""

    about = About("normalisation layers stay private", "parameter decoupling", "Li et al., ICLR", 2021)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.private": "none"}}

    class Options(Method.Options):
        buffers: ClassVar[Any] = None  # type: ignore[misc] # private says what becomes of them
        private: Literal["all", "stats", "none"] = Field(
            "all", description="of normalisation layers: all, the running statistics only, or nothing (fedavg)"
        )
        norm_types: Literal["batch", "all"] = Field(
            "batch", description="BatchNorm layers, or every kind of normalisation layer"
        )

    @dataclass
    class Server(ServerState):
        trained: list[int] = field(default_factory=list)

    def check(self) -> Iterator[str]:
        norm = self._norm(self.context.layout)
        if not (norm.params.any() or norm.buffers.any()):
            kind = "BatchNorm" if self.options.norm_types == "batch" else "normalisation"
            yield f"fedbn: the model has no {kind} layer with numbers of its own, so this is fedavg"

    def private(self, layout: Layout) -> Masks:
        norm, private = self._norm(layout), self.options.private
        return Masks(norm.params & (private == "all"), norm.buffers & (private != "none"))

    def _norm(self, layout: Layout) -> Masks:
        return layout.masks("any_norm" if self.options.norm_types == "all" else "norm")

    @uses_aggregator
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        server.trained = sorted({*server.trained, *(upload.client for upload in uploads)})
        if self.private_params.size or self.private_buffers.size:
            server.trace("untrained", self.context.clients - len(server.trained))
