"""Checks of what travels between server and clients: whose entries, how many bytes, how new, by which weights."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import prod

import torch
from torch import Tensor

from fedbench.checks.check import CheckFailure, DoesNotApply
from fedbench.checks.method_runs import ROUNDS, MethodRuns
from fedbench.checks.recording import RecordingHosts, Sent
from fedbench.methods.contract import WEIGHTS_FIELDS
from fedbench.module.layout import Slot
from fedbench.results.reader import Records
from fedbench.runtime.exchange import POOLED

FEW = 8
"""Numbers below which a field says nothing about its encoding."""
EDGE = 1
"""Entries by which a mask that is off by one cuts a tensor."""
MANY = 0.5
"""Share of a client's private entries among the numbers of its upload from which on they were sent."""
BITS = 8
RANK = 1e-5
"""Singular values below this share of the largest count as 0."""
WEIGHTS_NEAR = 1e-3
"""Largest difference between weights of uploads that count as the same."""
NOISE = 1e-2
"""What is added to a message to see whether it is read."""


def masks_are_whole(method: MethodRuns) -> str:
    """Masks of the model cut no tensor by one entry, and masks that are sent are no floats."""
    hosts = method.undisturbed("awkward")
    own, layout = hosts.host.models[0].method, hosts.host.models[0].learner.layout
    for name, masks in (("private", own.private(layout)), ("frozen", own.frozen(layout))):
        for slots, mask in ((layout.params, masks.params), (layout.buffers, masks.buffers)):
            for slot in slots:
                _refuse_cut(f"{type(own).__name__}.{name}", slot, mask[slot.place])
    for (direction, field), same_field in by_field(hosts):
        first, nbytes = same_field[0].tensors[field], same_field[0].sizes[field]
        is_model = field.rpartition(".")[2] in WEIGHTS_FIELDS
        varies = not all(torch.equal(first, sent.tensors[field]) for sent in same_field)
        are_masks = all(_is_mask(sent.tensors[field]) for sent in same_field)
        if not is_model and nbytes >= first.numel() and are_masks and varies:
            raise CheckFailure(
                f"the field {field} ({direction}) holds only 0 and 1 as {_type(first)}: a mask is bool, whose ones are "
                f"counted exactly: send {field}.bool(), or encoded({field}.bool(), bits=1)"
            )
    return ""


def _refuse_cut(hook: str, slot: Slot, mask: Tensor) -> None:
    """Raises CheckFailure if a mask has all of a tensor but an entry at its edge, or such an entry alone."""
    ones = int(mask.sum())
    few = min(ones, slot.size - ones)
    if slot.size < FEW or few == 0 or few > EDGE:
        return
    odd = mask if ones == few else ~mask
    if odd[0] or odd[-1]:
        place = "first" if odd[0] else "last"
        word = "has only" if ones == few else "lacks"
        raise CheckFailure(
            f"{hook} {word} the {place} of {slot.size} entries of {slot.name}: a mask that is moved by one? Take "
            'layout.masks("head") or slot.place'
        )


