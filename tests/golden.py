"""Records the numbers of many small runs, and says which of them a change of the code has changed.

    python tests/golden.py record DIR [CASE ...] [--jobs 2]
    python tests/golden.py compare DIR [CASE ...] [--jobs 2] [--hosts 2]
    python tests/golden.py hash [--jobs 2]

Every method runs plain and awkward (`tests/conformance`), then once for each choice of its options, then with what
stands in MORE. A change that is not meant to change a number keeps all of them to the bit. The records hold on one
kind of processor with one set of library versions, so they are kept outside the project. CASE: a method, or a case's
whole name. Ends with 1 where anything differs.

`hash` records the hashes of HASHED in tests/hashes, in the file of this kind of processor;
tests/conformance/test_golden.py compares them wherever such a file holds.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

os.environ |= {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "tests" / "hashes"
sys.path.insert(0, str(ROOT))

AWKWARD: dict[str, Any] = dict(
    participation=0.4,
    model={"name": "tests.runtime.networks:Awkward", "head": "classifier"},
    train__optimizer="sgd",
    train__lr_decay=0.9,
)
MORE: dict[str, dict[str, Any]] = {
    "fedavg steps": {"train__steps": 3},
    "fedavg full batch": {"train__batch_size": "full", "train__shuffle": False},
    "fedavg adam kept": {"train__optimizer": "adam", "train__keep_optimizer": True},
    "fedavg adamw": {"train__optimizer": "adamw"},
    "fedavg module": {"train__optimizer": "module", "train__keep_optimizer": True},
    "fedavg trainer": {"train__engine": "trainer"},
    "fedavg compiled": {"train__engine": "compiled", "train__width": 4},
    "fedavg 64-true": {"train__precision": "64-true"},
    "fedavg bf16-mixed": {"train__precision": "bf16-mixed"},
    "fedavg augmented": {"data": {"name": "digits", "augment": ["flip", "crop", "rotate"]}},
    "fedavg seldom": {"evaluate__every": 3},
    "fedavg sampled": {"evaluate__clients": 4},
    "fedavg by batches": {"evaluate__accuracy": "batches", "evaluate__batch_size": 7},
    "fedprox stragglers": {"method__straggler_fraction": 0.5, "method__mu": 0.5},
    "fedprox dropped": {"method__straggler_fraction": 0.5, "method__straggler_policy": "drop"},
    "lg-fedavg pretrained": {"method__pretrain_rounds": 2},
    "lg-fedavg extra": {"method__extra_shared": ["body.2"]},
    "fedper extra": {"method__extra_private": ["body.2"]},
    "per-fedavg steps": {"method__adapt_steps": 2, "train__steps": 2},
    "pfedme decay": {"method__inner_weight_decay": 1e-3, "method__beta": 0.5},
    "apfl decay": {"method__alpha_decay": 0.02, "method__alpha_update": "step", "method__alpha_lr": 0.2},
    "ditto own": {"method__personal_epochs": 2, "method__personal_lr": 0.03, "method__lam": 0.3},
    "fedphp augmented": {"data": {"name": "digits", "augment": ["crop"]}},
    "fedselect clipped": {"method__clip_norm": 0.3, "method__mask_interval": 2, "train__weight_decay": 0.01},
    "fedselect kept": {"train__keep_optimizer": True, "train__momentum": 0.5, "train__epochs": 2},
    "co-pfl decay": {"train__weight_decay": 0.01, "method__moments": "none"},
    "co-pfl sequential": {"train__weight_decay": 0.01, "method__moments": "shared"},
    "fedobp buffers": {"method__include_buffers": True, "method__score": "obp"},
    "fedobp fisher by sample": {"method__score": "fisher", "method__fisher_estimate": "sample"},
    "feddpa private": {"method__clip": True, "method__noise_multiplier": 0.1, "train__keep_optimizer": False},
    "feddpa low": {"method__threshold": 0.02, "method__constraint_form": "squared", "train__keep_optimizer": False},
    "fedala layers": {"method__num_layers": 2, "method__start_max_epochs": 12},
    "fedmosaic learnt": {"method__first_vote": None, "train__steps": 40},
    "fedmosaic krr": {"method__label_privacy": "krr", "method__label_epsilon": 1.0, "method__expertise_sigma": 0.1},
    "fedmosaic xor": {"method__label_privacy": "xor", "method__label_epsilon": 9.0},
    "fedmosaic fixed": {"method__lambda_mode": "fixed", "method__lambda_value": 0.5},
    "fedmosaic seldom": {"method__communication_period": 2, "method__public_batch_size": 8},
    "fedct weighed": {"method__combine": "sum", "method__public_weight": 0.3},
    "pfedgate sparse": {"method__sparsity": 0.5, "method__blocks_per_tensor": 4},
    "pfedgate sparse joint": {
        "method__sparsity": 0.5,
        "method__blocks_per_tensor": 4,
        "method__alternation": "joint",
    },
    "pfedgate steps": {"train__steps": 3, "train__keep_optimizer": True},
    "pfedgate augmented": {"data": {"name": "digits", "augment": ["crop"]}},
    "perfedmask weak": {"method__capability": [0.2, 0.3, 0.5, 1, 1, 1, 1, 0.9, 0.1, 0.6], "model": "mlp"},
    "pfedfda fixed": {"method__beta": [0.2, 0.8]},
    "flute two": {"train__epochs": 3, "method__rep_epochs": 2},
    "fedpac rates": {"method__body_epochs": 2, "method__head_lr": 0.05},
    "fedrep rates": {"method__head_epochs": 2, "method__head_lr": 0.05},
    "fedamp near": {"method__alpha": 1e3, "method__sigma": 1e2},
    "floco plus": {"method__personal_epochs": 2, "train__steps": 3},
    "centralized ft": {"method__ft_epochs": 1},
    "perfed-ckt three": {"method__num_clusters": 3, "method__public_batch_size": 8},
    "fedrod rates": {"method__personal_lr": 0.3, "method__gamma": 0.5},
    "scaffold half": {"method__global_lr": 0.5, "train__momentum": 0.5, "train__keep_optimizer": False},
    "moon projected": {"method__projection": 4, "method__mu": 5.0},
    "moon augmented": {"data": {"name": "digits", "augment": ["crop"]}},
    "fedproto local": {"method__lam": 3.0, "method__candidates": "own"},
    "fedfomo few": {"method__models": 2, "method__epsilon": 1.0},
    "ifca gradients": {"method__average": "gradients", "method__clusters": 2, "method__shared": "body"},
    "cfl cut": {"method__eps1": 9.0, "method__eps2": 0.0, "method__start_round": 1, "method__gamma_max": 0.1},
    "fedem refreshed": {"method__refresh": 2, "method__components": 2, "train__keep_optimizer": True},
    "feddbe moving": {"method__mu": 0.3, "method__kappa": 5.0, "method__bias_lr": 0.3, "train__momentum": 0.5},
    "fedas large": {"method__align_lr": 0.1, "method__align_batch_size": "full"},
    "fedcp augmented": {"data": {"name": "digits", "augment": ["crop"]}},
    "pfedhn small": {"method__hidden_dim": 5, "method__n_hidden": 1, "method__clip": 0.1, "train__steps": 3},
}
"""Beside the choices: what numbers and the configuration of the run can change. Awkward otherwise."""
HASHED = (
    *("fedavg steps", "fedavg full batch", "fedavg adam kept", "fedavg adamw", "fedavg module", "fedavg trainer"),
    *(
        "fedavg compiled",
        "fedavg 64-true",
        "fedavg bf16-mixed",
        "fedavg augmented",
        "fedavg seldom",
        "fedavg by batches",
    ),
    *("fedprox stragglers", "lg-fedavg pretrained", "fedper extra", "per-fedavg steps", "pfedme decay", "apfl decay"),
    *("ditto own", "fedselect kept", "co-pfl decay", "fedobp buffers", "feddpa private", "fedala layers"),
    *("fedmosaic krr", "fedmosaic xor", "fedmosaic seldom", "fedct weighed", "pfedgate sparse", "perfedmask weak"),
    *("pfedfda fixed", "floco plus"),
)
"""Beside every method's awkward run, the cases whose hashes are kept in the project."""


