"""Renders templates."""

from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedbench.report.theme import DARK, LIGHT


def rendered(name: str, **values: Any) -> str:
    """Renders a template of this package; missing values are errors, and texts are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedbench.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**values)


def page_of(name: str, **values: Any) -> str:
    """Renders a template with charts: adds their colours in both themes and the drawing code."""
    return rendered(name, **values, palettes={"light": LIGHT, "dark": DARK}, plotly=get_plotlyjs())
