"""The table of methods: name, where it lives, and what `fedbench methods` says of it."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fedbench.config import MethodConfig, Section, explain
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
    "lg-fedavg": MethodEntry(
        "lg_fedavg:LGFedAvg",
        "Liang et al., preprint",
        2020,
        "parameter decoupling",
        "the body stays private, the heads are averaged",
    ),
    "fedper": MethodEntry(
        "fedper:FedPer", "Arivazhagan et al., preprint", 2019, "parameter decoupling", "the head stays private"
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
    "fedpac": MethodEntry(
        "fedpac:FedPAC",
        "Xu et al., ICLR",
        2023,
        "parameter decoupling",
        "features are pulled to global class centroids, heads mixed among the alike",
    ),
    "fedcac": MethodEntry(
        "fedcac:FedCAC",
        "Wu et al., ICCV",
        2023,
        "parameter decoupling",
        "critical parameters are shared among the alike",
    ),
    "fedselect": MethodEntry(
        "fedselect:FedSelect",
        "Tamirisa et al., CVPR",
        2024,
        "parameter decoupling",
        "parameters that change most turn private and are trained in turns with the shared ones",
    ),
    "co-pfl": MethodEntry(
        "co_pfl:CoPFL",
        "Xing et al., preprint",
        2025,
        "parameter decoupling",
        "parameters that change most turn private, the others are weighted by contribution",
    ),
    "apfl": MethodEntry(
        "apfl:APFL", "Deng et al., preprint", 2020, "mixture", "a learned mixture of a personal and the global model"
    ),
    "pfedfda": MethodEntry(
        "pfedfda:PFedFDA",
        "McLaughlin and Su, NeurIPS",
        2024,
        "parameter decoupling",
        "heads are computed from means and covariance of features, adapted to the client",
    ),
    "flute": MethodEntry(
        "flute:FLUTE",
        "Liu et al., ICML",
        2024,
        "parameter decoupling",
        "own heads are kept close to neural collapse, by the clients and by the server",
    ),
    "feddpa": MethodEntry(
        "feddpa:FedDPA",
        "Yang et al., NeurIPS",
        2023,
        "parameter decoupling",
        "parameters of high Fisher information stay private, updates are made for clipping and noise",
    ),
    "floco": MethodEntry(
        "floco:Floco",
        "Grinwald et al., NeurIPS",
        2024,
        "personalised aggregation",
        "a simplex of classifiers, of which similar clients train the same part",
    ),
    "fedala": MethodEntry(
        "fedala:FedALA",
        "Zhang et al., AAAI",
        2023,
        "personalised aggregation",
        "clients learn how much of the global model to take, parameter by parameter",
    ),
    "fedobp": MethodEntry(
        "fedobp:FedOBP",
        "anonymous submission",
        2025,
        "parameter decoupling",
        "the few parameters that moved furthest from the global model stay private",
    ),
    "fedamp": MethodEntry(
        "fedamp:FedAMP",
        "Huang et al., AAAI",
        2021,
        "personalised aggregation",
        "similar models attract each other: every client is pulled to a mixture of its own",
    ),
    "pfedgate": MethodEntry(
        "pfedgate:PFedGate",
        "Chen et al., ICML",
        2023,
        "model adaptation",
        "a private gate scales, and drops, blocks of a shared model for every batch",
    ),
    "perfedmask": MethodEntry(
        "perfedmask:PerFedMask",
        "Setayesh et al., ICLR",
        2023,
        "parameter decoupling",
        "a frozen head; every client trains the layers it can, and fine-tunes a copy of the whole",
    ),
    "per-fedavg": MethodEntry(
        "per_fedavg:PerFedAvg",
        "Fallah et al., NeurIPS",
        2020,
        "meta-learning",
        "a shared model that is good after one step of adaptation",
    ),
    "ditto": MethodEntry(
        "ditto:Ditto",
        "Li et al., ICML",
        2021,
        "regularisation",
        "a personal model beside fedavg's, pulled to the global one",
    ),
    "pfedme": MethodEntry(
        "pfedme:PFedMe",
        "T Dinh et al., NeurIPS",
        2020,
        "regularisation",
        "personal models by Moreau envelopes: near the global one, and it near them",
    ),
    "fedphp": MethodEntry(
        "fedphp:FedPHP",
        "Li et al., ECML PKDD",
        2021,
        "self-distillation",
        "a moving average of own models teaches the training and is the personal model",
    ),
    "perfed-ckt": MethodEntry(
        "perfed_ckt:PerFedCKT",
        "Cho et al., preprint",
        2021,
        "distillation",
        "clusters of clients share their logits on public images",
    ),
    "fedct": MethodEntry(
        "fedct:FedCT", "Abourayya et al., AAAI", 2025, "co-training", "clients vote on labels of public images"
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
        raise ConfigError(f"unknown method '{name}': {nearest(name, METHODS)} (your own: package.module:Class)")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method '{name}' is not a subclass of fedbench.methods.base.Method")
    return found


def checked_options(config: MethodConfig) -> Section:
    """The chosen method's options with their defaults. Raises ConfigError for unknown or illegal ones."""
    kind = load(config.name).Options
    for key in config.options:
        if key not in kind.model_fields and kind.model_config.get("extra") != "allow":
            raise ConfigError(f"unknown key method.{key}: {_known_options(key, config.name, kind)}")
    try:
        return kind(**config.options)
    except ValidationError as error:
        raise ConfigError(explain(error, kind, "method.")) from None


def _known_options(key: str, method: str, kind: type[Section]) -> str:
    """What a method takes instead of a key; which other methods have it."""
    owners = [name for name in METHODS if key in load(name).Options.model_fields]
    hint = nearest(key, kind.model_fields)
    if hint.startswith("did you mean") and not owners:
        return hint
    have = f"; {', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it (--method NAME)" if owners else ""
    return f"method {method} takes {', '.join(sorted(kind.model_fields))}{have}"
