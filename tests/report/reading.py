"""A page, read back as a browser would."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from fedbench.report import make_report

Make = Callable[..., Path]


class Page(HTMLParser):
    """Sections, charts, texts and references of a page; the inlined library is left aside."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.charts: dict[str, dict] = {}
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._chart: str | None = None
        self._inside = ""
        self.source = path.read_text()
        self.feed(re.sub(r"<script>/\*\*.*?</script>", "", self.source, flags=re.S))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self._inside = tag
        self._chart = found.get("data-chart")
        if tag == "section":
            self.sections.append(found["id"] or "")
        self.references += [str(found[name]) for name in ("src", "href", "srcset", "action") if name in found]

    def handle_endtag(self, tag: str) -> None:
        self._chart, self._inside = None, ""

    def handle_data(self, data: str) -> None:
        if self._chart:
            self.charts[self._chart.removeprefix("chart-")] = json.loads(data)
        elif self._inside not in ("script", "style"):
            self.text += data

    @property
    def answer(self) -> str:
        found = re.search(r'<p class="answer">(.*?)</p>', self.source, re.S)
        return found[1].replace("\u00a0", " ") if found else ""


def page_of(folder: Path) -> Page:
    return Page(make_report(folder))
