"""scikit-learn's diabetes data: 442 patients with 10 features, and the disease progression after one year.

Source: Efron, Hastie, Johnstone and Tibshirani, "Least angle regression", Annals of Statistics 2004.
"""

from functools import partial

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError


class Options(Section):
    """No options."""


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    if config.root:
        raise ConfigError(f"data.root = {str(config.root)!r}: diabetes comes with scikit-learn and needs no folder")
    return Source("diabetes", read)


def read() -> Content:
    """Every fifth patient (index % 5 == 4) is for testing. Targets are standardised by the training part."""
    from sklearn.datasets import load_diabetes

    features, progress = load_diabetes(return_X_y=True, scaled=False)
    test = np.arange(len(features)) % 5 == 4
    targets = (progress - progress[~test].mean()) / progress[~test].std()
    blocks = [Block(features[part].astype(np.float32), targets[part]) for part in (~test, test)]
    learnt = partial(read_targets, task="regression")
    return Content(int((~test).sum()), int(test.sum()), blocks, targets=learnt)
