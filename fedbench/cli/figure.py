"""`fedbench figure DIR`: draws a figure of a study for a paper."""

import logging
from functools import partial

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.paper import METHODS, file_to_write, shown_methods, usage_text
from fedbench.cli.parse import read_flags
from fedbench.errors import ConfigError
from fedbench.installation import require

ABOUT = """Draws a figure of the report for a paper: without a title, as wide as a column, legible in black and white.
Prints its path and what it shows."""
FLAGS = (
    Flag("what", "figure of the report [default: the score over rounds or settings]; a wrong name lists all", "NAME"),
    *METHODS,
    Flag("format", "pdf, svg or png [default: as FILE ends, or pdf]", "NAME", choices=("pdf", "svg", "png")),
    Flag("width", "width in inches [number from 1 to 30; default 3.4]", "INCHES"),
    Flag("out", "file to write [default DIR/NAME.FORMAT]", "FILE"),
)


@partial(command, usage=usage_text("figure", ABOUT, FLAGS))
def main(argv: list[str]) -> int:
    """Writes the figure and prints its path. Raises ConfigError."""
    folder, args = read_flags(argv, "figure", FLAGS)
    shown, width = shown_methods(args), _width(args.width)
    file = file_to_write(args.out)
    require("plots")
    logging.getLogger("fedbench").info("drawing the figure")  # before loading the libraries for it
    from fedbench.report.in_matplotlib import picture_format, save_picture
    from fedbench.report.in_python import figure_of_matplotlib

    kind = picture_format(file, args.format)
    name, figure, remark = figure_of_matplotlib(folder, args.what, **shown, width=width)
    file = file or folder / f"{name}.{kind}"
    save_picture(figure, file, kind)
    print(file)
    if remark:
        print(remark)
    return OK


def _width(text: str | None) -> float | None:
    """Raises ConfigError unless it is a number of inches that makes a picture."""
    try:
        width = None if text is None else float(text)
    except ValueError:
        width = 0.0
    if width is not None and not 1 <= width <= 30:
        raise ConfigError(f"--width {text}: must be a number of inches from 1 to 30")
    return width
