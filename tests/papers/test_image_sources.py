"""Where sets of images are."""

from pathlib import Path

import pytest

from fedbench.errors import ConfigError
from fedbench_papers.image_sources import read_sources, source_keys

KNOWN = ["cifar10", "fmnist"]


def test_a_set_is_where_it_was_said_to_be(tmp_path: Path):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "train.parquet").touch()
    (tmp_path / "fmnist").mkdir()
    (tmp_path / "other").mkdir()
    found = read_sources([str(tmp_path)], KNOWN)
    assert found.keys() == {"cifar10", "fmnist"}
    assert source_keys("cifar10", found) == {"data.name": f"parquet:{tmp_path}/cifar10"}
    assert source_keys("fmnist", found) == {"data.name": "fmnist", "data.root": f"{tmp_path}/fmnist"}
    assert source_keys("svhn", found) == {"data.name": "svhn"}
    assert source_keys("cifar10", read_sources(["cifar10=digits"], KNOWN)) == {"data.name": "digits"}


@pytest.mark.parametrize(
    ("text", "line"),
    [("cifar=x", "unknown set 'cifar'; .*cifar10"), ("cifar10=", "WHERE is missing"), ("/nowhere", "no folder")],
)
def test_mistakes_are_refused(text, line):
    with pytest.raises(ConfigError, match=f"--sources {text}: {line}"):
        read_sources([text], KNOWN)
