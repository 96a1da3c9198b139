"""What domains cannot give."""

import pytest

from tests.data.partitions.dealing import refused
from tests.data.toys import FOUR


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (
            {"name": "domain", "clients": 6},
            "partition.clients = 6 is not a multiple of the 4 domains (art, cartoon, photo, sketch)",
        ),
        (
            {"name": "domain", "clients": 4, "train_size": 301},
            "in domain art, 1 clients with at least 301 training image(s) each need 301, there are 300",
        ),
        (
            {"name": "domain-shards", "clients": 8, "test_images": 13},
            "has 12 test samples, and 1 clients x 13 need 13",
        ),
        ({"name": "corruption", "clients": 4}, "the 4 domains do not hold the same images in the same order (420 to"),
    ],
)
def test_impossible_requests_of_domains_name_the_numbers(options, numbers):
    assert numbers in refused(FOUR, **options)
