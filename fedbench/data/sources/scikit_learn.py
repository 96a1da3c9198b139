"""Sets that come with scikit-learn.

digits: 1,797 handwritten digits, greyscale images of 8x8. diabetes: 442 patients with 10 features, and the disease
progression after one year (Efron, Hastie, Johnstone and Tibshirani, "Least angle regression", Annals of Statistics
2004). Every fifth sample (index % 5 == 4) is for testing.
"""

from functools import partial
from typing import Any

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.data.reading.parts import is_test_row
from fedbench.data.reading.targets import read_targets
from fedbench.errors import ConfigError

Options = Section


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    if config.root:
        origin = "come with scikit-learn and need" if config.name == "digits" else "comes with scikit-learn and needs"
        raise ConfigError(f"data.root = {str(config.root)!r}: {config.name} {origin} no folder")
    return Source(config.name, read_digits if config.name == "digits" else read_diabetes)


def read_digits() -> Content:
    """Values 0..16 are multiplied by 15."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = (digits.images * 15).astype(np.uint8)[:, None]
    return fifth_for_testing(pixels, digits.target.astype(np.int64), classes=10, class_names=tuple("0123456789"))


def read_diabetes() -> Content:
    """Targets are standardised by the training part."""
    from sklearn.datasets import load_diabetes

    features, progress = load_diabetes(return_X_y=True, scaled=False)
    train = progress[~is_test_row(np.arange(len(progress)))]
    targets = (progress - train.mean()) / train.std()
    return fifth_for_testing(features.astype(np.float32), targets, targets=partial(read_targets, task="regression"))


def fifth_for_testing(samples: np.ndarray, values: np.ndarray, **more: Any) -> Content:
    test = is_test_row(np.arange(len(samples)))
    blocks = [Block(samples[part], values[part]) for part in (~test, test)]
    return Content(int((~test).sum()), int(test.sum()), blocks, official=True, **more)
