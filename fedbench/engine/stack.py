"""The engine that steps several clients at once: their weights are the rows of matrices `[K, N]`.

K is the same in every step, whoever takes part, and a client's row follows from its number, because the position of a
row may affect how its products are summed. So its bits depend on K and its number only, not on the other rows. Batches
of the run's size are stepped together; smaller batches at the end of an epoch are stepped alone. With K = 1 every step
is one client's, by the operations of the loop.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench.engine.cursor import BatchCursor, FitRequest
from fedbench.engine.fit import Fit
from fedbench.engine.group import Group, Kind
from fedbench.engine.row_engine import RowEngine


class Stack(RowEngine):
    """One step of a batch of every client."""

    def group(self, kind: Kind, like: Fit) -> "StackGroup":
        return StackGroup(self, self.rows, kind, like, self.refusals)


class StackGroup(Group[BatchCursor]):
    """Fits whose steps are taken together."""

    stacked = True

    def cursor(self, request: FitRequest) -> BatchCursor:
        return BatchCursor(self.engine, request)

    def run(self, cursors: Sequence[BatchCursor]) -> None:
        going = list(cursors)
        while going:
            for cursor in going:
                while cursor.next is not None and (self.rows.count == 1 or not cursor.is_full):
                    self._step_alone(cursor)
            going = [cursor for cursor in going if cursor.next is not None]
            if going:
                self._step_together(going)

    def _step_together(self, cursors: Sequence[BatchCursor]) -> None:
        rows, batches = self.rows, [cursor.take() for cursor in cursors]
        own = [cursor.row for cursor in cursors]
        others = [row for row in range(rows.count) if row not in set(own)]
        index, *tensors = (
            stack_rows(parts, own, rows.count)
            for parts in zip(*((batch.index, *batch.tensors) for batch in batches), strict=True)
        )
        changing = [rows.w, rows.momentum, *rows.buffers, *rows.counters, *self.needs.values()]
        kept = [(whole, whole[others]) for whole in changing] if others else []
        losses, logged = self.move(None, index, tensors)
        for whole, before in kept:
            whole[others] = before
        if others:
            rows.losses[own] += losses[own]
        else:
            rows.losses.add_(losses)
        values = [value.unbind(0) for value in logged]
        for cursor, batch in zip(cursors, batches, strict=True):
            cursor.log(
                self.step.logs.calls, [value[cursor.row] for value in values], len(batch.index), batch.ends_epoch
            )

    def _step_alone(self, cursor: BatchCursor) -> None:
        batch = cursor.take()
        loss, logged = self.move(cursor.row, batch.index, batch.tensors)
        self.rows.losses[cursor.row].add_(loss)
        cursor.log(self.step.logs.calls, logged, len(batch.index), batch.ends_epoch)


def stack_rows(parts: Sequence[Tensor], rows: Sequence[int], width: int) -> Tensor:
    """Tensors of some rows as one tensor of all rows; the values of other rows are arbitrary."""
    filled = [parts[0]] * width
    for row, part in zip(rows, parts, strict=True):
        filled[row] = part
    return torch.stack(filled)
