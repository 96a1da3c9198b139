"""`fedbench table DIR`: writes a table or a text about a study for a paper."""

import logging
from functools import partial

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.paper import METHODS, file_to_write, shown_methods, usage_text
from fedbench.cli.parse import read_flags

ABOUT = """Prints a table or a text for a paper, or writes it into a file: scores with intervals, in which bold and
marks go as far as the study's own tests; tried and chosen hyperparameters; of a comparison with --over an ablation,
one row for each value; the protocol, a paragraph on data, training, tuning, seeds and tests; BibTeX of the methods."""
WHATS = ("scores", "hyperparameters", "ablation", "protocol", "bibtex")
FORMATS = ("latex", "markdown", "csv")
FLAGS = (
    Flag("what", "scores, hyperparameters, ablation, protocol or bibtex [default scores]", "NAME", choices=WHATS),
    *METHODS,
    Flag("reference", "method that marks of significance compare with [default local]", "NAME"),
    Flag("format", "latex (with booktabs), markdown or csv [default: as FILE ends, or latex]", "NAME", choices=FORMATS),
    Flag("out", "file to write, for example scores.tex, scores.md, scores.csv or methods.bib", "FILE"),
)


@partial(command, usage=usage_text("table", ABOUT, FLAGS))
def main(argv: list[str]) -> int:
    """Prints the table, or writes it and prints its path. Raises ConfigError."""
    folder, args = read_flags(argv, "table", FLAGS)
    shown = shown_methods(args)
    file = file_to_write(args.out)
    logging.getLogger("fedbench").info("reading the study")  # before loading the libraries for it
    from fedbench.results.files import write_atomically
    from fedbench.studies.study_result import StudyResult, format_for

    kind = format_for(file, args.format) if file else args.format
    text = StudyResult(folder).typeset(args.what or "scores", kind, **shown, reference=args.reference)
    if file is None:
        print(text, end="")
    else:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text)
        print(file)
    return OK
