"""The folder of a run that has not begun."""

from pathlib import Path

import pytest

from fedbench.config import Config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(Config(method="fedcac", rounds=3, seeds=[0, 1]).to_yaml())
    return tmp_path
