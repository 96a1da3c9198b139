"""BibTeX of the methods' papers, from the file papers.bib beside the module of a method."""

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedbench import methods

FILE = "papers.bib"
ENTRY = re.compile(r"^@\w+\{\s*([^,\s]+)\s*,.*?(?=^@|\Z)", re.MULTILINE | re.DOTALL)


def bibtex(names: Iterable[str]) -> str:
    """The entries of these methods, each once, and a comment that names those without one."""
    entries = {name: entry_of(name) for name in dict.fromkeys(names)}
    lack = [name for name, entry in entries.items() if entry is None]
    lines = [f"% no paper is known of {', '.join(lack)}"] if lack else []
    return "\n".join([*lines, *(entry for entry in entries.values() if entry is not None)]).rstrip() + "\n"


def entry_of(method: str) -> str | None:
    """The entry whose key is the method's name, or for `package.module:Class` that of its class; None without one."""
    file = _folder(method) / FILE
    if not file.exists():
        return None
    entries = {key[1]: key[0].rstrip() + "\n" for key in ENTRY.finditer(file.read_text(encoding="utf-8"))}
    return entries.get(method) or entries.get(method.rpartition(":")[2])


def _folder(method: str) -> Path:
    """Where the module of a method lies; it is not imported."""
    module = methods.METHODS.path(method).partition(":")[0]
    spec = None
    if module:
        with suppress(ImportError, ValueError):
            spec = find_spec(module)
    return Path(spec.origin).parent if spec and spec.origin else Path(methods.__file__).parent
