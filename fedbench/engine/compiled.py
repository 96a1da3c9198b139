"""The engine that compiles the gradient step of several clients into one function, for tiny models on a processor.

The clients' weights are the rows of matrices `[K, N]`. K is the same in every step, whoever takes part, and a client's
row follows from its number, so its bits depend on K and its number only, not on the other rows. Where the loss of a
batch is the mean of its samples' losses, smaller batches at the end of an epoch are filled up with samples of weight 0;
elsewhere, as with batch normalisation, they are stepped one client at a time, uncompiled. The compiler is PyTorch's
inductor, whose cache on this machine all processes share.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.flop_counter import FlopCounterMode

from fedbench.engine.cursor import BatchPlaces, Cursor, Size, Taken, gather_batches, gather_samples
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group, StepTensors, as_row
from fedbench.engine.kind import Kind
from fedbench.engine.row_engine import RowEngine
from fedbench.engine.row_optimizers import STATES
from fedbench.engine.row_step import UnsupportedFitError, is_mean_of_samples, reads_all_of
from fedbench.engine.rows import over_rows, views_of
from fedbench.errors import first_line
from fedbench.module.weights import Weights

Program = Callable[..., Sequence[Tensor]]
"""A step of all rows on its tensors; returns the logs `[K, L]` if there are any."""

Compiler = Callable[[Program, Sequence[Tensor]], Program]
"""Makes a faster function of one and its arguments."""

BUFFER = "buffer "
"""How the names of the model's buffers begin among what a step changes."""

ROOM_BYTES = 4 << 20
MOST_STEPS = 64
"""Limits of the batches that are gathered at once."""


def compile_function(function: Program, example: Sequence[Tensor]) -> Program:
    """Traces a function of tensors and compiles it for these shapes."""
    from torch._inductor import config, standalone_compile  # takes two seconds, which other engines need not wait for

    with config.patch({"cpp.threads": 1}):  # the bits do not depend on the threads of a process
        # Fake tensors are traced faster; the module's own tensors that are no buffers are constants.
        graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
        transpose_factors(graph)
        return standalone_compile(graph, list(example), dynamic_shapes="from_example_inputs")


def transpose_factors(module: GraphModule) -> None:
    """Replaces products of matrices that nothing but a transpose reads by products of the transposes.

    The gradient of a linear layer's weights is such a transpose. It is then written in the order in which the optimiser
    reads it.
    """
    graph, aten = module.graph, torch.ops.aten
    views = (aten.view.default, aten._unsafe_view.default)
    for node in graph.find_nodes(op="call_function", target=aten.transpose.int):
        product = node.args[0]
        while product.target in views and len(product.users) == 1:
            product = product.args[0]
        is_product = product.target == aten.bmm.default and len(product.users) == 1 and set(node.args[1:]) == {1, 2}
        if is_product and product.meta["val"].mT.shape == node.meta["val"].shape:
            with graph.inserting_before(product):  # before anything changes a factor
                factors = [graph.call_function(aten.transpose.int, (factor, 1, 2)) for factor in product.args[::-1]]
                transposed = graph.call_function(aten.bmm.default, tuple(factors))
            transposed.meta = node.meta
            node.replace_all_uses_with(transposed)
    module.recompile()


MOST_MULTIPLY_ADDS = 2_000_000
"""Of a forward pass on a batch, up to which compiled steps of ten clients take at most half the time of the loop."""

UNFIT = (_ConvNd, nn.RNNBase, nn.RNNCellBase)
"""Layers whose compiled steps are slower than the loop's."""


def is_worth_compiling(module: nn.Module, x: Tensor) -> bool:
    """Whether steps on batches like x `[b, ...]` can be compiled and are faster then; measures no time."""
    if any(isinstance(part, UNFIT) or (isinstance(part, _DropoutNd) and part.p) for part in module.modules()):
        return False
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    return counter.get_total_flops() <= 2 * MOST_MULTIPLY_ADDS


class Compiled(RowEngine):
    """One compiled step of a batch of every client. `train.width` is the number of rows."""

    optimizers = tuple(STATES)
    takes_rules = widens = True
    compiler: ClassVar[Compiler] = staticmethod(compile_function)

    def new_group(self, kind: Kind, like: Fit) -> "CompiledGroup":
        return CompiledGroup(self, self.rows, kind, like, self.refusals)


@contextmanager
def uncompiled_steps() -> Iterator[None]:
    """A block in which steps of several clients are not compiled: the same arithmetic, without waiting."""
    before, Compiled.compiler = Compiled.compiler, staticmethod(lambda function, example: function)
    try:
        yield
    finally:
        Compiled.compiler = before


