"""A map's plane, its figures and its tables."""

from typing import Any

import numpy as np
import pytest

from rlmem.memories.gwr.pictures_data import (
    Fit,
    MapData,
    make_map_data,
    map_table,
    nodes_table,
    principal_plane,
    render_table,
)

NODE = np.dtype([("habituation", "f4"), ("firings", "i4"), ("merges", "i4")])
EDGE = np.dtype([("source", "i4"), ("target", "i4"), ("count", "i4")])


def make_data(
    size: int = 50,
    edges: list[tuple[int, int, int]] | None = None,
    links: list[tuple[int, int]] | None = None,
    value: Any = "given",
    seed: int = 0,
) -> MapData:
    """A map whose nodes stand at every second position; edges and links are of positions."""
    rng = np.random.default_rng(seed)
    records = np.zeros(size, NODE)
    records["habituation"] = rng.random(size)
    records["firings"] = rng.integers(0, 30, size)
    records["merges"] = records["firings"] // 2
    given = isinstance(value, str)
    return make_map_data(
        2 * np.arange(size),
        rng.normal(size=(size, 6)) * [5, 3, 1, 1, 1, 1],
        records,
        np.array([(0, 2, 5), (2, 0, 1)] if edges is None else edges, EDGE),
        np.array([(0, 2)] if links is None else links, np.int64).reshape(-1, 2),
        rng.normal(size=size) if given else value,
        "a test's",
    )


def test_the_plane_never_puts_nodes_further_apart_than_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 8))
    plane, _, _ = principal_plane(rows)
    apart = np.linalg.norm(rows[:, None] - rows, axis=-1)
    drawn = np.linalg.norm(plane[:, None] - plane, axis=-1)
    assert (drawn <= apart + 1e-9).all()


def test_the_plane_holds_the_directions_of_most_variance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 5)) * [1, 10, 0.1, 4, 0.1]
    plane, (first, second), _ = principal_plane(rows)
    assert abs(np.corrcoef(plane[:, 0], rows[:, 1])[0, 1]) > 0.999
    assert abs(np.corrcoef(plane[:, 1], rows[:, 3])[0, 1]) > 0.999
    assert (first, second) == pytest.approx((100 / 117, 16 / 117), abs=0.02)


def test_a_mirrored_map_has_the_mirrored_plane() -> None:
    """The signs come from the loadings, not from the decomposition."""
    rows = np.random.default_rng(3).normal(size=(100, 4)) * [4, 2, 1, 1]
    assert principal_plane(-rows)[0] == pytest.approx(-principal_plane(rows)[0])


def test_a_few_nodes_far_off_do_not_turn_the_plane() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4)) * [4, 2, 0.1, 0.1]
    rows[:3, 3] = 1000.0
    plane, _, core = principal_plane(rows)
    assert not core[:3].any()
    assert core.sum() >= 0.98 * len(rows)
    assert abs(np.corrcoef(plane[3:, 1], rows[3:, 1])[0, 1]) > 0.99


def test_wide_embeddings_are_fitted_by_some_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(900, 20)) * [9, 5, *([0.1] * 18)]
    exact, _, _ = principal_plane(rows)
    monkeypatch.setattr("rlmem.memories.gwr.pictures_data.WIDE", 10)
    monkeypatch.setattr("rlmem.memories.gwr.pictures_data.FITTED", 200)
    some, _, _ = principal_plane(rows)
    for k in range(2):
        assert abs(np.corrcoef(some[:, k], exact[:, k])[0, 1]) > 0.99


@pytest.mark.parametrize("size", [1, 2])
def test_a_tiny_map_has_a_plane(size: int) -> None:
    plane, shares, core = principal_plane(np.arange(size, dtype=np.float32)[:, None])
    assert np.isfinite(plane).all()
    assert plane.shape == (size, 2)
    assert shares[1] == 0
    assert core.all()


def test_positions_become_rows_where_nodes_were_removed() -> None:
    data = make_data(edges=[(4, 98, 3)], links=[(6, 0)])
    assert data.edges.tolist() == [[2, 49]]
    assert data.links.tolist() == [[3, 0]]


def test_degrees_count_edges_in_and_out() -> None:
    data = make_data(3, edges=[(0, 2, 7), (0, 4, 1), (4, 4, 2)])
    into, out = data.degrees
    assert into.tolist() == [0, 1, 2]
    assert out.tolist() == [2, 0, 1]


def test_a_fit_is_the_mean_distance_and_the_share_within_the_threshold() -> None:
    distances = -np.log([0.9, 0.8, 0.5, 0.2])
    fit = Fit(distances, activation=0.8 - 1e-12, episodes=1)
    assert fit.quantisation_error == pytest.approx(distances.mean())
    assert fit.coverage == 0.5


def test_the_table_has_the_mean_the_median_and_the_largest() -> None:
    data = make_data(edges=[(0, 2, 5), (2, 0, 1), (2, 4, 3)])
    near, far = Fit(np.zeros(4), 0.9, 2), Fit(np.ones(6), 0.9, 2)
    fits = {"run's": near, "random": far}
    table = map_table(data, {"edges": 40, "links": 2}, fits)
    assert (table["nodes"], table["links"], table["temporal_edges"]) == (50, 1, 3)
    assert table["transitions_represented"] == 9
    assert [table[f"transitions_per_edge_{n}"] for n in ("mean", "median", "max")] == [3, 3, 5]
    assert (table["bytes"], table["bytes_edges"]) == (42, 40)
    assert (table["coverage"], table["coverage_random"]) == (1, 0)
    assert (table["observations_visited"], table["quantisation_error_random"]) == (4, 1)
    shown = render_table(table, fits)
    assert "mean 3, median 3, max 5" in shown
    assert "100.0% have activity 0.9 or more" in shown


def test_a_map_without_edges_has_a_table() -> None:
    table = map_table(make_data(edges=[]), {}, {})
    assert "transitions_per_edge_mean" not in table
    assert "transitions per temporal edge  -" in render_table(table, {})


@pytest.mark.parametrize("value", ["given", None])
def test_the_table_of_nodes_has_a_row_a_node(value: Any) -> None:
    data = make_data(5, value=value)
    rows = nodes_table(data)
    assert rows["node"].tolist() == [0, 2, 4, 6, 8]
    names = ["node", "x", "y", "habituation", "firings", "merges", "value"]
    assert [*rows] == [*names, "in_degree", "out_degree"]
    assert rows["x"].tolist() == pytest.approx(data.plane[:, 0].tolist(), abs=1e-5)
    assert rows["value"].isna().all() == (value is None)
