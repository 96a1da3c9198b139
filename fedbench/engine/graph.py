"""The engine that captures the gradient step of a client as a CUDA graph and replays it, several clients at a time.

A graph holds a whole step on memory that never moves: it takes the next batch out of a buffer, computes the loss and
the gradient, edits it and steps. Every row has its own stream, so that clients compute at the same time. A replay does
the same operations as the loop on one client's tensors: the bits are those of the loop, for any width. A new step is
compared with its replay; if they differ, or it cannot be captured, the loop does these fits and one line says why.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.cursor import Batch, Cursor, Size, gather_batches
from fedbench.engine.fit import Fit
from fedbench.engine.flat_optimizers import step_sgd
from fedbench.engine.graph_stream import GraphStream
from fedbench.engine.group import Group, StepTensors, as_row
from fedbench.engine.kind import Kind
from fedbench.engine.row_engine import RowEngine
from fedbench.engine.row_step import UnsupportedFitError
from fedbench.errors import first_line
from fedbench.module.weights import Weights

FREQUENT = 4
"""Batches of a size that a row has to have seen before its step is captured."""

ROOM_BYTES = 16 << 20
MOST_BATCHES = 64
"""Limits of the batches that are gathered at once."""

PACE = 8
"""Replays of a client before the next one's turn: enough to spare Python, too few to leave other clients waiting."""


class Graph(RowEngine):
    """One replay per step of a client. `train.width` clients train at the same time."""

    aligned = True

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.lot = -(-self.width // 2)  # while one half computes, Python prepares the other
        self.streams = [GraphStream(self.flat.device) for _ in range(self.width)]

    def new_group(self, kind: Kind, like: Fit) -> "GraphGroup":
        return GraphGroup(self, kind, like)

    def row_of(self, client: int, index: int) -> int:
        return index % self.width


class GraphGroup(Group):
    """The captured steps of fits of one kind, by row and size of the batch."""

    stacked = False

    def __init__(self, engine: Graph, kind: Kind, like: Fit) -> None:
        super().__init__(engine, engine.rows, kind, like, engine.refusals)
        self._streams, self._steps = engine.streams, dict[tuple[int, Size], CapturedStep]()
        self._seen, self._last_rate = Counter[tuple[int, Size]](), 0.0

    def set_rate(self, rate: float) -> None:
        if rate != self._last_rate:
            for stream in self._streams:  # steps under way read the last one
                stream.lead()
            super().set_rate(rate)
            self._last_rate = rate

    def update(self, state: StepTensors) -> None:
        sgd, buffers = self.kind.optimizer, list[Tensor | None](state.states.values())
        step_sgd([state.w], [state.g], buffers, lr=state.rate, momentum=sgd.momentum, weight_decay=sgd.weight_decay)

    def run(self, cursors: Sequence[Cursor]) -> None:
        for cursor in cursors:
            self._prepare(cursor)
        going = [cursor for cursor in cursors if cursor.sizes]
        self._fill(going)
        try:
            while going:
                if empty := [cursor for cursor in going if self._needs_batches(cursor)]:
                    self.wait(empty)
                    self._fill(empty)
                for cursor in going:
                    self._advance(cursor)
                going = [cursor for cursor in going if cursor.done < len(cursor.sizes)]
        except BaseException:
            self.wait(cursors)
            raise

    def end(self, cursors: Sequence[Cursor]) -> list[Weights | BaseException]:
        self.wait(cursors)
        return super().end(cursors)

    def last_logs(self, cursor: Cursor) -> list[Tensor]:
        for size in set(cursor.sizes):
            if (captured := self._steps.get((cursor.row, size))) is not None:
                cursor.logs_of[size] += captured.logs()
        return super().last_logs(cursor)

    def wait(self, cursors: Sequence[Cursor]) -> None:
        for cursor in cursors:
            self._streams[cursor.row].lead()

    def _prepare(self, cursor: Cursor) -> None:
        """Captures the steps of this fit that are frequent."""
        for size, count in Counter(cursor.sizes).items():
            key = cursor.row, size
            self._seen[key] += count
            if key not in self._steps and self._seen[key] >= FREQUENT:
                try:
                    self._steps[key] = self._capture_step(cursor.row, cursor.look(size))
                except UnsupportedFitError as error:
                    self._refusals[self.kind] = str(error)  # is not tried again in every round
                    raise
            if key in self._steps:
                self._steps[key].empty()

    def _fill(self, cursors: Sequence[Cursor]) -> None:
        """Gathers the next batches of these fits into the feeds that are empty, all batches of one size at once.

        Their steps then wait for the batches.
        """
        for size in {size: None for cursor in cursors for size in cursor.waiting}:
            steps = [(cursor, self._steps.get((cursor.row, size))) for cursor in cursors if cursor.waiting.get(size)]
            empty = [(cursor, step) for cursor, step in steps if step is not None and not step.left]
            taken = []
            for cursor, step in empty:
                if step.filled:
                    cursor.logs_of[size] += [logs.clone() for logs in step.logs()]  # its memory is used again
                taken.append((cursor, cursor.take(size, step.feed.room)))
                step.filled = step.left = len(taken[-1][1])
            if taken:
                fill_feeds([step.feed for _, step in empty], [step.filled for _, step in empty], gather_batches(taken))
        for cursor in cursors:
            self._streams[cursor.row].follow()

    def _needs_batches(self, cursor: Cursor) -> bool:
        """Whether the feed of a fit's next step is empty."""
        step = self._steps.get((cursor.row, cursor.sizes[cursor.done]))
        return step is not None and not step.left

    def _capture_step(self, row: int, batch: Batch) -> "CapturedStep":
        """A step that leaves the same bits as its replay. Raises UnsupportedFitError."""
        stream, feed = self._streams[row], Feed(batch)
        rows = (
            self.rows.w,
            self.rows.g,
            self.rows.losses,
            *self.rows.states.values(),
            *self.rows.buffers,
            *self.rows.counters,
        )
        state = [whole[row] for whole in (*rows, *self.needs.values())]
        fill_feeds([feed], [1], Batch(batch.index[None], [tensor[None] for tensor in batch.tensors]))
        before = [tensor.clone() for tensor in state]
        stream.follow()

        def step() -> None:
            self._move_on(row, feed)

        def after(work: Callable[[], None]) -> list[Tensor]:
            work()
            copies = [tensor.clone() for tensor in state]
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
            feed.at.zero_()
            return copies

        try:
            with stream.active():
                with stream.without_waiting():
                    expected = after(step)
                replay = stream.capture(step)
                actual = after(replay)
        except RuntimeError as error:
            raise UnsupportedFitError(f"its step cannot be captured: {first_line(error)}") from error
        finally:
            stream.lead()
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(expected, actual, strict=True)):
            raise UnsupportedFitError("a replay of its step gives other bits than the step")
        return CapturedStep(feed, replay)

    def _move_on(self, row: int, feed: "Feed") -> None:
        """The step on the next batch of a feed."""
        batch = feed.current()
        feed.note(self.move(row, batch.index, batch.tensors))
        feed.at.add_(1)

    def _advance(self, cursor: Cursor) -> None:
        """Takes the next steps of a fit, some at a time, until its feed is empty."""
        row = cursor.row
        with self._streams[row].active():
            for size in cursor.sizes[cursor.done : cursor.done + PACE]:
                captured = self._steps.get((row, size))
                if captured is None:
                    batch = gather_batches([(cursor, cursor.take(size, 1))])
                    logged = self.move(row, batch.index[0], [tensor[0] for tensor in batch.tensors])
                    cursor.logs_of[size].append(as_row(logged))
                elif captured.left:
                    captured.replay()
                    captured.left -= 1
                else:
                    return
                cursor.done += 1


