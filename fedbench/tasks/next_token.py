"""Next-token prediction: scores of all tokens at each position, against the token that comes next."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedbench.errors import ConfigError
from fedbench.tasks.metric import Metric
from fedbench.tasks.outcomes import pseudo_values
from fedbench.tasks.targets import TargetError, Targets
from fedbench.tasks.task import Score, Task, reduce_counted

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedbench.tasks.targets import Array

IGNORED = -100
"""The target of positions that do not count, as in PyTorch and Hugging Face."""


PADDED = 0.2
"""Share of rows that end in one token repeated from which on it is said."""


class NextToken(Task):
    """Targets int64 `[b, T]`, outputs logits `[b, T, V]`.

    The data set has shifted the targets: that of position t is the token after input t, or -100 where none counts, such
    as at the end and on padding. Weights are numbers of tokens that count, so that clients can be pooled.
    """

    name = "next-token"
    metrics = (
        Metric("perplexity", "perplexity", higher=False, log_mean=True, least=1.0),
        Metric("token_accuracy", "token accuracy", share=True),
        Metric("loss", "cross-entropy per token", higher=False, least=0.0),
    )
    by_position = True
    meaning = "a token at each position"
    outputs_are = "logits"

    def read_targets(self, values: "Array", names: Sequence[str] = (), classes: int | None = None) -> Targets:
        """classes: the size of the vocabulary; by default as many as there are target tokens."""
        if values.ndim != 2 or values.dtype.kind not in "iu":
            what = f"{values.dtype} {list(values.shape[1:])}"
            raise ConfigError(
                f"data.task = next-token: targets are whole numbers [T], the token after each input token; these are "
                f"{what}"
            )
        count = classes or len(names) or int(values.max()) + 1
        wrong = ((values < 0) | (values >= count)) & (values != IGNORED)
        if wrong.any():
            row = int(wrong.any(1).argmax())
            raise TargetError(
                row,
                f"target token {values[row][wrong[row]][0]}: 0 to {count - 1} are tokens, {IGNORED} does not count",
            )
        return Targets(values, names=tuple(names), outputs=count, remarks=padding_remarks(values))

    def output_shapes(self, target: tuple[int, ...], outputs: int) -> Sequence[tuple[int | None, ...]]:
        return [(*target, None)]

    def refusal(self, samples: "Array", targets: "Array") -> str | None:
        counted = targets != IGNORED
        if samples.shape == targets.shape and counted.any() and (samples[counted] == targets[counted]).all():
            return (
                "the targets are the input tokens themselves; give each position the token after it: "
                "targets[:-1] = inputs[1:], targets[-1] = -100"
            )
        if samples.shape == targets.shape and samples.shape[1] > 2:
            before, after = targets[:, 1:], samples[:, :-1]
            counted = before != IGNORED
            if counted.any() and (before[counted] == after[counted]).all():
                return (
                    "the targets are the tokens before the inputs, which the model has seen; give each position the "
                    "token after it: inputs = tokens[:-1], targets = tokens[1:]"
                )
        return None

    def loss(self, outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
        """Cross-entropy of the tokens that count (see `reduce_counted`)."""
        return reduce_counted(_losses(outputs, targets), targets != IGNORED, reduction)

    def score(
        self, batches: Iterable[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> Score:
        """Sums over tokens in float64; empty if none counts. Outputs that are NaN predict nothing."""
        import torch

        hits, losses, counts = [], [], []
        for outputs, targets in batches:
            outputs, counted = outputs.to(dtype), targets != IGNORED
            right = (outputs.argmax(2) == targets) & ~outputs.isnan().any(2)
            hits.append((right & counted).sum())
            losses.append(_losses(outputs, targets).sum(dtype=torch.float64))
            counts.append(counted.sum())
        loss, count = torch.stack(losses).sum(), int(torch.stack(counts).sum())
        if not count:
            return {}
        return {
            "perplexity": (float((loss / count).exp()) * count, count),
            "token_accuracy": (int(torch.stack(hits).sum()), count),
            "loss": (float(loss), count),
        }

    def outcomes(
        self, batches: Sequence[tuple["Tensor", "Tensor"]], dtype: "torch.dtype", by_batches: bool = False
    ) -> "dict[str, Tensor]":
        """Of every sample, by the tokens that are left without its own."""
        import torch

        each = []
        for outputs, targets in batches:
            outputs, counted = outputs.to(dtype), targets != IGNORED
            right = (outputs.argmax(2) == targets) & ~outputs.isnan().any(2) & counted
            each.append(torch.stack([part.double().sum(1) for part in (_losses(outputs, targets), right, counted)]))
        losses, hits, counts = torch.cat(each, 1)
        left, whole = counts.sum() - counts, counts.sum()
        loss, accuracy = ((sums.sum() - sums) / left for sums in (losses, hits))  # NaN if no token is left
        return {
            "perplexity": pseudo_values(float((losses.sum() / whole).exp()), loss.exp()),
            "token_accuracy": pseudo_values(float(hits.sum() / whole), accuracy),
            "loss": pseudo_values(float(losses.sum() / whole), loss),
        }


def _losses(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Cross-entropy `[b, T]`, 0 where nothing counts."""
    from torch.nn.functional import cross_entropy

    losses = cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view_as(targets)


TASK = NextToken()


def padding_remarks(targets: "Array") -> tuple[str, ...]:
    """A line if many targets [n, T] end in one token repeated, as where texts are padded to one length."""
    import numpy as np

    tokens, counts = np.unique(targets[:, -1], return_counts=True)
    token = int(tokens[counts.argmax()])
    run = np.cumprod(targets[:, ::-1] == token, axis=1).sum(1)  # of each row, from its end
    if token == IGNORED or (run > 1).sum() < PADDED * len(targets):
        return ()
    return (
        f"target token {token} ends {(run > 1).sum()} of {len(targets)} rows, {run.sum()} times in all, and counts; if "
        f"it is padding, give {IGNORED} there",
    )
