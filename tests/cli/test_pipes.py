"""A file that the shell hands over as a pipe is read once and kept."""

import json
import logging
import os
from threading import Thread

import pytest

from fedbench.cli.pipes import keep_piped_files
from fedbench.config import Config

PARTITION = json.dumps({"clients": [{"train": [0, 1], "test": [1600]}]}).encode()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def test_the_pipe_of_a_process_substitution_becomes_a_file():
    reader, writer = os.pipe()
    os.write(writer, PARTITION)
    os.close(writer)
    config = Config(partition={"name": "file", "path": f"/dev/fd/{reader}", "clients": 1})
    keep_piped_files(config)
    os.close(reader)
    assert config.partition.path.read_bytes() == PARTITION
    assert config.partition.path.suffix == ".json"


def test_the_format_is_told_by_the_content_and_a_named_pipe_is_waited_for_with_a_word(tmp_path, caplog):
    os.mkfifo(tmp_path / "pipe")
    config = Config(model={"name": "mlp", "weights": str(tmp_path / "pipe")})
    Thread(target=(tmp_path / "pipe").write_bytes, args=[b"PK\x03\x04 of torch.save"]).start()
    with caplog.at_level(logging.INFO, "fedbench"):
        keep_piped_files(config)
    assert config.model.weights.suffix == ".pt"
    assert caplog.messages == [f"model.weights = {tmp_path / 'pipe'}: waiting for somebody who writes into this pipe"]


def test_other_files_stay_what_they_are(tmp_path):
    config = Config(partition={"name": "file", "path": str(tmp_path / "missing.json")}, model={"name": "mlp"})
    keep_piped_files(config)
    assert config.partition.path == tmp_path / "missing.json"
