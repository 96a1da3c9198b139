"""Pages from templates."""

from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedbench.report.theme import DARK, LIGHT


def rendered(name: str, **values: Any) -> str:
    """The text of a template of this package; a value that it lacks is an error, and texts are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedbench.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**values)


def page_of(name: str, **values: Any) -> str:
    """The text of a template that has charts: with their colours in both themes, and what draws them."""
    return rendered(name, **values, palettes={"light": LIGHT, "dark": DARK}, plotly=get_plotlyjs())
