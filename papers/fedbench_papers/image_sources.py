"""Sources of a study's image sets if they are not downloaded: one folder, or one source per set."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedbench.errors import ConfigError, nearest
from fedbench.studies.space import Values


def read_sources(texts: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Parses `NAME=WHERE`, or one folder with subfolders named after sets. Raises ConfigError."""
    sources: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals:
            folder = Path(text).expanduser()
            below = {name: folder / name for name in known if (folder / name).is_dir()}
            if not below:
                raise ConfigError(f"--sources {text}: no folder with one of {', '.join(known)} in it")
            sources |= {name: str(place) for name, place in below.items()}
        elif name not in known:
            raise ConfigError(f"--sources {text}: unknown set '{name}'; {nearest(name, known)}")
        elif not where:
            raise ConfigError(f"--sources {text}: WHERE is missing: a data name, KIND:PATH or a folder")
        else:
            sources[name] = where
    return sources


def source_keys(name: str, sources: Mapping[str, str]) -> Values:
    """The keys `data.*` of a set, or of its source: a name, `KIND:PATH`, or folder of parquet or published files."""
    where = sources.get(name, name)
    folder = Path(where).expanduser()
    if ":" in where or where == name or not folder.is_dir():
        return {"data.name": where}
    if any(folder.glob("*.parquet")):
        return {"data.name": f"parquet:{folder.absolute()}"}
    return {"data.name": name, "data.root": str(folder.absolute())}
