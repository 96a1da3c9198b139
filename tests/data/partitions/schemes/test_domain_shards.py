"""Some classes of one domain for every client."""

from tests.data.partitions.dealing import classes_of, deal
from tests.data.toys import FOUR


def test_domain_shards_of_fedmosaic():
    """Every domain is split to 5 clients with 2 of 10 classes each."""
    dealt = deal(FOUR, name="domain-shards", clients=20, val=0)
    held = [[] for _ in range(4)]
    for number, client in enumerate(dealt.clients):
        assert set(FOUR.domains[client.train]) == set(FOUR.domains[client.test]) == {number // 5}
        assert len(classes_of(client.train, FOUR)) == 2
        assert classes_of(client.train, FOUR) == classes_of(client.test, FOUR)
        held[number // 5] += classes_of(client.train, FOUR)
    assert all(sorted(classes) == list(range(10)) for classes in held), "dealt in pairs"
    drawn = deal(FOUR, name="domain-shards", clients=20, deal="random", images=4, test_images=1, val=0)
    assert {len(c.train) for c in drawn.clients} == {8}
