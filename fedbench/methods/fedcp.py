"""FedCP: separating feature information by a conditional policy (Zhang, Hua, Wang, Song, Xue, Ma, Guan; KDD 2023).

Private: the personal head. Up and down: body, a global head, and a policy network that splits every image's features
between the two heads. What is uploaded as global head is half the personal one. Features are kept close to those of the
received body, in distribution.

Where we decide:
- The policy is a softmax (paper). The authors' code draws a Gumbel softmax, in tests too; `policy_form=gumbel` draws in
  training only, for every step before the fit, from a stream of its own.
- The policy's input is weighted by the row sum of the client's own head, as in the newest code; in round 1 too, where
  the code takes a random vector.
- The frozen body runs in evaluation mode; where batches are augmented, on each as it is.
- Clients that sit out are evaluated with the newest body, global head and policy; the code sends them the body only.
- Both heads' biases are added, as in the code. Incomplete batches are kept.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.engine.fit import Batches, Loss, Move
from fedbench.engine.losses import task_loss, task_loss_through
from fedbench.methods.base import About, Method, ModelFacts
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.additions import Addition, add_before_head, draw_linear
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights

POLICY = "policy"
BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)


class FedCP(Method["FedCP.Options"]):
    """A shared policy network splits features between a private and a global head."""

    about = About(
        "a shared policy splits features between a private and a global head",
        "parameter decoupling",
        "Zhang et al., KDD",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedper": {"method.policy_form": "personal", "method.lam": 0}}

    class Options(Method.Options):
        lam: float = Field(5.0, ge=0, description="weight of the distance of features to the received body's; 0: none")
        policy_form: Literal["softmax", "gumbel", "personal"] = Field(
            "softmax", description="policy: softmax, with noise in training, or none: the private head alone"
        )
        tau: float = Field(1.0, gt=0, description="temperature of the policy")
        head_mix: float = Field(0.5, ge=0, le=1, description="share of the personal head in the uploaded one")

    needs = frozenset({"head", "classes"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        features = layout.linear_head()[0].shape[1]
        if options.policy_form != "personal":
            head = deepcopy(module.get_submodule(layout.head_name or ""))
            policy = Policy(features, head, options.tau, facts.seed)
            add_before_head(module, layout, POLICY, policy)

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("a loss with its policy")
        return ()

    @property
    def has_policy(self) -> bool:
        return self.options.policy_form != "personal"

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head")

    def frozen(self, layout: Layout) -> Masks:
        """The weights of the policy's input, which follow from the personal head."""
        return layout.under([f"{POLICY}.vector"]) if self.has_policy else layout.nothing()

    @cached_property
    def vector(self) -> Entries:
        return Entries(self.frozen(self.context.layout).buffers)

    @cached_property
    def global_head(self) -> Tensor:
        """Marks the global head, bool `[N]`."""
        layout = self.context.layout
        return layout.under([f"{POLICY}.other"]).params if self.has_policy else layout.nothing().params

    def receive(self, client: Client) -> Weights:
        return self.with_condition(super().receive(client))

    def idle_model(self, client: Client) -> Weights:
        return self.with_condition(super().idle_model(client))

    def with_condition(self, model: Weights) -> Weights:
        """The model with the policy's input weighted by its personal head."""
        if not self.has_policy:
            return model
        slot, _ = self.context.layout.linear_head()
        rows = model.params[slot.start : slot.stop].view(slot.shape)
        return model.replace(buffers=self.vector.put(model.buffers, F.normalize(rows.sum(0), dim=0)))

    def train(self, client: Client, received: Weights) -> Upload:
        learner, loss, noise = client.learner, None, self.noise(client)
        if self.options.lam:

            def teach(data: Batches) -> Tensor:
                """Features `[n, d]` by the received body."""
                return learner.features(received, data).flatten(1).to(learner.dtype)

            function = partial(discrepant_loss, head=self.context.layout.head_name or "")
            loss = client.distillation_loss(function, teach, client.train, lam=self.options.lam, **noise)
        elif noise:
            loss = Loss(noisy_loss, **noise)
        move = Move(~self.global_head) if self.has_policy else None
        trained = client.fit(received, client.train, move=move, loss=loss)
        upload = self.upload(client, trained)
        if self.has_policy:
            upload.add(params=self.shared_params.take(self.mix_heads(trained.params)))
        return upload

    def noise(self, client: Client) -> dict[str, Tensor]:
        """What losses need to add Gumbel noise: that of every step, `[steps, b, 2 d]`, and the number of the step."""
        if self.options.policy_form != "gumbel":
            return {}
        train, like = self.context.train, client.initial.params
        size = client.samples if train.batch_size == "full" else min(client.samples, int(train.batch_size))
        shape = client.amount().steps_on(client.samples, train), size, 2 * self.vector.size
        drawn = torch.rand(shape, generator=client.generator("policy"), dtype=like.dtype).clamp_(min=1e-30)
        noise = drawn.log_().neg_().log_().neg_().to(like.device)
        return {"noise": noise, "step": torch.zeros(1, dtype=torch.int64, device=like.device)}

    def mix_heads(self, params: Tensor) -> Tensor:
        """The parameters `[N]`, with a mixture of both heads as global one."""
        mixture, private, mix = params.clone(), params[self.private_params.mask], self.options.head_mix
        mixture[self.global_head] = mix * private + (1 - mix) * params[self.global_head]
        return mixture


