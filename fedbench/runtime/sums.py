"""Uploads that hosts add up, where the server half needs nothing but their mean: a total per host travels, not all.

Totals are exact (`aggregation.exact`), so that the mean has the same bits wherever the clients trained. The server half
gets one upload, which is the mean of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import fsum

import torch
from torch import Tensor

from fedbench.aggregation.exact import add_term, fits, value
from fedbench.methods.base import Method
from fedbench.methods.messages import Message, Upload

FEW = 64
"""Participants up to which every upload travels by itself: a total has twice the bytes of a model."""


@dataclass
class Total:
    """What a host has added up, by field: sums of floats in whole numbers, and the largest of each counter.

    kinds: of the numbers that a field's sums are made of.
    """

    message: Message = field(default_factory=Message)
    kinds: dict[str, torch.dtype] = field(default_factory=dict)

    def take(self, upload: Upload, share: float) -> bool:
        """Add an upload and empty it; False where it holds a number too large for that, and travels by itself."""
        if not all(fits(tensor) for tensor in upload.tensors.values() if tensor.is_floating_point()):
            return False
        for name, tensor in upload.tensors.items():
            self._add(name, tensor, share)
        upload.tensors = {}
        return True

    def _add(self, name: str, tensor: Tensor, share: float) -> None:
        known = self.message.tensors
        if tensor.is_floating_point():
            if name not in known:
                known[name], self.kinds[name] = torch.zeros_like(tensor, dtype=torch.int64), tensor.dtype
            add_term(known[name], tensor, share)
        else:
            known[name] = torch.maximum(known[name], tensor) if name in known else tensor.clone()

    def join(self, other: "Total") -> None:
        """Add another host's total."""
        for name, tensor in other.message.tensors.items():
            if name not in self.message:
                self.message.tensors[name] = tensor
            elif name in other.kinds:
                self.message.tensors[name] += tensor
            else:
                self.message.tensors[name] = torch.maximum(self.message.tensors[name], tensor)
        self.kinds |= other.kinds


def shares(method: Method, trainers: Sequence[int]) -> dict[int, float]:
    """By client, the weight of its upload in the sum that hosts make; nobody's where uploads travel by themselves."""
    context = method.context
    if len(trainers) <= FEW or not (method.mean_suffices and context.aggregator.mean_suffices):
        return {}
    weights = method.weights([Upload(client, context.sizes[client]) for client in trainers])
    return dict(zip(trainers, weights, strict=True))


def gathered(uploads: Sequence[Upload], totals: Sequence[Total], shares: Mapping[int, float]) -> list[Upload]:
    """What the server half gets: the uploads, or one for all where hosts added them up.

    It is the weighted mean of those that came, and the largest of each counter. uploads: ascending by client; those
    that hold tensors are in no total. shares: of all who were asked.
    """
    if not shares:
        return list(uploads)
    whole = Total()
    for total in totals:
        whole.join(total)
    alone = [upload for upload in uploads if upload.tensors]
    came = fsum(shares[upload.client] for upload in uploads) / fsum(shares.values())
    mean = Upload(uploads[0].client, sum(upload.samples for upload in uploads))
    fields = {name: tensor for upload in alone for name, tensor in upload.tensors.items()} | whole.message.tensors
    for name, like in fields.items():
        kind = whole.kinds.get(name, like.dtype)
        if kind.is_floating_point:
            summed = value(whole.message.tensors.get(name, torch.zeros_like(like, dtype=torch.int64)))
            for upload in alone:
                summed.add_(upload.tensors[name], alpha=shares[upload.client])
            mean.add(**{name: summed.div_(came).to(kind)})
        else:
            mean.add(**{name: reduce(torch.maximum, [upload.tensors[name] for upload in alone], like)})
    return [mean]
