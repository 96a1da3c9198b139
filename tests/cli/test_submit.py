"""The address of a dashboard sends a command to its cluster."""

import pytest

from fedbench.cli import MISTAKE, main
from fedbench.cli.submit import dashboard_in, in_cluster


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("grid --address http://localhost:8265 --tune 3", "http://localhost:8265"),
        ("grid --tune 3 --address=https://head:8265", "https://head:8265"),
        ("grid --address auto", None),
        ("grid --name http://localhost:8265", None),
        ("grid --address", None),
    ],
)
def test_a_dashboard_is_known_by_its_address_and_the_cluster_by_auto(line, url):
    words = line.split()
    assert dashboard_in(words) == url
    if url:
        assert " ".join(in_cluster(words, url)) == line.replace(url, "auto")


def test_without_a_dashboard_the_command_says_so_in_a_line(capsys):
    assert main(["grid", "--method", "fedper", "--address", "http://127.0.0.1:1"]) == MISTAKE
    assert "resources.address = http://127.0.0.1:1: no dashboard of Ray answers there" in capsys.readouterr().err
