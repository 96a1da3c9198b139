"""A small plan of a field."""

from fedbench_papers.field.plan import FieldPlan
from fedbench_papers.field.study import FieldRun

PLAN = {
    "tuning": {"tune": 0, "until_decided": True, "margin": 2, "max_seeds": 5},
    "common": {
        "rounds": 3,
        "evaluate": {"every": 3},
        "model": {"name": "mlp", "hidden": 8},
        "data": {"name": "digits"},
    },
    "settings": {
        "digits": {
            "title": "Digits",
            "like": "Digits of several writers",
            "kind": "labels",
            "config": {
                "partition": {"name": "dirichlet", "clients": 4, "alpha": 0.5, "min_images": 25, "total": 240}
                | {"new_clients": 1},
            },
        },
    },
}
KEYS = {"resources.hosts": 0}
RUN = FieldRun(FieldPlan.model_validate(PLAN), ["digits"], methods=["fedper"], keys=KEYS)


def score_of(numbers, method, point="after_agg"):
    rows = numbers[(numbers["method"] == method) & (numbers["quantity"] == "score") & (numbers["point"] == point)]
    return rows.set_index("seed")["value"]
