"""FedAvg followed by local fine-tuning, the strongest simple baseline of personalisation papers.

Training and traffic are FedAvg's. Private: the fine-tuned copy, which is evaluated and dropped; it is never uploaded,
never enters training, and has its own random stream. Papers do not state the epochs of fine-tuning; ours equal those
of a local fit, so one personalisation costs one local training.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.engine.fit import Amount, Move, Step
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client
from fedbench.module.weights import Weights


class FedAvgFT(Method["FedAvgFT.Options"]):
    """after_agg is a throwaway copy of the global model, fine-tuned on the client's training images."""

    about = About("fedavg, then a throwaway local fine-tuning", "fine-tuning")
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.ft_epochs": 0}}

    class Options(Method.Options):
        ft_epochs: int | None = Field(None, ge=0, description="epochs of fine-tuning; none: as many as a local fit")
        ft_lr: float | None = Field(
            None, gt=0, description="learning rate of fine-tuning; none: the run's", json_schema_extra={"rate": "run"}
        )
        ft_scope: Literal["all", "head"] = Field("all", description="what is fine-tuned")
        ft_when: Literal["every_eval", "final"] = Field(
            "every_eval", description="at every evaluation, or after the last round only"
        )

    def check(self) -> Iterable[str]:
        if self.options.ft_scope == "head":
            self.context.layout.mask("head")
        return ()

    def personal(self, client: Client, model: Weights, point: Point) -> Weights | None:
        options = self.options
        if point == "after_fit":
            return model
        if options.ft_when == "final" and not self.context.is_last(client.round):
            return None
        return self.fine_tuned(client, model, options.ft_epochs)

    def fine_tuned(self, client: Client, model: Weights, epochs: int | None) -> Weights:
        scope: Any = self.options.ft_scope
        move = None if scope == "all" else Move(self.context.layout.mask(scope), frozen="norm_eval")
        return client.fit(model, client.train, "ft", Amount(epochs=epochs), move, step=Step(lr=self.options.ft_lr))

    def join(self, client: Client, received: Weights) -> Weights:
        """The global model, fine-tuned."""
        return self.fine_tuned(client, received, client.epochs)
