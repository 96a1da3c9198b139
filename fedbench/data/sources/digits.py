"""scikit-learn's handwritten digits: 1,797 greyscale images of 8x8, included in the library."""

import numpy as np

from fedbench.config import DataConfig, Section
from fedbench.data.cache import Block, Content, OnProgress, Source
from fedbench.errors import ConfigError


class Options(Section):
    """No options."""


def source(config: DataConfig, options: Options, progress: OnProgress | None) -> Source:
    if config.root:
        raise ConfigError(f"data.root = {str(config.root)!r}: digits come with scikit-learn and need no folder")
    return Source("digits", read)


def read() -> Content:
    """Every fifth image (index % 5 == 4) is a test image. Values 0..16 are multiplied by 15."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = (digits.images * 15).astype(np.uint8)[:, None]
    test = np.arange(len(pixels)) % 5 == 4
    blocks = [Block(pixels[part], digits.target[part].astype(np.int64)) for part in (~test, test)]
    return Content(int((~test).sum()), int(test.sum()), blocks, classes=10, class_names=tuple("0123456789"))