@dataclass(frozen=True)
class RowBatches:
    """The next steps of several fits, of all rows.

    active: whether a row takes part in a step, bool `[T, K]`; shares: of samples in the loss, `[T, K, b]`, or None if
    every batch is whole; index: places in the fit's data, `[T, K, b]`; tensors: inputs and targets, `[T, K, b, ...]`.
    """

    active: Tensor
    shares: Tensor | None
    index: Tensor
    tensors: Sequence[Tensor]

    def steps(self) -> Iterator[list[Tensor]]:
        """The tensors of each step."""
        shares = [] if self.shares is None else [self.shares]
        return map(
            list, zip(*(part.unbind(0) for part in (self.active, *shares, self.index, *self.tensors)), strict=True)
        )


class CompiledGroup(Group):
    """Fits whose steps are taken together. whole: the size of a whole batch."""

    stacked = True
    engine: Compiled

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.whole = (int(self.engine.train.batch_size), *([self.kind.paired] if self.kind.paired else []))
        self._program: Program | None = None
        self._fills_up, self._most_steps = False, 1

    def run(self, cursors: Sequence[Cursor]) -> None:
        going = [cursor for cursor in cursors if cursor.sizes]
        if going and self._program is None:
            self._look_at(going[0])
        while going:
            for cursor in going:
                while (size := cursor.next_size) is not None and not self._is_stepped_together(size):
                    self._step_alone(cursor, size)
            going = [cursor for cursor in going if cursor.next_size is not None]
            if going:
                self._step_together(going)

    def end(self, cursors: Sequence[Cursor]) -> list[Weights | BaseException]:
        """As of any group; a fit that has diverged is the loop's.

        The loss of a single sample may be no number where that of a batch is one, as without the samples that it
        ignores.
        """
        sums = self.rows.w.sum(1) + self.rows.losses
        finite = [cursor for cursor in cursors if not self._fills_up or bool(sums[cursor.row].isfinite())]
        answers = dict(zip((cursor.row for cursor in finite), super().end(finite), strict=True)) if finite else {}
        return [
            answers[cursor.row] if cursor.row in answers else self.engine.fit_by_loop(cursor.request)
            for cursor in cursors
        ]

    def update(self, state: StepTensors) -> None:
        self.kind.optimizer.step(state.w, state.g, state.states, state.rate)

    def _look_at(self, cursor: Cursor) -> None:
        """Decides by a fit of this kind how batches are made."""
        batch = cursor.first()
        assert batch is not None
        inputs = self.inputs(self.tensors(cursor.row), batch.index, batch.tensors)
        for number, (name, *_) in enumerate(self.kind.needs):
            if name in self.kind.widened and reads_all_of(self.step, inputs, number, self.size_of(cursor, name)):
                raise UnsupportedFitError(f"its loss reads more of {name} than the places of a batch")
        self._fills_up = is_mean_of_samples(self.step, inputs)
        sample = sum(part[:1].nbytes for part in batch.tensors)
        self._most_steps = min(MOST_STEPS, max(1, ROOM_BYTES // (sample * max(self.whole) * self.rows.count)))

    def _is_stepped_together(self, size: Size) -> bool:
        return self._fills_up or size == self.whole

    def _step_alone(self, cursor: Cursor, size: Size) -> None:
        batch = gather_batches([(cursor, cursor.take(size, 1))])
        logged = self.move(cursor.row, batch.index[0], [tensor[0] for tensor in batch.tensors])
        cursor.logs_of[size].append(as_row(logged))
        cursor.done += 1

    def _step_together(self, cursors: Sequence[Cursor]) -> None:
        """Takes the next steps of all of them, each up to the next that is taken alone."""
        taken = [(cursor, self._take_places(cursor)) for cursor in cursors]
        batches = gather_rows(taken, self.rows.count, self.whole, self.rows.w.dtype if self._fills_up else None)
        tensors, logs = self._own_tensors(), list[Tensor]()
        for step in batches.steps():
            if self._program is None:
                self._program = self._compile([*tensors, *step])
            logs += self._program(*tensors, *step)
        for cursor, places in taken:
            for place, logged in zip(places, logs, strict=False):
                cursor.logs_of[place.size].append(logged[cursor.row])
            cursor.done += len(places)

    def _take_places(self, cursor: Cursor) -> list[BatchPlaces]:
        ahead = cursor.sizes[cursor.done : cursor.done + self._most_steps]
        return [place for size in takewhile(self._is_stepped_together, ahead) for place in cursor.take(size, 1)]

    def _own_tensors(self) -> list[Tensor]:
        """What a step of all rows reads and changes beside its batches."""
        return [*self._changing(self.tensors(None)).values(), self.rate, *self._masks()]

    def _changing(self, state: StepTensors) -> dict[str, Tensor]:
        """What a step may change, by name."""
        named = [(f"{BUFFER}{number}", buffer) for number, buffer in enumerate(state.views.buffers)]
        return {"w": state.w, "losses": self.rows.losses, **state.states, **state.needs, **dict(named)}

    def _masks(self) -> list[Tensor]:
        return [part for part in (self.mask, self.start) if part is not None]

    def _compile(self, example: Sequence[Tensor]) -> Program:
        """The step of all rows as one function of tensors, which returns the logs `[K, L]` if there are any."""
        copies = [tensor.clone() for tensor in example]
        try:
            return Compiled.compiler(self._step_rows, copies)
        except Exception as error:
            # Is not tried again, which takes seconds, for every client in every round.
            self._refusals[self.kind] = f"its step cannot be compiled: {first_line(error)}"
            raise UnsupportedFitError(f"its step cannot be compiled: {first_line(error)}") from error

    def _step_rows(self, *tensors: Tensor) -> list[Tensor]:
        whole = self._changing(self.tensors(None))
        given = iter(tensors)
        old = {name: next(given) for name in whole}
        rate, masks, active = next(given), [next(given) for _ in self._masks()], next(given)
        shares = next(given) if self._fills_up else None
        index, *batch = given
        new = {name: tensor.clone() for name, tensor in old.items()}
        versions = {name: tensor._version for name, tensor in new.items()}
        w, g = new["w"], torch.zeros_like(new["w"])
        buffers = [tensor for name, tensor in new.items() if name.startswith(BUFFER)]
        step_tensors = StepTensors(
            w=w,
            g=g,
            views=views_of(self.rows.layout, self.kind.moving, w, g, buffers),
            states={name: new[name] for name in self.states},
            needs={name: new[name] for name in self.needs},
            mask=masks[0] if masks else None,
            start=masks[1] if masks else None,
            rate=rate,
        )
        losses, logged = self.take_step(step_tensors, index, batch, shares)
        with torch.no_grad():
            new["losses"].add_(losses)
            changed = {name for name, tensor in new.items() if tensor._version != versions[name]}
            changed |= {name for name in new if name.startswith(BUFFER)}  # batch normalisation bumps no version
            for name in sorted(changed):
                old[name].copy_(torch.where(over_rows(active, old[name]), new[name], old[name]))
            self.written |= changed & self.needs.keys()
            return [torch.stack([value.double() for value in logged], 1)] if logged else []


def gather_rows(taken: Taken, rows: int, whole: Size, shares: torch.dtype | None) -> RowBatches:
    """The batches at places of several fits. whole: size of a whole batch; shares: their type, if some are smaller."""
    index, tensors = gather_samples(taken)
    sizes = np.zeros((len(taken), max(len(places) for _, places in taken)), np.int64)
    for row_sizes, (_, places) in zip(sizes, taken, strict=True):
        row_sizes[: len(places)] = [place.size[0] for place in places]
    columns = [cursor.row for cursor, _ in taken]
    spread = lambda values: spread_over_rows(values, columns, rows, index.device)  # noqa: E731
    active = sizes > 0
    first, inside = places_in_rows(sizes, whole[0])
    wheres = [spread(first), *(spread(places_in_rows(active * width, width)[0]) for width in whole[1:])]
    parts = [(wheres[0], part) for part in (index, *tensors[:2])] + [(wheres[-1], part) for part in tensors[2:]]
    index, *tensors = (part.index_select(0, at.flatten()).unflatten(0, at.shape) for at, part in parts)
    weights = None if shares is None else spread(inside / np.maximum(sizes, 1)[..., None]).to(shares)
    return RowBatches(spread(active), weights, index, tensors)


def places_in_rows(sizes: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the samples of batches of these sizes `[n, T]` lie among all, one fit after another, `[n, T, width]`.

    Rest: the place of the batch's first sample; also returns what is no rest, bool.
    """
    starts = (sizes.cumsum() - sizes.flatten()).reshape(sizes.shape)
    inside = np.arange(width) < sizes[..., None]
    places = starts[..., None] + np.where(inside, np.arange(width), 0)
    return np.where(sizes[..., None] > 0, places, 0), inside


def spread_over_rows(values: np.ndarray, columns: Sequence[int], rows: int, device: torch.device) -> Tensor:
    """Values `[n, T, ...]` of some rows as `[T, rows, ...]`, 0 in the others."""
    spread = np.zeros((values.shape[1], rows, *values.shape[2:]), values.dtype)
    spread[:, columns] = values.swapaxes(0, 1)
    return torch.from_numpy(spread).to(device)
