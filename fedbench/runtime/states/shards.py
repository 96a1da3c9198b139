"""Private states in checkpoints: a state is written once, to its host's shard, until it changes."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedbench.results.files import damage_error, flush
from fedbench.runtime.states.store import Versions

SHARDS_FOLDER = "states"
MOST_OLD = 0.5
"""Share of outdated states in shards above which all states are written again."""

Snapshot = Callable[[Sequence[Versions], Sequence[Path]], None]
"""Has every host that has states to write write them into its file."""


class Shards:
    """The files `states/ROUND-HOST.safetensors` beside the checkpoints of a run, and the states in them.

    folder: of the checkpoints. A valid checkpoint names its shards; unnamed files are removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / SHARDS_FOLDER
        self._held: dict[Path, Versions] = {}

    def write(self, round: int, versions: Sequence[Versions], snapshot: Snapshot) -> list[str]:
        """Keep the states of a round, by host; returns the names of their shards. Raises OSError.

        Writes the states that no shard has. Earlier files stay until `drop_old`.
        """
        current = {client: kept for part in versions for client, kept in part.items()}
        held = {path: old for path, old in self._held.items() if any(current.get(c) == k for c, k in old.items())}
        if sum(map(len, held.values())) * MOST_OLD > len(current):
            held = {}
        there = {item for old in held.values() for item in old.items()}
        due = [{c: k for c, k in part.items() if (c, k) not in there} for part in versions]
        paths = [self.folder / f"{round:06d}-{host}.safetensors" for host in range(len(due))]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            snapshot(due, paths)
            for path, part in zip(paths, due, strict=True):
                if part:
                    flush(path)
        except OSError:
            for path in paths:
                path.unlink(missing_ok=True)
            raise
        self._held = held | {path: part for path, part in zip(paths, due, strict=True) if part}
        return [path.name for path in self._held]

    def drop_old(self) -> None:
        """Delete the shards that the new, complete checkpoint does not name."""
        for path in set(self.folder.glob("*")) - self._held.keys():
            path.unlink(missing_ok=True)

    def paths_of(self, names: Iterable[str]) -> list[Path]:
        """The shards of a checkpoint. Raises ConfigError if one is missing."""
        paths = [self.folder / name for name in names]
        for path in paths:
            if not path.is_file():
                raise damage_error(path, "missing, and the checkpoint needs it", self.folder.parents[1])
        return paths
