"""What installed packages add to fedbench: the entry points of their metadata, by group and name."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

COMMANDS, PAGES = "fedbench.commands", "fedbench.pages"
"""Groups. A command's name is that of `fedbench NAME`, a page's that of the file that its kind of study keeps."""


@cache
def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by their names."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}