def _is_mask(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() >= FEW and tensor.unique().tolist() == [0, 1]


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def private_entries_stay(method: MethodRuns) -> str:
    """The numbers that private entries have after training are not among those of the upload."""
    hosts = method.undisturbed("plain")
    part = hosts.host.models[0].method.private_params
    if not part.size:
        raise DoesNotApply("no entry of the model is private")
    if method.kind.also_sends:
        raise DoesNotApply(f"it says that clients also send {method.kind.also_sends}")
    start = part.take(hosts.host.models[0].initial.params)
    for sent in uploads(hosts):
        trained = hosts.trained[sent.number, sent.client]
        private = part.take(trained)
        known = torch.cat([start, hosts.host.models[0].method.shared_params.take(trained)])
        secret = private[~torch.isin(private, known)]
        for field, tensor in sent.tensors.items():
            if len(secret) and torch.isin(secret, tensor.to(secret.dtype).flatten()).float().mean() > MANY:
                raise CheckFailure(
                    f"private entries of client {sent.client} are in the field {field} of its upload: send what "
                    "`self.upload(client, trained)` packs, or self.shared_params.take(trained.params); if that is "
                    "meant, say so in `also_sends`"
                )
    return f"{part.size} numbers stay"


def models_are_fresh(method: MethodRuns) -> str:
    """What is sent changes from round to round, and what is received changes what is trained."""
    hosts = method.undisturbed("plain")
    messages = {number: messages_of(hosts, number) for number in range(ROUNDS)}
    if not any(_bytes(own) for own in messages.values()):
        raise DoesNotApply("nothing is sent to clients")
    made = {number: [sent for sent in uploads(hosts) if sent.number == number] for number in range(ROUNDS)}
    for before, now in pairwise(range(ROUNDS)):
        if _bytes(made[before]) and _bytes(messages[now]) and _are_same(messages[before], messages[now]):
            raise CheckFailure(
                f"round {now + 1} sends the numbers of round {before + 1}, although clients have sent theirs in "
                "between: send what aggregate has made of the newest uploads"
            )
    _refuse_deaf(hosts)
    return ""


def _bytes(sent: list[Sent]) -> int:
    return sum(sum(own.sizes.values()) for own in sent)


def _are_same(one: list[Sent], other: list[Sent]) -> bool:
    known = {own.client: own.tensors for own in one}
    return all(
        own.client in known and _same_tensors(known[own.client], own.tensors)
        for own in other
        if any(own.sizes.values())
    )


def _same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Of those of whose numbers there are some: scalars and counters may change by themselves."""
    floats = [name for name, tensor in other.items() if tensor.is_floating_point() and tensor.numel() > 1]
    return bool(floats) and all(name in one and torch.equal(one[name], other[name]) for name in floats)


def _refuse_deaf(hosts: RecordingHosts) -> None:
    """Raises CheckFailure if a client trains the same from another message."""
    host = hosts.host
    own = host.models[0].method
    task = next((t for t in hosts.tasks.values() if t.client != POOLED and t.message.sizes.get("params")), None)
    if task is None:
        return
    results = []
    for noise in (0.0, NOISE):
        client = host.client(task, ROUNDS)
        tensors = client.message.tensors
        client.message.tensors = {
            name: value + noise if value.is_floating_point() and value.numel() > 1 else value
            for name, value in tensors.items()
        }
        received = own.receive(client)
        upload = own.train(client, received)
        assert upload.trained is not None
        results.append([received.params, upload.trained.params, *upload.tensors.values()])
        client.message.tensors = tensors
    if all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
        raise CheckFailure(
            "a client trains the same whatever it is sent: it does not begin from the received model: start fits from "
            "`received`, and read client.message"
        )


def weights_count(method: MethodRuns) -> str:
    """A shared model that is the mean of uploads is the weighted one where weights are those of samples."""
    for kind in ("plain", "awkward"):
        hosts = method.undisturbed(kind)
        own = hosts.host.models[0].method
        if own.options.weighting != "samples":
            raise DoesNotApply("clients count alike by default")
        for number in range(ROUNDS - 1):
            made = {sent.client: sent for sent in uploads(hosts) if sent.number == number and "params" in sent.tensors}
            models = [sent.tensors["params"].double() for sent in made.values()]
            sizes = torch.tensor([hosts.host.context.sizes[client] for client in made if client != POOLED]).double()
            if len(models) < 2 or len(models) != len(sizes) or len({len(m) for m in models}) != 1:
                continue
            received = (sent.tensors.get("params") for sent in messages_of(hosts, number + 1))
            for new in {params.data_ptr(): params for params in received if params is not None}.values():
                if new.shape == models[0].shape and new.numel():
                    _check_mean(torch.stack(models), sizes / sizes.sum(), new)
    return ""


def _check_mean(models: Tensor, shares: Tensor, new: Tensor) -> None:
    """Raises CheckFailure for a shared model [N] that weighs uploads [clients, N] wrongly.

    shares: of the clients in their samples [clients]. Methods may weigh by something else: what is certain are the
    plain mean, and the right shares in another order or with another sum.
    """
    weighted = shares @ models
    if _near(new, models.mean(0)) and not _near(new, weighted):
        raise CheckFailure(
            "the shared model is the plain mean of the uploads, but method.weighting = samples: weigh by "
            "self.checked_weights(uploads), or take Method.UniformOptions if the paper weighs alike"
        )
    weights = torch.linalg.lstsq(models.T, new.double()[:, None]).solution[:, 0]
    if _near(new, weighted) or not _near(new, weights @ models):
        return
    total = float(weights.sum())
    close = partial(torch.allclose, rtol=0, atol=WEIGHTS_NEAR)
    if close(weights.sort().values, shares.sort().values):
        raise CheckFailure(
            "the shared model weighs each upload by the samples of another client: give weights in the order of uploads"
        )
    if abs(total) > WEIGHTS_NEAR and close(weights / total, shares):
        raise CheckFailure(
            f"the weights of the uploads in the shared model sum to {total:.3g} in place of 1: divide by the samples "
            "of the clients of the round alone (fedbench.aggregation.means.normalise)"
        )


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.double(), other, rtol=1e-5, atol=1e-7)


def bytes_are_those_that_travel(method: MethodRuns) -> str:
    """Recorded bytes are the sums of the messages', and no field needs more than it says."""
    hosts = method.undisturbed("plain")
    _refuse_other_sums(hosts)
    if is_pooled(method):
        raise DoesNotApply("one model is trained on the data of all clients, and nothing travels")
    own = hosts.host.models[0].method
    shared = [slot.shape for slot in own.context.layout.params if own.shared_params.mask[slot.place].all()]
    for (direction, field), same_field in by_field(hosts):
        constant = all(torch.equal(sent.tensors[field], same_field[0].tensors[field]) for sent in same_field)
        known = known_before(hosts, direction, field)
        for sent in same_field:
            tensor, nbytes = sent.tensors[field], sent.sizes[field]
            if not tensor.is_floating_point() or (constant and nbytes == 0):
                continue  # what is the same in every message is known at both ends
            before = known.get((sent.number, sent.client))
            updates = [] if before is None or before.shape != tensor.shape else [tensor - before]
            least = min(least_bits(own) * low_rank_share(own, shared) for own in (tensor, *updates))
            if least > BITS * (nbytes + FEW):
                raise CheckFailure(
                    f"the field {field} ({direction}) counts {nbytes} bytes, but its {tensor.numel()} numbers carry "
                    f"at least {int(least / BITS)}: give `encoded` the bits of a real encoding, and send what this "
                    "encoding gives back"
                )
    total = sum(sum(sent.sizes.values()) for sent in hosts.sent)
    return f"{total / 1000:.1f} kB in {ROUNDS} rounds"


def is_pooled(method: MethodRuns) -> bool:
    """Whether one model is trained on the data of all clients."""
    return method.kind.trainers(method.kind.Options(**method.options)) == "pooled"


def by_field(hosts: RecordingHosts) -> Iterator[tuple[tuple[str, str], list[Sent]]]:
    """Everything that was sent, by direction and field."""
    by_name: dict[tuple[str, str], list[Sent]] = {}
    for sent in hosts.sent:
        for name in sent.tensors:
            by_name.setdefault((sent.direction, name), []).append(sent)
    yield from by_name.items()


def least_bits(tensor: Tensor) -> float:
    """The bits that any encoding of a tensor's numbers needs: the entropy of those that are not 0.

    Of fewer than FEW numbers 0.
    """
    numbers = tensor.flatten()
    numbers = numbers[numbers != 0]
    if len(numbers) < FEW:
        return 0.0
    counts = numbers.unique(return_counts=True)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log2()).sum() * len(numbers))


