"""Shows the examples of docstrings as code on the page of the Python interface: to Markdown, `>>>` is a quotation."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class FencedExamples(Extension):
    """Puts every doctest into a block of code."""

    def on_object(self, *, obj: Object, **rest: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
