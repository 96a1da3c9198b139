"""Writes the pages of the site, which zensical.toml describes: those of docs/, and one for each method.

    python docs/make_pages.py [FOLDER]

FOLDER is build/docs by default and is replaced. Pages of papers/docs/ stand beside those of docs/. GitHub shows both as
they lie; the site needs three changes: links to files outside of them become the paths of these files, links that show
the name of a file show the title of its page, and a list that follows a line of text gets the empty line that
Python-Markdown asks for.
"""

import inspect
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from fedbench import methods, tune_space
from fedbench.cli.flags import flag_of, keys_of_command, sections, yaml_value
from fedbench.cli.help import SECTION_TEXTS
from fedbench.cli.methods import about_of
from fedbench.config import TrainConfig
from fedbench.config.tuning import ComparisonTuning
from fedbench.config.words import legal_of
from fedbench.jobs.description import decisions
from fedbench.methods.base import DECISIONS_HEADING, NEEDS, About, Method
from fedbench.studies.citations import entry_of

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FOLDERS = (DOCS, ROOT / "papers" / "docs")
BETWEEN = re.compile(r"\]\((?:\.\./papers/docs|\.\./\.\./docs)/")
"""Links from the pages of one folder to those of the other."""
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(r"\[([^\[\]\n]+)\]\(\.\./([^)#\n]+)[^)\n]*\)")
NAMED = re.compile(r"\[([a-z]+\.md)\](?=\(\1[)#])")
LIST_AFTER_TEXT = re.compile(r"^(?![-#|> ]|\d+\. )(.+)\n(?=- |1\. )", re.MULTILINE)
RESULTS = "results.md"


def make_pages(folder: Path) -> None:
    """Writes all pages into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "methods").mkdir(parents=True)
    for file in (*(file for own in FOLDERS for file in own.glob("*.png")), DOCS / "site.css"):
        shutil.copy(file, folder)
    for page in (page for own in FOLDERS for page in own.glob("*.md")):
        text = OUTSIDE.sub(_path_in_checkout, BETWEEN.sub("](", page.read_text(encoding="utf-8")))
        (folder / page.name).write_text(with_empty_lines(with_titles(text)), encoding="utf-8")
    (folder / "keys.md").write_text(keys_page(), encoding="utf-8")
    kinds = {name: methods.load(name) for name in methods.names()}
    found = results_of(kinds, (DOCS / RESULTS).read_text(encoding="utf-8"))
    for name, kind in kinds.items():
        page_of_method = with_empty_lines(method_page(name, kind, found[name]))
        (folder / "methods" / f"{name}.md").write_text(page_of_method, encoding="utf-8")
    index = methods_page({name: about_of(kind) for name, kind in kinds.items()})
    (folder / "methods" / "index.md").write_text(index, encoding="utf-8")


def with_titles(text: str) -> str:
    """The page with the titles of other pages in place of the names of their files, which the site does not have."""
    return NAMED.sub(lambda link: f"[{_title(link[1])}]", text)


def _title(name: str) -> str:
    page = next(folder / name for folder in FOLDERS if (folder / name).exists())
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def with_empty_lines(text: str) -> str:
    """The page with an empty line before each list that follows text; blocks of code stay as they are."""
    parts = FENCE.split(text)
    parts[::2] = [LIST_AFTER_TEXT.sub(r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)


def _path_in_checkout(link: re.Match[str]) -> str:
    text, path = link[1].strip("`"), link[2]
    return f"`{path}`" if path.endswith(text) else f"{link[1]} (`{path}` in the checkout)"


def results_of(names: Iterable[str], text: str) -> dict[str, list[str]]:
    """The rows of every method in the tables of results.md, below the heading of their section and the table's head."""
    found: dict[str, list[str]] = {name: [] for name in names}
    heading, head, told = "", list[str](), set[str]()
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif not line.startswith("|"):
            head, told = [], set()
        elif len(head) < 2:
            head.append(line)
        elif head[0].startswith("| method |") and (name := line.split("|")[1].strip()) in found:
            if name not in told:
                found[name] += ["", f"[{heading}](../{RESULTS}#{_anchor(heading)}):", "", *head]
            told.add(name)
            found[name].append(line)
    return found