def cases(asked: list[str]) -> dict[str, dict[str, Any]]:
    """Keyword arguments of `small` by the name of the case, which begins with the method's."""
    from fedbench.methods import load, names

    found: dict[str, dict[str, Any]] = {}
    for method in names():
        if asked and method not in {name.split()[0] for name in asked}:
            continue
        found[method] = {}
        found[f"{method} awkward"] = AWKWARD | {"train__keep_optimizer": method != "feddpa"}
        for option, value in choices(load(method).Options):
            found[f"{method} {option}={value}"] = AWKWARD | {f"method__{option}": value}
    found |= {name: AWKWARD | more for name, more in MORE.items()}
    return {n: v for n, v in found.items() if not asked or n in asked or n.split()[0] in asked}


def choices(options: Any) -> Iterator[tuple[str, Any]]:
    """Every choice of every option that is not its default."""
    for name, field in options.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        values = [v for kind in kinds if get_origin(kind) is Literal for v in get_args(kind)]
        values += [True, False] if field.annotation is bool else []
        yield from ((name, value) for value in dict.fromkeys(values) if value != field.default)


def numbers(folder: Path) -> list[str]:
    """Every number that a run recorded, a line each, to the bit, in an order of its own."""
    from fedbench.results.reader import Records

    run, lines = Records(folder), []
    keys = {"metrics": ["seed", "round", "point"], "clients": ["seed", "round", "client", "point"]}
    keys["traces"] = ["seed", "round", "client", "name"]
    for table, by in keys.items():
        for row in getattr(run, table)().to_dict("records"):
            where = " ".join(str(row.pop(key)) for key in by)
            lines += [f"{table} {where} {key} {text(value)}" for key, value in sorted(row.items())]
    return sorted(lines)


