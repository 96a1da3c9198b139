"""One model on the pooled training data of all clients: the upper reference, which breaks the privacy rule on purpose.

Nothing is counted as traffic: the raw data are pooled. The optimiser is kept from round to round, because this is one
run cut into rounds. With `ft_epochs`, after_agg is a throwaway fine-tuned copy for each client.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from fedbench.methods.base import POOL, Client, Context, Message, Method, Predictor


class Centralized(Method):
    """SGD on the union of the data; participation, `weighting` and `buffers` have no effect."""

    class Options(Method.Options):
        ft_epochs: int = Field(0, ge=0, description="epochs of throwaway fine-tuning per client before evaluation")

    train_defaults: ClassVar[dict[str, Any]] = {"keep_optimizer": True}
    after_fit = "global"
    wire: Mapping[str, float] = {"params": 0, "buffers": 0, "counters": 0}

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options.model_copy(update={"buffers": "average"}), context)

    def trainers(self, drawn: Sequence[int]) -> list[int]:
        return [POOL]

    def personal(self, client: Client, download: Message) -> Predictor:
        received = self.receive(client, download)
        if not self.options.ft_epochs:
            return received
        return client.learner.fit(received, client.train, purpose="ft", epochs=self.options.ft_epochs)

    @property
    def personal_is_global(self) -> bool:
        return not self.options.ft_epochs
