"""PerFedMask, "Personalized Federated Learning with Optimized Masking Vectors" (Setayesh, Li, Wong; ICLR 2023).

FedBABU for devices of different strength: the head stays what it was at the start, the same for all; of the body every
client trains the layers that its mask names, chosen before training for how little they bias the mean. Private:
nothing. Up: the layers that a client trained; down: the body, and once the head. What is evaluated at after_agg is a
copy of the whole model, fine-tuned by the client and dropped.

Where we decide:
- The paper relaxes the masks to [0, 1] and needs a commercial solver and random starts; here a deterministic search by
  single flips and exchanges from three starts minimises the same objective under the same budgets.
- The objective weighs clients uniformly, as in the paper; the mean of a layer by images, as in the code (`weighting`).
- A layer is a module with all parameters of its own and the normalisation layer behind it; float buffers go with their
  layer. The search looks at all clients, the mean at the participants that trained the layer.
- The code's protocol (sgd with momentum 0.9, rate 0.1 cut at half and three quarters of the rounds) is no default.

Longer than other method files because of the search.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import elementwise_max, masked_mean
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout, Slot
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Server, Upload

Capability = Annotated[float, Field(gt=0, le=1)]

SLACK = 1e-6
"""Parameters by which a client may exceed its budget, against rounding."""


class PerFedMask(Method):
    """Clients train the layers that they can, chosen to keep the mean unbiased, under a head that never changes."""

    class Options(Method.Options):
        capability: Capability | list[Capability] = Field(
            1.0, description="share of the body that a client can train, nu: one number, or one per client"
        )
        mask: Literal["optimised", "sequential"] = Field(
            "optimised", description="layers by search for the least biased mean, or the first ones that fit"
        )
        ft_epochs: int = Field(5, ge=0, description="epochs of fine-tuning the whole model for evaluation")
        ft_lr: float | None = Field(None, gt=0, description="learning rate of fine-tuning; none: the round's")
        buffers: ClassVar[Any] = "average"  # type: ignore[misc] # no option: they go with their layers

    needs_head = True

    @cached_property
    def capabilities(self) -> list[float]:
        """nu of every client."""
        given = self.options.capability
        return given if isinstance(given, list) else [given] * self.context.clients

    @cached_property
    def groups(self) -> "list[LayerGroup]":
        return groups(self.context.layout)

    @cached_property
    def masks(self) -> np.ndarray:
        """bool `[clients, layers]`: who trains what, for the whole run."""
        sizes = np.array([group.size for group in self.groups])
        return layer_masks(sizes, np.array(self.capabilities), search=self.options.mask == "optimised")

    def check(self) -> None:
        if len(self.capabilities) != self.context.clients:
            raise ConfigError(
                f"method.capability: {len(self.capabilities)} numbers for {self.context.clients} clients; give one "
                "number, or one per client"
            )
        if not self.groups:
            raise ConfigError("the model has no parameters outside its head, which perfedmask never trains")

    def warnings(self) -> list[str]:
        idle = np.flatnonzero(~self.masks.any(1)).tolist()
        if not idle:
            return []
        least = min(group.size for group in self.groups)
        return [
            f"perfedmask: {len(idle)} client(s) can train no layer and upload nothing, as client {idle[0]}: the "
            f"smallest layer has {least} parameters, method.capability must reach {least / self.body_size:.3g}"
        ]

    @property
    def body_size(self) -> int:
        """P."""
        return sum(group.size for group in self.groups)

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        return layout.mask("head"), layout.buffer_mask("head")

    def trained_by(self, layers: Tensor) -> tuple[Tensor, Tensor]:
        """Masks `[N]` and `[M]` of the parameters and float buffers in the layers (uint8 `[layers]`) of a client."""
        params, buffers = torch.zeros_like(self.own.mask), torch.zeros_like(self.own_buffers.mask)
        for group, chosen in zip(self.groups, layers.tolist(), strict=True):
            for mask, slots in ((params, group.params), (buffers, group.buffers)):
                for slot in slots:
                    mask[slot.start : slot.stop] = bool(chosen)
        return params, buffers

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        params, buffers = self.trained_by(download.layers)
        memory = client.memory("fit")
        client.fitted = trained = client.learner.fit(
            received, client.train, train_only=params, freeze_norm=True, memory=memory
        )
        tensors = dict(
            params=self.shared.take(trained.params),
            buffers=self.shared_buffers.take(trained.buffers),
            counters=trained.counters,
            layers=download.layers,
        )
        upload = Upload(tensors, self.wire, client=client.id, samples=client.samples)
        upload.charge = trained.params.element_size() * int(params.sum() + buffers.sum())
        upload.traces = {"mask_share": int(params.sum()) / self.body_size}
        return upload

    def personal(self, client: Client, download: Message) -> Predictor:
        return client.learner.fit(
            self.receive(client, download),
            client.train,
            purpose="ft",
            epochs=self.options.ft_epochs,
            lr=self.options.ft_lr,
        )

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.told = {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.charge = message.wire_bytes()
        if client not in server.told:
            message.charge += server.params.element_size() * self.own.size
        message.tensors["layers"] = torch.from_numpy(self.masks[client].astype(np.uint8))
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        """The mean of every layer over the participants that trained it."""
        trained = [self.trained_by(u.layers) for u in uploads]
        masks = [(self.shared.take(params), self.shared_buffers.take(buffers)) for params, buffers in trained]
        weights = self.weights(uploads)
        server.params = masked_mean([u.params for u in uploads], [m for m, _ in masks], weights, server.params)
        server.buffers = masked_mean([u.buffers for u in uploads], [m for _, m in masks], weights, server.buffers)
        server.counters = elementwise_max([u.counters for u in uploads])
        server.told |= {u.client: True for u in uploads}  # who has the head by now

    def global_weights(self, server: Server) -> Weights:
        initial = server.initial
        return Weights(
            params=self.shared.put(initial.params, server.params),
            buffers=self.shared_buffers.put(initial.buffers, server.buffers),
            counters=server.counters,
        )


@dataclass(frozen=True)
class LayerGroup:
    """What is trained together or not at all."""

    params: tuple[Slot, ...]
    buffers: tuple[Slot, ...]

    @property
    def size(self) -> int:
        return sum(slot.size for slot in self.params)


def groups(layout: Layout) -> list[LayerGroup]:
    """The layers of the body, in order. Raises ConfigError where the model's own declaration leaves some out."""
    body = [s for s in layout.params if not s.head]
    for slot in [*body, *(s for s in layout.buffers if not s.head)]:
        if slot.name not in layout.groups:
            raise ConfigError(f"the model's layer_groups leave out '{slot.name}': name all tensors but the head's")
    number = lambda slot: layout.groups[slot.name]  # noqa: E731
    return [
        LayerGroup(
            tuple(s for s in body if number(s) == n),
            tuple(s for s in layout.buffers if not s.head and number(s) == n),
        )
        for n in sorted({number(s) for s in body})
    ]