def known_before(hosts: RecordingHosts, direction: str, field: str) -> dict[tuple[int, int], Tensor]:
    """What both ends know when a field is sent, to which an update may be sent: by exchange and client.

    Of an upload what the client received, of a message the one before.
    """
    if direction == "up":
        down = [sent for sent in hosts.sent if sent.direction == "down" and field in sent.tensors]
        return {(sent.number, sent.client): sent.tensors[field] for sent in down}
    earlier, last = {}, dict[int, Tensor]()
    for sent in hosts.sent:
        if sent.direction == direction and field in sent.tensors:
            if sent.client in last:
                earlier[sent.number, sent.client] = last[sent.client]
            last[sent.client] = sent.tensors[field]
    return earlier


def low_rank_share(tensor: Tensor, shapes: Sequence[tuple[int, ...]]) -> float:
    """Numbers of the factors of a model's matrices, relative to those of the matrices; 1 for what is no model.

    shapes: of the shared tensors.
    """
    sizes = [prod(shape) for shape in shapes]
    if not sizes or tensor.numel() != sum(sizes):
        return 1.0
    numbers = 0
    for shape, part in zip(shapes, tensor.flatten().split(sizes), strict=True):
        matrix = part.reshape(shape[0] if shape else 1, -1).double()
        rank = int(torch.linalg.matrix_rank(matrix, rtol=RANK))
        numbers += min(len(part), rank * sum(matrix.shape))
    return numbers / sum(sizes)


def _refuse_other_sums(hosts: RecordingHosts) -> None:
    """Raises CheckFailure if the records count other bytes than messages say."""
    lines = Records(hosts.folder).metrics()
    lines = lines[lines["point"] == "after_fit"].set_index("round")
    down = dict.fromkeys(lines.index, 0)
    for order in hosts.orders:
        made = order.number if order.extra else order.number + 1
        sent = [task.message.nbytes for task in order.tasks if task.train or order.extra]
        down[max(1, min(made, ROUNDS))] += sum(sent)
    up = sum(message.nbytes for report in hosts.reports for message in (report.upload, report.answer) if message)
    if lines["bytes_down"].to_dict() != down or lines["bytes_up"].sum() != up:
        raise CheckFailure("the records count other bytes than the messages have: build messages by Message and Upload")


def uploads(hosts: RecordingHosts) -> list[Sent]:
    return [sent for sent in hosts.sent if sent.direction == "up"]


def messages_of(hosts: RecordingHosts, number: int) -> list[Sent]:
    """What was sent to those that trained in an exchange."""
    return [sent for sent in hosts.sent if sent.direction == "down" and sent.number == number]
