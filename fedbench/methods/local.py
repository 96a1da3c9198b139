"""Local training: every client alone, in rounds, so that curves share the axis with the other methods.

Private: everything. Traffic: none. Both evaluation points are the same vector.
"""

from typing import Any, ClassVar

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.methods.base import About, Method, OptionsT
from fedbench.methods.client import PrivateState
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerT
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks


class Local(Method[OptionsT, PrivateState, ServerT]):
    """Every client continues its own training."""

    about = About("every client alone", "baseline")
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedper:extra_private=[body]": {}}

    class Options(Method.Options):
        weighting: ClassVar[Any] = None  # type: ignore[misc] # no option: nothing is averaged
        buffers: ClassVar[Any] = None  # type: ignore[misc] # no option: nothing is sent

    after_fit = "after_agg"

    def private(self, layout: Layout) -> Masks:
        return layout.everything()

    def common_shapes(self) -> list[tuple[int, ...]]:
        return self.shared_shapes()

    @mean_suffices
    def aggregate(self, server: ServerT, uploads: list[Upload]) -> None:
        """Nothing is sent."""