# -- the search -------------------------------------------------------------------------------------------------------


def layer_masks(sizes: np.ndarray, capability: np.ndarray, search: bool) -> np.ndarray:
    """bool `[clients, layers]`: the layers that fit from the first one on, or the best that the search finds."""
    layers = np.arange(len(sizes))
    tolerance, best = 1e-9 * sizes.sum(), None
    for order in (layers, layers[::-1], np.argsort(-sizes, kind="stable"))[: 3 if search else 1]:
        masks = filled(order, sizes, capability)
        if search:
            masks = improved(masks, sizes, capability, tolerance)
        value = objective(masks, sizes, capability)
        if best is None or value < best[0] - tolerance:
            best = value, masks
        if value <= tolerance:
            break
    assert best is not None
    return best[1]


def filled(order: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> np.ndarray:
    """Every client takes the layers in this order as far as they fit."""
    loads, masks = np.zeros(len(capability)), np.zeros((len(capability), len(sizes)), dtype=bool)
    for layer in order:
        masks[:, layer] = loads + sizes[layer] <= capability * sizes.sum() + SLACK
        loads += sizes[layer] * masks[:, layer]
    return masks


def objective(masks: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> float:
    """J: how unevenly clients weigh in the layers, and what they leave unused; 0 where everybody trains everything."""
    k = masks / np.maximum(1, masks.sum(0))  # [clients, layers]
    unused = capability.sum() * sizes.sum() - (masks * sizes).sum()
    return float(sizes.sum() * k.max(1).sum() - (k * sizes).sum() + unused)


def improved(masks: np.ndarray, sizes: np.ndarray, capability: np.ndarray, tolerance: float) -> np.ndarray:
    """The masks after the best moves, one after another, until none improves J."""
    masks = masks.copy()
    while (value := objective(masks, sizes, capability)) > tolerance:
        # Clients with the same mask and budget have the same moves, and the first of them is taken.
        kinds = np.column_stack([masks, capability])
        _, firsts, copies = np.unique(kinds, axis=0, return_index=True, return_counts=True)
        order = np.argsort(firsts)
        firsts, copies = firsts[order], copies[order]
        values = after_moves(masks[firsts], copies, sizes, capability[firsts])
        values += capability.sum() * sizes.sum()
        kind, a, b = np.unravel_index(first_best(values.ravel(), tolerance), values.shape)
        if not values[kind, a, b] < value - tolerance:
            break
        masks[firsts[kind], np.unique([a, b])] ^= True
    return masks


def first_best(values: np.ndarray, tolerance: float) -> int:
    """Index of the best of a scan in which a later value replaces an earlier one only if lower by more than that."""
    best = 0
    while len(lower := np.flatnonzero(values[best + 1 :] < values[best] - tolerance)):
        best += 1 + int(lower[0])
    return best


def after_moves(masks: np.ndarray, copies: np.ndarray, sizes: np.ndarray, capability: np.ndarray) -> np.ndarray:
    """J without its constant after each move `[kinds, layers, layers]`; infinite where a move is not allowed.

    masks: bool `[kinds, layers]` of `copies` clients each. Entry (i, a, a) flips layer a of one client of kind i, entry
    (i, a, b) with a < b flips both, one on and one off. A move changes the counts of two layers only, so that a
    client's largest share is in one of the two, or among its first two of before.
    """
    counts = copies @ masks  # clients per layer
    shares = masks / np.maximum(1, counts)
    fewer, more = 1.0 / np.maximum(1, counts - 1), 1.0 / (counts + 1)
    rest = largest_without(shares)  # [kinds, layers, layers]
    one = np.diagonal(rest, axis1=1, axis2=2)  # [kinds, layers]

    def total(others: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Sum over clients, one of which moves: of `others` but for itself, and its own."""
        return np.tensordot(copies, others, 1) - others + own

    drop = total(np.maximum(one, masks * fewer), one)
    take = total(np.maximum(one, masks * more), np.maximum(one, more))
    dropped, taken = (masks * fewer)[:, :, None], (masks * more)[:, None, :]
    swap = total(np.maximum(rest, np.maximum(dropped, taken)), np.maximum(rest, more))  # a off, b on

    # What J loses: the sizes of layers that anybody trains, and of all that is trained.
    off, on, scale = -sizes * (1 + (counts == 1)), sizes * (1 + (counts == 0)), sizes.sum()
    loads = (masks * sizes).sum(1)
    room = capability * scale + SLACK - loads
    flips = np.where(masks, scale * drop - off, scale * take - on)
    flips[np.where(masks, masks.sum(1, keepdims=True) < 2, sizes > room[:, None])] = np.inf
    swaps = scale * swap - off[:, None] - on
    swaps[~masks[:, :, None] | masks[:, None, :] | (sizes - sizes[:, None] > room[:, None, None])] = np.inf
    values = np.where(masks[:, :, None], swaps, swaps.swapaxes(1, 2))
    layers = np.arange(len(sizes))
    values[:, layers[:, None] > layers] = np.inf
    values[:, layers, layers] = flips
    return values - sizes[counts > 0].sum() - float(copies @ loads)


def largest_without(shares: np.ndarray) -> np.ndarray:
    """`[kinds, layers, layers]`: the largest share of a row with two layers (or one, on the diagonal) left out.

    Where the two are its largest ones it is the second of them: who trains both gets a larger share in the one that is
    dropped anyway.
    """
    padded = np.pad(shares, ((0, 0), (0, 1)))
    order = np.argsort(-padded, axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(padded, order, 1).T[:, :, None, None]
    is_first = order[:, :1] == np.arange(shares.shape[1])  # [kinds, layers]
    return np.where(is_first[:, :, None] | is_first[:, None, :], second, first)
