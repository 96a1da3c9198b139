"""Damages every file of a finished run, an unfinished one, a run of several seeds and the cache, in every way.

    PLACES=3 python benchmarks/damage.py [WORDS]

Counts, by kind of result: damages after which the numbers are the same, those that are named in one line with a remedy,
and those that are answered wrongly, which are listed. WORDS: only damages whose line contains them. PLACES: flipped
bits of a file.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedbench.studies.run import run
from tests.end_to_end.damages import Answer, damages, interrupted, read_report, repeat, write_page
from tests.runtime.rounds import small

PLACES = int(os.environ.get("PLACES", 5))
SEEDS = {"seeds": [0, 1]}


def made(root: Path) -> dict[str, tuple[Path, Callable[[], Answer]]]:
    """Results by kind: their folder, and what opens them again."""
    one = small("fedper", rounds=2, out=str(root / "finished"), save_predictions=True)
    many = small("fedper", rounds=2, out=str(root / "seeds"), **SEEDS)
    under_way = small("fedper", rounds=4, out=str(root / "unfinished"), checkpoint={"every": 1}, participation=0.5)
    run(one, report=False)
    run(many, report=False)
    interrupted(under_way, 3)
    kinds = {"finished": one, "seeds": many, "unfinished": under_way}
    found: dict[str, tuple[Path, Callable[[], Answer]]] = {}
    for kind, config in kinds.items():
        folder = root / kind
        found[f"{kind}, report"] = folder, partial(read_report, folder)
        found[f"{kind}, again"] = folder, partial(repeat, config, folder)
        found[f"{kind}, page"] = folder, partial(write_page, folder)
    new = one.model_copy(update={"out": root / "new"})
    found["cache, run"] = root / "cache", partial(repeat, new, root / "new")
    return found


def main(words: str = "") -> int:
    root, counts, wrong = Path(tempfile.mkdtemp(prefix="damage")), Counter[tuple[str, str]](), list[str]()
    os.environ["FEDBENCH_CACHE"] = str(root / "cache")
    logging.disable(logging.WARNING)
    for kind, (folder, opened) in made(root).items():
        kept = root / "kept"
        shutil.copytree(folder, kept, symlinks=True)

        def put_back(folder: Path = folder, kept: Path = kept) -> None:
            shutil.rmtree(folder)
            shutil.rmtree(root / "new", ignore_errors=True)
            shutil.copytree(kept, folder, symlinks=True)

        right = opened()
        put_back()
        for file in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
            if file.suffix == ".lock" or (kind.endswith("page") and file.name == "samples.npy"):
                continue
            for name, damage in damages(folder / file, PLACES):
                line = f"{kind}: {file}: {name}"
                if words not in line or (kind.endswith("page") and name not in ("folder", "link to itself")):
                    continue
                damage(folder / file)
                answer = opened()
                fault = answer.fault(right, folder / file)
                what = "wrong" if fault else "named" if answer.error or answer.numbers != right.numbers else "same"
                counts[kind, what] += 1
                if fault:
                    wrong.append(f"{line}: {fault}")
                    print(wrong[-1], flush=True)
                put_back()
        shutil.rmtree(kept)
    shutil.rmtree(root)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        print(kind, {what: counts[kind, what] for what in ("same", "named", "wrong")})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
