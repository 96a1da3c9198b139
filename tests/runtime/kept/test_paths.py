"""The names of folders and files of kept models."""

import pytest

from fedbench.config import Config
from fedbench.runtime.kept.paths import base_file


@pytest.mark.parametrize(
    ("names", "model", "file"),
    [
        ("mlp", "mlp", "base.safetensors"),
        ("mlp,mlp", "mlp", "base.safetensors"),
        ("mlp,avgcnn,mlp", "mlp", "base-0.safetensors"),
        ("mlp,mlp,avgcnn", "avgcnn", "base-1.safetensors"),
    ],
)
def test_clients_with_one_model_share_a_base(names, model, file):
    assert base_file(Config(model={"name": names}), model) == file
