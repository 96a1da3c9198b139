"""`fedbench reproduce`: the papers' tables, listed with their cost or made again."""

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.cli.stages import Stages, read_count

FLAGS = (
    Flag("cells", "words of the cells that are made, such as a data set; without it all", "WORD,...", many=True),
    Flag("scale", "full: the paper's protocol; small: as its file says [full or small; default full]", "SCALE"),
    Flag(
        "sources",
        "where sets of images are, when they are not to be fetched: a folder with folders of their names, or "
        "NAME=WHERE (a data name, parquet:PATH, or a folder with the published files)",
        "DIR | NAME=WHERE",
        many=True,
    ),
    Flag("trials", "most runs side by side [whole number >= 1 or auto; default auto: as many as fit]", "N"),
)


@command
def main(argv: list[str]) -> int:
    """Lists the experiments, one of them in full, or makes one again and prints ours beside the paper's."""
    name, words = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else (None, argv)
    config, asked = parse(words, FLAGS, prog="fedbench reproduce [PAPER/EXPERIMENT]")
    at_once = read_count("trials", asked.trials)
    from fedbench.report.published import as_text
    from fedbench.studies.published.experiment import sets
    from fedbench.studies.published.listing import listing
    from fedbench.studies.published.reproduce import reproduce
    from fedbench.studies.sources import asked_sources

    scale = asked.scale or "full"
    if name is None:
        print("\n".join(listing(scale)))
        return OK
    sources = asked_sources([word for text in asked.sources for word in text.split(",") if word], sets())
    cells = [word for text in asked.cells for word in text.split(",") if word]
    stages = Stages(f"tuning for {name}", config)
    try:
        made = reproduce(name, config, cells=cells, scale=scale, sources=sources, at_once=at_once, watch=stages.update)
    finally:
        stages.stop()
    print(as_text(made.folder))
    for job, error in stages.failed.items():
        print(f"failed:  {job}: {error}")
    print(f"results: {made.folder}")
    print(f"report:  {made.report}")
    return OK
