"""FedAMP's weights: how much of every client's model goes into the mixture of each, by how alike they are."""

import numpy as np
import torch
from torch import Tensor


def squared_distances(products: Tensor) -> Tensor:
    """|w_i - w_j|^2 `[M, M]` from the products w_i w_j."""
    norms = products.diagonal()
    return (norms[:, None] + norms - 2 * products).clamp_(min=0).fill_diagonal_(0)


def attention(squared: Tensor, alpha: float, sigma: float) -> tuple[Tensor, bool]:
    """xi `[M, M]` of Algorithm 1 from squared distances, and whether a row's own weight would have been negative."""
    # NumPy, because the order of a torch sum depends on the number of threads.
    xi = alpha / sigma * np.exp(-squared.numpy() / sigma)
    np.fill_diagonal(xi, 0)
    others = xi.sum(1, keepdims=True)
    xi /= np.maximum(others, 1)
    np.fill_diagonal(xi, np.maximum(1 - others[:, 0], 0))
    return torch.from_numpy(xi), bool((others > 1).any())


def softmax_of_cosines(products: Tensor, sigma: float, own: float) -> Tensor:
    """xi `[M, M]` of HeurFedAMP: `own` for oneself, the rest by exp(sigma cos(w_i, w_j)) among the others."""
    p = products.numpy()
    if len(p) == 1:
        return torch.ones_like(products)
    norms = np.sqrt(p.diagonal().clip(min=0))
    scale = np.outer(norms, norms)
    scores = sigma * np.divide(p, scale, out=np.zeros_like(p), where=scale > 0)
    np.fill_diagonal(scores, -np.inf)
    xi = np.exp(scores - scores.max(1, keepdims=True))
    xi *= (1 - own) / xi.sum(1, keepdims=True)
    np.fill_diagonal(xi, own)
    return torch.from_numpy(xi)
