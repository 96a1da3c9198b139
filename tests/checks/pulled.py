"""A method with one hook and a gradient edit."""

from typing import Any, ClassVar

from pydantic import Field

from fedbench.engine.fit import Step
from fedbench.methods.base import Method


class Pulled(Method):
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.mu": 0}}

    class Options(Method.Options):
        mu: float = Field(0.5, ge=0, description="strength of the pull")

    def train(self, client, received):
        pull = Step(add_pull, anchor=received.params, mu=self.options.mu)
        return self.upload(client, client.fit(received, client.train, step=pull))


def add_pull(g, w, s):
    g.addcmul_(w - s.anchor, s.mu * 1)
