"""Renders templates."""

from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedbench.report.theme import DARK, LIGHT

TEMPLATES_FOLDER = Path(__file__).parent


def render(file: str | Path, **values: Any) -> str:
    """Renders a template: a name in this folder, or a file elsewhere that may build on those in this folder.

    Missing values are errors, and texts are escaped.
    """
    path = TEMPLATES_FOLDER / file
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, TEMPLATES_FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(path.name).render(**values)


def page_of(file: str | Path, **values: Any) -> str:
    """Renders a template with charts: adds their colours in both themes and the drawing code."""
    return render(file, **values, palettes={"light": LIGHT, "dark": DARK}, plotly=get_plotlyjs())