def _anchor(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def keys_page() -> str:
    """Every key of the configuration with its meaning, legal values and default, a table per section."""
    known = keys_of_command(ComparisonTuning)
    found = {"run": [key for key in known if "." not in key]}
    found |= {name: [key for key in known if key.startswith(f"{name}.")] for name in (*sections(), "tuning")}
    lines = [
        "# Keys",
        "",
        "Each key is a flag, a line of a YAML file and a key of `fedbench.Config` (there with `_` in place of `-`).",
        "Those of tuning are flags of the commands `grid` and `compare`, and keywords of both functions.",
        "",
    ]
    for title, keys in found.items():
        lines += [f"## {title}", "", "| flag | meaning | legal | default |", "| --- | --- | --- | --- |"]
        lines += [_row(f"`--{flag_of(key)}`", known[key]) for key in keys]
        lines += ["", SECTION_TEXTS.get(title, ""), ""]
    return "\n".join(lines)


def methods_page(every: dict[str, About]) -> str:
    """All methods by their year, as `fedbench methods` lists them."""
    rows = [
        f"| [{name}]({name}.md) | {about.year or ''} | {about.family} | {about.line} | {about.paper} |"
        for name, about in sorted(every.items(), key=lambda item: (item[1].year or 0, item[0]))
    ]
    return "\n".join(
        [
            "# Methods",
            "",
            f"fedbench has {len(every)} methods. `fedbench methods` prints this table.",
            "",
            "| method | year | family | idea | paper |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def method_page(name: str, kind: "type[Method]", results: list[str]) -> str:
    """What fedbench knows of a method: description, decisions, options, space, measurements and paper."""
    return "\n".join([*_description(name, kind), *_options(kind), *_space(name), *_results(results), *_paper(name)])


def _description(name: str, kind: "type[Method]") -> Iterator[str]:
    about = about_of(kind)
    yield from (f"# {name}", "", f"**{_sentence(about.line)}**", "")
    source = f" from {about.paper} {about.year}" if about.paper else ""
    yield from (f"A method of the family *{about.family}*{source}. [All methods](index.md)", "")
    yield from (inspect.cleandoc(kind.__doc__ or ""), "")
    module = inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "")
    yield from (module.partition(f"\n{DECISIONS_HEADING}\n")[0].partition("\n")[2].strip(), "")
    if needs := [words for need, words in NEEDS.items() if need in kind.needs]:
        yield from (f"Needs {' and '.join(needs)}.", "")
    if kind.train_defaults:
        own = ", ".join(f"`train.{key}` {value}" for key, value in kind.train_defaults.items())
        yield from (f"Its own defaults: {own}.", "")
    yield from ("```sh", f"fedbench run --method {name}", f"fedbench grid --method {name}", "```", "")
    if found := decisions(name, kind.Options(), TrainConfig(**kind.train_defaults)):
        yield from ("## Where fedbench decides", "")
        yield from ("The paper leaves these points open, or its code does otherwise.", "")
        yield from (*(f"- {line}" for line in found), "")


def _options(kind: "type[Method]") -> Iterator[str]:
    yield from ("## Options", "", "| option | meaning | legal | default |", "| --- | --- | --- | --- |")
    also = {option: symbol for symbol, option in methods.symbols(kind.Options).items()}
    for key, field in kind.Options.model_fields.items():
        yield _row(f"`--method.{key}`" + (f", `--method.{also[key]}`" if key in also else ""), field)
    yield ""


def _space(name: str) -> Iterator[str]:
    found = tune_space.find(name)
    if found is None:
        return
    whose = "" if found[0] == name else f" It is the space of {found[0]}, from which the method derives."
    yield from ("## Tuning space", "", f"`grid` and `compare` choose among these values.{whose}", "")
    yield from ("| key | values |", "| --- | --- |")
    for key, values in found[1].SPACE.items():
        listed = tune_space.as_list(values)
        shown = ", ".join(map(_value, listed)) if isinstance(listed, list) else str(listed)
        yield f"| `{key}` | {_cell(shown)} |"
    yield ""


def _results(rows: list[str]) -> Iterator[str]:
    if rows:
        yield from ("## Measurements", "", "The linked section says how each was measured.", *rows, "")


def _paper(name: str) -> Iterator[str]:
    if entry := entry_of(name):
        yield from ("## Paper", "", "```bibtex", entry.rstrip(), "```", "")


def _row(flags: str, field: FieldInfo) -> str:
    shown = _value(field.get_default(call_default_factory=True))
    return f"| {flags} | {_cell(field.description or '')} | {_cell(legal_of(field))} | `{shown}` |"


def _value(value: Any) -> str:
    return "none" if value is None else yaml_value(value)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    make_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs")
