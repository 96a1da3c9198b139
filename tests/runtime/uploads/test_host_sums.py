"""What the server half gets of uploads that hosts have added up, and of those that they have not."""

import pytest
import torch

from fedbench.errors import RunError
from fedbench.jobs.resolve import resolve
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.messages import Upload
from fedbench.runtime.uploads.host_sums import HostSums
from fedbench.runtime.uploads.step import Delivery
from fedbench.runtime.uploads.sums import FEW, Total
from tests.runtime.rounds import driver, small

MANY = {"partition": {"name": "iid", "clients": FEW["cpu"] + 6}}


def test_uploads_without_shares_stay_as_they_are():
    uploads = [Upload(client, 1, params=torch.ones(2)) for client in range(3)]
    step = HostSums(driver(resolve(small())).method)
    assert step.at_server(uploads, Delivery(1, {}, {}, [Total()])) == uploads


def test_one_upload_stands_for_all_that_hosts_added_up():
    uploads, total = [Upload(client, 1, params=torch.full((2,), float(client))) for client in range(2)], Total()
    total.take(uploads, [0.25, 0.75])
    (mean,) = HostSums(driver(resolve(small())).method).at_server(
        uploads, Delivery(1, {}, {0: 0.25, 1: 0.75}, [total, Total()])
    )
    assert mean.params.tolist() == [0.75, 0.75]


class Failing(FedAvg):
    """Its weights cannot be computed."""

    def weights(self, uploads):
        raise KeyError("no weights")


Failing.weights.mean_suffices = True  # type: ignore[attr-defined]


def test_an_error_in_the_weights_names_the_line_of_the_method():
    step = HostSums(driver(resolve(small(f"{__name__}:Failing", **MANY))).method)
    with pytest.raises(RunError, match=r"KeyError: 'no weights' .test_host_sums.py:\d+."):
        step.shares(range(FEW["cpu"] + 6), "cpu")
