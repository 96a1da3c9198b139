"""The folder of a run that has not begun."""

from pathlib import Path

import pytest

from fedbench.config import Config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(Config(method="fedcac", rounds=3, seeds=[0, 1]).to_yaml())
    return tmp_path


@pytest.fixture(autouse=True)
def no_account(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
