"""The coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett; ICML 2018, definition 2 and Algorithm 1)."""

from collections.abc import Iterator, Sequence

from pydantic import Field

from fedbench.aggregation.aggregator import Aggregator, Memory, combine_by
from fedbench.aggregation.means import trimmed_mean
from fedbench.aggregation.ranks import floored_share
from fedbench.config import Section
from fedbench.module.weights import Weights


class TrimmedMean(Aggregator):
    """The plain mean of every parameter and float buffer without the smallest and largest values.

    floor(share * n) of n participants' values are left out at each end, which leaves at least one. As published, client
    weights are ignored.
    """

    class Options(Section):
        share: float = Field(
            0.1, ge=0, lt=0.5, description="share of the participants left out at each end, beta; 0: the plain mean"
        )

    def check(self, participants: int, size: int) -> Iterator[str]:
        if self.options.share and not floored_share(self.options.share, participants):
            yield (
                f"aggregator trimmed-mean: a share of {self.options.share:g} of {participants} participants leaves out "
                f"none: this is the plain mean; take aggregator.share >= 1/{participants}"
            )

    def combine(self, models: Sequence[Weights], weights: Sequence[float], current: Weights, memory: Memory) -> Weights:
        cut = floored_share(self.options.share, len(models))
        return combine_by(models, lambda vectors: trimmed_mean(vectors, cut))
