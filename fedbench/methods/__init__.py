"""The table of methods: name, where it lives, and what `fedbench methods` says of it."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from fedbench.dotted import import_dotted
from fedbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedbench.methods.base import Method


@dataclass(frozen=True)
class MethodEntry:
    """Where a method lives and what it is, known without importing it."""

    path: str
    paper: str
    year: int | None
    family: str
    line: str


METHODS: dict[str, MethodEntry] = {
    "local": MethodEntry("local:Local", "baseline", None, "baseline", "every client alone"),
    "centralized": MethodEntry(
        "centralized:Centralized", "baseline", None, "baseline", "one model on all clients' data pooled"
    ),
    "fedavg": MethodEntry(
        "fedavg:FedAvg", "McMahan et al., AISTATS", 2017, "global", "the weighted mean of the models"
    ),
    "fedavg-ft": MethodEntry(
        "fedavg_ft:FedAvgFT", "baseline", None, "fine-tuning", "fedavg, then a throwaway local fine-tuning"
    ),
    "fedprox": MethodEntry(
        "fedprox:FedProx", "Li et al., MLSys", 2020, "global", "fedavg with a proximal pull to the received model"
    ),
    "fedper": MethodEntry(
        "fedper:FedPer", "Arivazhagan et al., preprint", 2019, "parameter decoupling", "the head stays private"
    ),
    "lg-fedavg": MethodEntry(
        "lg_fedavg:LGFedAvg",
        "Liang et al., preprint",
        2020,
        "parameter decoupling",
        "the body stays private, the heads are averaged",
    ),
    "fedrep": MethodEntry(
        "fedrep:FedRep",
        "Collins et al., ICML",
        2021,
        "parameter decoupling",
        "private heads are trained for many epochs before the shared body",
    ),
    "fedbn": MethodEntry(
        "fedbn:FedBN", "Li et al., ICLR", 2021, "parameter decoupling", "normalisation layers stay private"
    ),
    "ditto": MethodEntry(
        "ditto:Ditto",
        "Li et al., ICML",
        2021,
        "regularisation",
        "a personal model beside fedavg's, pulled to the global one",
    ),
    "apfl": MethodEntry(
        "apfl:APFL", "Deng et al., preprint", 2020, "mixture", "a learned mixture of a personal and the global model"
    ),
    "fedcac": MethodEntry(
        "fedcac:FedCAC",
        "Wu et al., ICCV",
        2023,
        "parameter decoupling",
        "critical parameters are shared among the alike",
    ),
    "fedmosaic": MethodEntry(
        "fedmosaic:FedMosaic",
        "anonymous submission",
        2025,
        "co-training",
        "clients vote on labels of public images and trust the vote as far as it helps",
    ),
}


def load(name: str) -> "type[Method]":
    """The class of a method: a name of the table, or package.module:Class. Raises ConfigError."""
    from fedbench.methods.base import Method

    if ":" in name:
        found = import_dotted(name, "method")
    elif name in METHODS:
        module, _, attribute = METHODS[name].path.partition(":")
        found = getattr(import_module(f"fedbench.methods.{module}"), attribute)
    else:
        raise ConfigError(f"unknown method '{name}': {nearest(name, METHODS)}; or package.module:Class of your own")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method '{name}' is not a subclass of fedbench.methods.base.Method")
    return found
