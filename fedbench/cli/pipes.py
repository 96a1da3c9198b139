"""Files that the shell hands over as pipes, such as `--partition.path <(make-partition)`.

A pipe can be read once and by one process, but runs read such a file several times, in several processes, and again
when they continue. So its content is kept in the cache.
"""

import logging
from hashlib import sha256
from pathlib import Path

from fedbench import cache_folder
from fedbench.config import Config
from fedbench.errors import ConfigError

log = logging.getLogger("fedbench")

FOLDER = "pipes"
HANDED_OVER = (Path("/dev/fd"), Path("/proc/self/fd"))
"""Where shells put pipes that have a writer."""
ZIP = b"PK\x03\x04"


def keep_piped_files(config: Config) -> None:
    """Replace the pipes among the files that a configuration names by files of the same content. Raises ConfigError."""
    if config.partition.path is not None:
        config.partition.path = _save_pipe(config.partition.path, "partition.path", zipped=".npz", other=".json")
    if config.model.weights is not None:
        config.model.weights = _save_pipe(config.model.weights, "model.weights", zipped=".pt", other=".safetensors")


def _save_pipe(path: Path, key: str, zipped: str, other: str) -> Path:
    """The path, or that of a file with the content of the pipe there. zipped, other: the endings of the two formats."""
    try:
        if not path.is_fifo():
            return path
        if path.parent not in HANDED_OVER:
            log.info("%s = %s: waiting for somebody who writes into this pipe", key, path)
        from fedbench.results.files import write_atomically  # slow to import, and pipes are rare

        content = path.read_bytes()
        kept = (
            cache_folder.root()
            / FOLDER
            / f"{sha256(content).hexdigest()[:16]}{zipped if content[:4] == ZIP else other}"
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, content)
    except OSError as error:
        raise ConfigError(f"{key} = {path}: the pipe cannot be read and kept ({error.strerror})") from None
    return kept
