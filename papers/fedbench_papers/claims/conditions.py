"""Under what conditions all rows are tested: by default under their own, of the settings and rows in the YAML files."""

from dataclasses import dataclass
from typing import Any

from fedbench.errors import ConfigError
from fedbench.studies.space import Values
from fedbench_papers import TUNE_SEEDS

IMAGES = tuple(f"partition.{key}" for key in ("images", "train_size", "total", "min_images", "counts"))
"""Keys with numbers of the clients' training images, to which `scale` applies."""


@dataclass(frozen=True)
class Conditions:
    """scale: factor on the clients' training images. rounds, seeds: of every run instead of the rows' own.

    The results of different conditions lie in different folders. Raises ConfigError.
    """

    scale: float = 1.0
    rounds: int | None = None
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ConfigError(f"--scale {self.scale:g}: must be above 0; it multiplies every client's training samples")
        if clash := sorted(set(TUNE_SEEDS) & set(self.seeds or ())):
            raise ConfigError(f"--seeds {clash[0]}: the seed for tuning and choosing; use others")

    @property
    def folder(self) -> str:
        """The name of the folder of results: `claims`, or `claims-rounds-5-seeds-0-1-2`."""
        return "-".join(["claims", *(f"{name}-{text.replace(' ', '-')}" for name, text in self._changes().items())])

    @property
    def flags(self) -> str:
        """As on the command line: ` --rounds 5 --seeds 0 1 2`, or nothing."""
        return "".join(f" --{name} {text}" for name, text in self._changes().items())

    @property
    def words(self) -> str:
        """`scale 1, rounds of each row, seeds 0 1 2`."""
        usual = {"scale": "1", "rounds": "of each row", "seeds": "of each row"}
        return ", ".join(f"{name} {text}" for name, text in {**usual, **self._changes()}.items())

    def _changes(self) -> dict[str, str]:
        known = {
            "scale": "" if self.scale == 1 else f"{self.scale:g}",
            "rounds": "" if self.rounds is None else str(self.rounds),
            "seeds": " ".join(map(str, self.seeds or ())),
        }
        return {name: text for name, text in known.items() if text}

    def of(self, given: Values) -> Values:
        """The keys of an arm under these conditions."""
        scaled = {key: scale_counts(given[key], self.scale) for key in IMAGES if given.get(key) and self.scale != 1}
        return {**given, **scaled, **({} if self.rounds is None else {"rounds": self.rounds})}


def scale_counts(value: Any, scale: float) -> Any:
    """A number of images, or lists of them; none that is positive becomes 0."""
    if isinstance(value, list):
        return [scale_counts(item, scale) for item in value]
    return max(1, round(value * scale)) if value else value