@dataclass
class CapturedStep:
    """A step on the batches of a feed. filled: batches in the feed; left: those of them without a step so far."""

    feed: "Feed"
    replay: Callable[[], None]
    filled: int = 0
    left: int = 0

    def empty(self) -> None:
        self.filled = self.left = 0

    def logs(self) -> Sequence[Tensor]:
        """The logs `[L]` of the steps since it was filled, in the feed's memory."""
        return self.feed.logs[: self.filled].unbind(0) if self.feed.logs is not None else ()


class Feed:
    """Memory for `room` batches of one size.

    whole: index and tensors `[room, b, ...]`; at: the number of the next batch, int64 `[1]`; logs: `[room, L]`.
    """

    def __init__(self, like: Batch) -> None:
        size = max(1, sum(tensor.nbytes for tensor in like.tensors))
        self.room = min(MOST_BATCHES, max(1, ROOM_BYTES // size))
        self.at = torch.zeros(1, dtype=torch.int64, device=like.index.device)
        self.logs: Tensor | None = None
        self._like = [like.index, *(tensor if is_dense(tensor) else tensor.contiguous() for tensor in like.tensors)]
        self._flat = [tensor.new_zeros(self.room, tensor.numel()) for tensor in self._like]
        # In the layout of a single batch, which decides the order of its sums.
        self.whole = [
            flat.as_strided((self.room, *like.shape), (flat.stride(0), *like.stride()))
            for flat, like in zip(self._flat, self._like, strict=True)
        ]

    def current(self) -> Batch:
        """The next batch, as new tensors."""
        index, *tensors = (
            flat.index_select(0, self.at).as_strided(like.shape, like.stride())
            for flat, like in zip(self._flat, self._like, strict=True)
        )
        return Batch(index, tensors)

    def note(self, logged: Sequence[Tensor]) -> None:
        if logged:
            row = as_row(logged)
            if self.logs is None:
                self.logs = row.new_zeros(self.room, len(row))
            self.logs.index_copy_(0, self.at, row.unsqueeze(0))


def fill_feeds(feeds: Sequence[Feed], counts: Sequence[int], batches: Batch) -> None:
    """Gives each feed so many of the batches `[n, b, ...]`; its next step is on the first of them."""
    for number, given in enumerate((batches.index, *batches.tensors)):
        room = [feed.whole[number][:count] for feed, count in zip(feeds, counts, strict=True)]
        torch._foreach_copy_(room, given.split(list(counts)))
    torch._foreach_zero_([feed.at for feed in feeds])


def is_dense(tensor: Tensor) -> bool:
    """Whether the tensor fills its memory without gaps or overlaps."""
    return sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1 == tensor.numel()
