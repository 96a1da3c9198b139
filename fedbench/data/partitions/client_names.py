"""Names of clients, where the data gives them one."""

import numpy as np

from fedbench.data.dataset import Dataset
from fedbench.data.partitions.rows import Partition


def client_names(dataset: Dataset, dealt: Partition) -> list[str]:
    """The name of every client: its domain, if it alone has samples of that domain and none of another; else empty."""
    if dataset.domains is None:
        return [""] * len(dealt.clients)
    domains = [np.unique(dataset.domains[np.concatenate([own.train, own.val, own.test])]) for own in dealt.clients]
    holders = np.bincount(np.concatenate([np.zeros(0, np.int64), *domains]), minlength=len(dataset.domain_names))
    return [dataset.domain_names[ids[0]] if len(ids) == 1 and holders[ids[0]] == 1 else "" for ids in domains]