class Policy(Addition):
    """The policy network and the global head. vector: weights of the policy's input `[d]`."""

    vector: Tensor
    noise: Tensor | None = None
    """What `with_noise` adds to the scores of a batch `[b, 2 d]`."""

    def __init__(self, features: int, other: nn.Module, tau: float, seed: int) -> None:
        super().__init__()
        self.linear, self.norm, self.other = nn.Linear(features, 2 * features), nn.LayerNorm(2 * features), other
        self.register_buffer("vector", torch.zeros(features))
        self.tau = tau
        draw_linear(self.linear, torch.Generator().manual_seed(seed))

    def shares(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Shares `[b, d]` of features for the personal and for the global head; both sum to 1."""
        scores = self.norm(self.linear(features * self.vector)).relu()
        if self.noise is not None:
            scores = scores + self.noise
        personal, common = (scores.unflatten(1, (2, -1)) / self.tau).softmax(1).unbind(1)
        return personal, common

    def after(self, head: nn.Module, given: tuple[Any, ...], outputs: Any) -> Any:
        """The sum of both heads' outputs, each of its share of the features."""
        (features,) = given
        personal, common = self.shares(features)
        return head.forward(personal * features) + self.other(common * features)


def discrepant_loss(net: LightningModule, batch: Any, s: Any, teacher: Tensor, head: str) -> Tensor:
    """The client's own loss plus lam times the discrepancy of its features to the received body's."""
    with with_noise(net, batch, s):
        loss, features, _ = task_loss_through(net, batch, head)
    with torch.autocast(teacher.device.type, enabled=False):
        return loss.to(teacher) + s.lam * discrepancy(features.flatten(1).to(teacher), teacher)


def noisy_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The client's own loss with noise in the policy."""
    with with_noise(net, batch, s):
        return task_loss(net, batch)


@contextmanager
def with_noise(net: LightningModule, batch: Any, s: Any) -> Iterator[None]:
    """A block in which the policy has the noise of the next step, if the loss was given any; s.step `[1]` counts."""
    if not hasattr(s, "noise"):
        yield
        return
    policy: Any = net.get_submodule(POLICY)
    policy.noise = s.noise.index_select(0, s.step)[0, : len(batch[1])]
    s.step.copy_((s.step + 1) % len(s.noise))  # an optimiser may try several times in a step
    try:
        yield
    finally:
        del policy.noise


def discrepancy(one: Tensor, other: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two sets `[m, d]`, over all pairs, the diagonal too, with four kernels."""
    m, both = len(one), torch.cat([one, other])
    both = both - both.detach().mean(0)  # distances stay, rounding shrinks
    norms = both.square().sum(1)
    squared = (norms[:, None] + norms - 2 * both @ both.T).clamp(min=0)  # [2m, 2m]
    kernels = sum(torch.exp(-squared / (2 * width)) for width in BANDWIDTHS)
    own, others = slice(m), slice(m, None)
    return (kernels[own, own] + kernels[others, others] - 2 * kernels[own, others]).mean()  # type: ignore[index]
