"""k-means over clients: a fixed start, ties to the smallest index, no random draw."""

import torch

from fedbench.aggregation.clusters import farthest_first, k_means, nearest_centre, squared_distance


def points(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([value]) for value in values]


def test_two_groups_are_found_with_their_means():
    assigned, centres = k_means(points(0.0, 10.0, 1.0, 12.0), 2, most=10)
    assert assigned == [0, 1, 0, 1]
    assert [float(centre) for centre in centres] == [0.5, 11.0]
    assert centres[0].dtype == torch.float64


def test_the_start_is_the_first_point_then_the_farthest():
    assert [float(c) for c in farthest_first(points(3.0, 0.0, 9.0, 4.0), 3)] == [3.0, 9.0, 0.0]


def test_ties_go_to_the_smallest_index():
    assert nearest_centre(torch.tensor([1.0]), points(0.0, 2.0)) == 0


def test_there_are_no_more_clusters_than_points_and_an_empty_one_keeps_its_centre():
    assigned, centres = k_means(points(5.0, 5.0), 3, most=3)
    assert assigned == [0, 0]
    assert [float(centre) for centre in centres] == [5.0, 5.0]


def test_so_many_assignments_and_no_more():
    _, centres = k_means(points(0.0, 10.0, 4.0, 4.5), 2, most=0)
    assert [float(centre) for centre in centres] == [0.0, 10.0]


def test_distances_are_taken_in_float64():
    assert squared_distance(torch.tensor([1e8, 1.0]), torch.tensor([1e8, 0.0])) == 1.0
