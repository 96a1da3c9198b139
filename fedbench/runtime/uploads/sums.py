"""Hosts sum uploads if the server half needs only their mean: each host then sends one total instead of all uploads.

Totals are exact (`aggregation.exact`), so that the mean has the same bits wherever the clients trained. The server half
gets one upload, the mean of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import fsum

import torch
from torch import Tensor

from fedbench.aggregation.exact import add_terms, value
from fedbench.errors import ConfigError, first_line
from fedbench.methods.base import Method, needs_mean_only
from fedbench.methods.messages import Message, Upload

Kinds = dict[str, tuple[torch.Size, torch.dtype]]
"""Shape and dtype of each field."""
FEW = {"cpu": 64, "cuda": 1}
"""Participants up to which every upload is sent by itself, by the hosts' device.

A total has twice the bytes of a model; a GPU adds uploads up in less time than it takes to send one.
"""


@dataclass
class Total:
    """A host's sum of uploads, by field: sums of floats in whole numbers, and the maximum of other numbers.

    kinds: of the fields, the same in all uploads.
    """

    message: Message = field(default_factory=Message)
    kinds: Kinds | None = None

    def take(self, uploads: Sequence[Upload], shares: Sequence[float]) -> None:
        """Move the fields of uploads into the sums; a field with too large a number stays in its upload, whole.

        Raises ConfigError, which ends the run, because a partial addition cannot be undone.
        """
        for upload in uploads:
            kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in upload.tensors.items()}
            self.kinds = _check_alike(kinds if self.kinds is None else self.kinds, kinds)
        try:
            for name, (_, kind) in (self.kinds or {}).items():
                if kind.is_floating_point:
                    self._add(name, uploads, shares)
                else:
                    for upload in uploads:
                        self._merge(name, upload.tensors.pop(name))
        except Exception as error:
            line = f"the upload of {clients_in_words(uploads)} cannot be added to others: {first_line(error)}"
            raise ConfigError(line) from error

    def _add(self, name: str, uploads: Sequence[Upload], shares: Sequence[float]) -> None:
        fields = [upload.tensors[name] for upload in uploads]
        whole = self.message.tensors.get(name)
        if whole is None:
            whole = torch.zeros(fields[0].shape, dtype=torch.int64, device=fields[0].device)
        fitting = add_terms(whole, fields, shares)
        if any(fitting):
            self.message.tensors[name] = whole
        for upload, fits in zip(uploads, fitting, strict=True):
            if fits:
                del upload.tensors[name]

    def plus(self, other: "Total") -> "Total":
        """The total of both. Raises ConfigError if their uploads differ."""
        if self.kinds is None or other.kinds is None:
            return self if other.kinds is None else other
        both = Total(Message(), _check_alike(self.kinds, other.kinds))
        for total in (self, other):
            for name, tensor in total.message.tensors.items():
                both._merge(name, tensor)
        return both

    def _merge(self, name: str, tensor: Tensor) -> None:
        known = self.message.tensors
        if name not in known:
            known[name] = tensor
        elif (self.kinds or {})[name][1].is_floating_point:
            known[name] = known[name] + tensor
        else:
            known[name] = torch.maximum(known[name], tensor)


def clients_in_words(uploads: Sequence[Upload]) -> str:
    clients = sorted(upload.client for upload in uploads)
    return f"client {clients[0]}" if len(clients) == 1 else f"one of clients {clients[0]} to {clients[-1]}"


def _check_alike(one: Kinds, other: Kinds) -> Kinds:
    if one != other:
        raise ConfigError(
            "the clients' uploads differ in fields, shapes or types, so that hosts cannot add them up: "
            "override aggregate in the method's class, without @mean_suffices"
        )
    return one


def upload_shares(method: Method, trainers: Sequence[int], device: str) -> dict[int, float]:
    """The weight of each client's upload in the sums of hosts on a device; empty if uploads are sent by themselves."""
    context = method.context
    if len(trainers) <= FEW[device] or not (needs_mean_only(type(method)) and context.aggregator.needs_mean_only):
        return {}
    weights = method.checked_weights([Upload(client, context.sizes[client]) for client in trainers])
    return dict(zip(trainers, weights, strict=True))


def merged_uploads(uploads: Sequence[Upload], totals: Sequence[Total], shares: Mapping[int, float]) -> list[Upload]:
    """The uploads for the server half, or one for all if hosts summed them.

    That one has the weighted mean of the received uploads, and the maximum of other numbers, on the CPU. uploads:
    ascending by client, with the fields that are in no total. shares: of all clients that were asked.
    """
    if not shares:
        return list(uploads)
    total = reduce(Total.plus, totals)
    part = fsum(shares[upload.client] for upload in uploads) / fsum(shares.values())
    mean = Upload(uploads[0].client, sum(upload.samples for upload in uploads))
    for name, (shape, kind) in (total.kinds or {}).items():
        added = total.message.tensors.get(name)
        if kind.is_floating_point:
            whole = torch.zeros(shape, dtype=torch.float64) if added is None else value(added)
            for upload in uploads:
                if name in upload:
                    whole.add_(upload.tensors[name].to(whole.device), alpha=shares[upload.client])
            added = whole.div_(part).to(kind)
        assert added is not None
        mean.add(**{name: added.cpu()})
    return [mean]
