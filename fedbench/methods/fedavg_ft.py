"""FedAvg followed by local fine-tuning, the strongest simple baseline of personalisation papers.

Training and traffic are FedAvg's. Private: the fine-tuned copy, which is evaluated and dropped; it is never uploaded,
never enters training, and draws from a random stream of its own. Papers are silent on the epochs of fine-tuning; ours
are as many as a local fit has, so that one personalisation costs one local training.
"""

from typing import Literal

from pydantic import Field

from fedbench.methods.base import Client, Message, Method, Predictor


class FedAvgFT(Method):
    """after_agg is a throwaway copy of the global model, fine-tuned on the client's training images."""

    class Options(Method.Options):
        ft_epochs: int | None = Field(None, ge=0, description="epochs of fine-tuning; none: as many as a local fit")
        ft_lr: float | None = Field(None, gt=0, description="learning rate of fine-tuning; none: the run's")
        ft_scope: Literal["all", "head"] = Field("all", description="what is fine-tuned")
        ft_when: Literal["every_eval", "final"] = Field(
            "every_eval", description="at every evaluation, or after the last round only"
        )

    def check(self) -> None:
        if self.options.ft_scope == "head":
            self.context.layout.mask("head")

    def personal(self, client: Client, download: Message) -> Predictor:
        head_only = self.options.ft_scope == "head"
        return client.learner.fit(
            self.receive(client, download),
            client.train,
            purpose="ft",
            epochs=self.options.ft_epochs,
            lr=self.options.ft_lr,
            train_only=self.context.layout.mask("head") if head_only else None,
            freeze_norm=head_only,
        )

    def reports(self, point: str, round: int) -> bool:
        return point != "after_agg" or self.options.ft_when == "every_eval" or round == self.context.rounds
