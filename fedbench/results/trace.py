"""How pages show the traces of a method, which declares it; others are drawn by their form alone."""

from dataclasses import dataclass
from typing import Literal

Form = Literal["curve", "clients", "flipped", "mask", "location", "layers", "pairs", "relative", "clusters"]


@dataclass(frozen=True)
class Trace:
    """The chart of a trace.

    title: its heading. label: what a value is, or of pairs what the numbers are. chart: its name among the report's
    figures, by default that of the trace; traces with the same one share it. is_share: values are shown in %. note:
    under the chart. section, intro: the heading and the first lines of a section of its own.

    form: curve: the mean over clients with the band from lowest to highest; clients: a line for every client; flipped:
    the means of the clients with permuted labels and of the others; mask: the share of parameters in a mask, also by
    layer (NAME/LAYER); location: the share of all personal parameters that is in a layer, drawn in place of the mask's
    layers over rounds; layers: shares NAME/LAYER in the last round; pairs: NAME/NUMBER of every client in the last
    round; relative: pairs in % of each client's highest; clusters: the number of every client's cluster.
    """

    name: str
    title: str
    label: str = ""
    form: Form = "curve"
    chart: str = ""
    is_share: bool = False
    note: str = ""
    section: str = ""
    intro: str = ""


LAST_ROUND = "Last round of the first seed."
COLLABORATORS = Trace("collaborators", "Collaborators", "collaborators per client")
CLUSTER = Trace("cluster", "Cluster of every client", form="clusters", chart="clusters", note="First seed.")
MIXTURE = Trace("mixture", "Weights of the endpoints, %", "endpoint", "pairs", is_share=True, note=LAST_ROUND)
"""A client's weight of each endpoint."""


def mask_trace(name: str, label: str) -> Trace:
    """The share of parameters in a mask. label: `private share`."""
    return Trace(name, "Share of parameters in the mask", label, "mask", chart="mask-share")


def weight_trace(name: str) -> Trace:
    """A client's weight of every other client."""
    title = "Weights of other clients, %"
    return Trace(name, title, "takes from client", "pairs", chart="weights", is_share=True, note=LAST_ROUND)
