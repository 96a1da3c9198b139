"""Rows of claims as claims.json has them: one that was judged, and one that was not run."""

PART = dict(part="a", case="", rule="B", point="agg", delta=0.5, judged=True, verdict="holds", p=0.01, p_adjusted=0.02)
PART |= dict(mean=1.25, low=0.5, high=2.0, values=[1.0, 1.5], best=1.4, note="<b>", other="undecided")
ROW = dict(id="C1", statement="A | B & <more>", where="Table 1", effect="+2", setting="CS", setting_text="small")
ROW |= dict(uses=["M9"], seeds=[0, 1, 2], status="judged", parts=[PART], minutes=2.0, runs=6, open=["decay 0"])
ROW |= dict(command="fedbench claims --only C1", fingerprint="0123abcd")
ROW |= dict(arms={"x": {"method": "fedper", "train.lr": 0.1}, "y": {"method": "fedper"}})
ROW |= dict(levels={"x": {"agg": 61.04, "fit": 70.0, "steps": 4.0}})
ROW |= dict(choices={"C1": {"x": {"train.lr": 0.05}, "y": {}}})
OTHER = {**ROW, "id": "C2", "status": "not run yet", "parts": []}
for key in ("minutes", "runs", "fingerprint", "levels", "choices"):
    del OTHER[key]