def text(value: Any) -> str:
    return float(value).hex() if isinstance(value, float | int) else str(value)


def played(job: tuple[str, dict[str, Any], int]) -> list[str]:
    """The numbers of a case, or the line that refuses it."""
    from fedbench.errors import ConfigError
    from tests.runtime.rounds import play, small

    name, arguments, hosts = job
    method = {k.removeprefix("method__"): v for k, v in arguments.items() if k.startswith("method__")}
    rest = {k: v for k, v in arguments.items() if not k.startswith("method__")}
    with tempfile.TemporaryDirectory(prefix="fedbench-golden-") as folder:
        try:
            config = small(name.split()[0], **rest)
            config.method = type(config.method)(**{**config.method.model_dump(), **method})
            play(config, Path(folder), on_ray(hosts) if hosts else None)
            return numbers(Path(folder))
        except ConfigError as error:
            return [f"refused: {error}"]


def on_ray(count: int, known: dict[int, Any] = {}) -> Any:  # noqa: B006
    """Hosts in processes of their own, started once."""
    if not known:
        import ray

        from fedbench.runtime.ray.hosts import RayHosts

        quiet: dict[str, Any] = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.init(address="local", num_cpus=count, object_store_memory=200 * 2**20, **quiet)
        known[count] = RayHosts(count, cpus=1, gpus=0)
    return known[count]


def hashed() -> dict[str, dict[str, Any]]:
    """The cases whose hashes are kept in the project."""
    return {name: given for name, given in cases([]).items() if name in HASHED or name.endswith(" awkward")}


