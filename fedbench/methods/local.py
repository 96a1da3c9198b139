"""Local training: every client alone, in rounds, so that curves share the axis with the other methods.

Private: everything. Traffic: none. Both evaluation points are the same vector.
"""

import torch
from torch import Tensor

from fedbench.learner.layout import Layout
from fedbench.methods.base import Method, Server


class Local(Method):
    """Every client trains on from where it stopped; `weighting` and `buffers` have no effect."""

    after_fit = "after_agg"

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        return torch.ones(layout.size, dtype=torch.bool), torch.ones(layout.buffer_size, dtype=torch.bool)

    def global_weights(self, server: Server) -> None:
        return None
