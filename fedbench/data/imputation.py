"""What stands for missing values: medians of training samples, for each client its own."""

import numpy as np
import pandas as pd

from fedbench.data.dataset import Dataset
from fedbench.data.partitions.rows import Partition


def medians_of(dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """The value of every column for each owner of samples, float32 [owners, columns]; None if no value is missing.

    Owners are the clients, the newcomers after them, and the public set as the last one. The value is the median of the
    client's training samples, or of the public ones; that of `means_of` where all of these are missing.
    """
    if not dataset.void:
        return None
    public = np.zeros(0, np.int64) if partition.public is None else partition.public
    parts = [clients.parts["train"] for clients in (partition.clients, partition.newcomers)]
    rows = np.concatenate([*(rows for rows, _ in parts), public])
    sizes = np.concatenate([*(sizes for _, sizes in parts), [len(public)]])
    void, owners = [*dataset.void], np.repeat(np.arange(len(sizes)), sizes)
    medians = pd.DataFrame(dataset.samples[rows][:, void]).groupby(owners).median().reindex(range(len(sizes)))
    fills = np.tile(means_of(dataset), (len(sizes), 1))
    fills[:, void] = np.where(medians.isna(), fills[:, void], medians)
    return fills


def means_of(dataset: Dataset) -> np.ndarray:
    """What stands for a missing value where no sample has one: the mean of the constants, 0 after standardisation."""
    return np.array(dataset.mean, np.float32)