def hash_of(lines: list[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def bits_are_of() -> dict[str, str]:
    """What the last bits of a number depend on, beside the code."""
    import torch

    from fedbench.processor import has, processor_facts

    said = processor_facts()
    known = [said[key] for key in ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part") if key in said]
    return {
        "processor": "-".join([platform.machine(), *known]).lower(),
        "instructions": f"{torch.backends.cpu.get_cpu_capability()}, bf16 {has('bf16')}, amx {has('amx')}",
        "libc": " ".join(platform.libc_ver()),
        **{name: version(name) for name in ("torch", "torchvision", "lightning", "numpy", "scipy")},
    }


def hash_file() -> Path:
    """Of this kind of processor, and of the instructions that this machine has of it."""
    kind = bits_are_of()
    return HASHES / f"{kind['processor']}-{kind['instructions'].partition(',')[0].lower()}.json"


def main() -> int:
    from fedbench.processor import cores

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    for what in ("record", "compare", "hash"):
        command = commands.add_parser(what)
        command.add_argument("--jobs", type=int, default=cores(), help="runs side by side")
        if what != "hash":
            command.add_argument("folder", type=Path, help="where the numbers are kept")
            command.add_argument("cases", nargs="*", help="methods or whole names; default: all")
            command.add_argument("--hosts", type=int, default=0, help="host processes of each run")
    asked = parser.parse_args()
    if asked.what == "hash":
        return write_hashes(asked.jobs)
    jobs = [(name, arguments, asked.hosts) for name, arguments in cases(asked.cases).items()]
    if not jobs:
        parser.error(f"no case {asked.cases[0]}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.hosts:
        return told(asked, jobs, map(played, jobs))
    with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
        return told(asked, jobs, pool.imap(played, jobs))


def write_hashes(side_by_side: int) -> int:
    jobs = [(name, arguments, 0) for name, arguments in hashed().items()]
    with multiprocessing.get_context("spawn").Pool(side_by_side) as pool:
        found = dict(zip(hashed(), map(hash_of, pool.imap(played, jobs)), strict=True))
    HASHES.mkdir(exist_ok=True)
    hash_file().write_text(json.dumps({"bits_are_of": bits_are_of(), "hashes": found}, indent=1) + "\n")
    print(f"{len(found)} hashes in {hash_file().relative_to(ROOT)}")
    return 0


def told(asked: Any, jobs: list[tuple[str, dict[str, Any], int]], found: Any) -> int:
    """Writes or compares what came of the jobs; how many differ ends the program."""
    differ = 0
    for (name, *_), lines in zip(jobs, found, strict=True):
        kept = asked.folder / f"{name.replace(' ', '_').replace('/', '-')}.txt.gz"
        if asked.what == "record":
            kept.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
            print(f"{len(lines):6} {name}", flush=True)
        elif not kept.exists():
            differ += 1
            print(f"NEW {name}: nothing is recorded of it", flush=True)
        elif (before := gzip.decompress(kept.read_bytes()).decode().split("\n")) != lines:
            differ += 1
            print(f"DIFFERS {name}: {difference(before, lines)}", flush=True)
    print(f"{len(jobs) - differ} of {len(jobs)} as before")
    return int(differ > 0)


def difference(before: list[str], after: list[str]) -> str:
    """How many numbers differ, the first of them, and by how much the largest test accuracy."""
    old, new = (dict(line.rpartition(" ")[::2] for line in lines) for lines in (before, after))
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    shares = [
        abs(float.fromhex(old[key]) - float.fromhex(new[key]))
        for key in changed
        if key.endswith("test_accuracy") and key in old and key in new
    ]
    first = changed[0] if changed else "order"
    moved = max(shares, default=0)
    return f"{len(changed)} of {len(old)}: {first} {old.get(first)} -> {new.get(first)}; accuracy {moved:.2g}"


if __name__ == "__main__":
    sys.exit(main())
