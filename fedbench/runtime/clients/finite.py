"""Finds values of a client's result that are not finite; the result is then left out."""

from math import isfinite, isnan

import torch

from fedbench.engine.learner import Learner
from fedbench.methods.messages import Message, Upload
from fedbench.module.weights import Weights


def what_diverged(upload: Upload, learner: Learner, samples: int = 0) -> str | None:
    """Names what is not finite of a fit or its upload. samples: of the client for training."""
    if line := loss_that_diverged(learner, samples):
        return line
    if upload.trained is not None and not learner.ledger.is_finite(upload.trained):
        return f"the trained model holds values that are not finite: lower {rate_name(learner)}"
    return what_is_not_finite(upload, "upload", known=upload.trained)


def loss_that_diverged(learner: Learner, samples: int = 0) -> str | None:
    """Says that the training loss of a fit is not finite, if so. samples: of the client for training."""
    loss = learner.ledger.loss
    if loss is None or isfinite(loss):
        return None
    size = learner.train.batch_size
    single = isnan(loss) and (samples if size == "full" else samples % size if size > 1 else 0) == 1
    where = ", perhaps in a batch of 1 sample, which has no deviation (change train.batch_size)" if single else ""
    return f"the training loss became {loss}{where}: lower {rate_name(learner)}"


def rate_name(learner: Learner) -> str:
    """Names the place where the user sets the learning rate of the steps."""
    if not learner.ledger.own_rate:
        return "train.lr"
    return f"train.lr_scale, or the rate in {type(learner.module).__name__}.configure_optimizers"


def what_is_not_finite(message: Message, what: str, known: Weights | None = None) -> str | None:
    """Names a tensor of a message with values that are not finite. known: weights already checked."""
    for name, tensor in message.tensors.items():
        seen = known is not None and tensor.data_ptr() == known.params.data_ptr()
        if not tensor.is_floating_point() or not tensor.numel() or seen:
            continue
        # A constant buffer, such as a mask, may be infinite.
        if bool(tensor.isnan().any()) if name == "buffers" else not bool(torch.isfinite(tensor.sum())):
            return f"the {what}'s {name} holds values that are not finite"
    return None
