"""FedPer: federated learning with personalization layers (Arivazhagan, Aggarwal, Singh, Choudhary; preprint 2019).

Private: the declared head, and the layers of `extra_private` with their running statistics. Up and down: the rest.
Body and head are trained together in every step; training them one after the other is FedRep.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.methods.base import About, Method
from fedbench.methods.client import Client
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks


class FedPer(Method["FedPer.Options"]):
    """Every client keeps its own head."""

    about = About("the head stays private", "parameter decoupling", "Arivazhagan et al., preprint", 2019)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.extra_private": ["body"]}}

    class Options(Method.Options):
        extra_private: list[str] = Field([], description="dotted names of further private layers (the paper's K_P > 1)")
        head_init: Literal["common", "own"] = Field(
            "common", description="first head: the run's, or a new one at every client"
        )

    needs = frozenset({"head"})

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head") | layout.under(self.options.extra_private)

    def begin(self, client: Client) -> None:
        if self.options.head_init == "own":
            head = self.context.layout.head_name or ""
            drawn = client.learner.redraw(client.initial, head, client.seed, client.id, "head")
            client.state.params = self.private_params.take(drawn.params)
