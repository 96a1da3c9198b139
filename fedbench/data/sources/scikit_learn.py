"""Sets that come with scikit-learn.

digits: 1,797 handwritten digits, greyscale images of 8x8. diabetes: 442 patients with 10 features, and the disease
progression after one year (Efron, Hastie, Johnstone and Tibshirani, "Least angle regression", Annals of Statistics
2004). Every fifth sample (index % 5 == 4) is for testing.
"""

from functools import partial

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
    test = is_test_row(np.arange(len(digits.target)))
    pixels, labels = (digits.images * 15).astype(np.uint8)[:, None], digits.target.astype(np.int64)
    blocks = [Block(pixels[part], labels[part]) for part in (~test, test)]
    return Content(int((~test).sum()), int(test.sum()), blocks, classes=10, class_names=tuple("0123456789"))


def read_diabetes() -> Content:
    """Targets are standardised by the training part."""
    from sklearn.datasets import load_diabetes

    features, progress = load_diabetes(return_X_y=True, scaled=False)
    test = is_test_row(np.arange(len(features)))
    targets = (progress - progress[~test].mean()) / progress[~test].std()
    blocks = [Block(features[part].astype(np.float32), targets[part]) for part in (~test, test)]
    learnt = partial(read_targets, task="regression")
    return Content(int((~test).sum()), int(test.sum()), blocks, targets=learnt)
