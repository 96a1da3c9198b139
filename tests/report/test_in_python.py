"""What Python is given of a report."""

import plotly.graph_objects as go
import pytest

import fedbench
from fedbench.errors import ConfigError
from fedbench.studies.compare import Comparison
from fedbench.studies.grid import GridResult
from tests.report.conftest import write_comparison, write_grid
from tests.report.test_settings_tables import write_matrix


def test_a_grid_and_comparisons_show_their_answer_table_and_figures(tmp_path):
    one = fedbench.load(write_grid(tmp_path / "grid", space={"method.tau": [0.1, 0.3]}))
    assert isinstance(one, GridResult)
    assert one.best == {"method.tau": 0.3}
    write_comparison(tmp_path / "compare", {"local": 0.7, "fedper": 0.8})
    many = fedbench.load(tmp_path / "compare")
    assert isinstance(many, Comparison)
    over = fedbench.load(write_matrix(tmp_path / "over", {"local": 0.7, "fedper": 0.8}, {"local": 0.7, "fedper": 0.6}))
    for found, shown in ((one, "collaboration helped"), (many, "fedper reached 79.4"), (over, "fedper")):
        assert shown in found.answer
        printed = str(found)
        assert printed.startswith(f"{found.answer}\n\n")
        assert printed.endswith(f"\n\nreport: {found.report}")
        assert all(line in printed for line in ("method  ", "\nlocal "))
        html = found._repr_html_()
        assert found.report.absolute().as_uri() in html
        assert "<td>fedper</td>" in html or "<td>fedcac</td>" in html
        assert isinstance(found.figure(found.figures[0]), go.Figure)
    (legend,) = many.figure("curve-after_agg", backend="matplotlib").legends
    assert [text.get_text() for text in legend.get_texts()] == ["fedper", "local"]
    for study, first in ((one, "fedcac"), (many, "fedper"), (over, "fedper")):
        drawn = study.figure(backend="matplotlib", methods=[first], names={first: "Ours"}, width=5)
        assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["Ours"]
        for name in study.figures:
            assert study.figure(name, backend="matplotlib").axes
    with pytest.raises(ConfigError, match="backend = plotly: needs a name"):
        many.figure("forest", methods=["local"])
    with pytest.raises(ConfigError, match="backend = bokeh: must be plotly or matplotlib"):
        many.figure("forest", backend="bokeh")
    with pytest.raises(ConfigError, match=r"figure = curves: must be one of forest, .*curve-after_agg"):
        many.figure("curves")
