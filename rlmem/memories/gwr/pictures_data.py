"""A GWR map as plain arrays: its plane, its table of figures, a row a node."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlmem.units import aligned, readable_bytes, several

WIDE, FITTED = 2048, 1000  # dimensions up to which all nodes choose the plane; beyond, so many
CORE = 0.99  # share of the nodes, those nearest to the median, that choose the plane
SPREAD = ("mean", "median", "max")


@dataclass(frozen=True)
class MapData:
    """What is drawn of a map of n nodes.

    Attributes:
        nodes: positions in the storage, int64 [n].
        plane: float64 [n, 2], first two principal components of the embeddings.
        shares: of the variance of the core's embeddings, that the two components hold.
        core: bool [n], the nodes that the plane was fitted to: all but the farthest per cent.
        habituation, firings, merges: [n].
        value: float [n], or None where the agent has none.
        value_name: what the value is, or why there is none.
        edges: rows of `nodes` that a temporal edge joins, int64 [m, 2], source first.
        counts: how often each was passed, int64 [m].
        links: rows of `nodes` that are linked, int64 [l, 2].
    """

    nodes: np.ndarray
    plane: np.ndarray
    shares: tuple[float, float]
    core: np.ndarray
    habituation: np.ndarray
    firings: np.ndarray
    merges: np.ndarray
    value: np.ndarray | None
    value_name: str
    edges: np.ndarray
    counts: np.ndarray
    links: np.ndarray

    @property
    def degrees(self) -> tuple[np.ndarray, np.ndarray]:
        """Temporal edges into and out of each node, int64 [n] each."""
        size = len(self.nodes)
        source, target = self.edges.T
        return np.bincount(target, minlength=size), np.bincount(source, minlength=size)


@dataclass(frozen=True)
class Fit:
    """How well a map stands for the observations that a policy visited.

    Attributes:
        distances: of each to its best-matching unit, float64 [visited].
        activation: the run's activation threshold.
        episodes: that were played.
    """

    distances: np.ndarray
    activation: float
    episodes: int

    @property
    def quantisation_error(self) -> float:
        """Mean distance."""
        return float(self.distances.mean())

    @property
    def coverage(self) -> float:
        """Share whose activity exp(-distance) reaches the activation threshold."""
        return float((np.exp(-self.distances) >= self.activation).mean())


def make_map_data(
    nodes: np.ndarray,
    embeddings: np.ndarray,
    records: np.ndarray,
    edges: np.ndarray,
    link_pairs: np.ndarray,
    value: np.ndarray | None,
    value_name: str,
) -> MapData:
    """Take a map's arrays together.

    Args:
        nodes: positions of the live nodes, ascending, int [n].
        embeddings: [n, d], in units of the metric.
        records: structured [n] with habituation, firings and merges.
        edges: structured [m] with source, target and count; source and target are positions.
        link_pairs: positions, int [l, 2].
        value: [n] or None.
        value_name: what it is, or why there is none.
    """
    plane, shares, core = principal_plane(embeddings)
    return MapData(
        nodes=nodes,
        plane=plane,
        shares=shares,
        core=core,
        habituation=records["habituation"],
        firings=records["firings"],
        merges=records["merges"],
        value=value,
        value_name=value_name,
        edges=np.searchsorted(nodes, np.stack([edges["source"], edges["target"]], axis=1)),
        counts=edges["count"].astype(np.int64),
        links=np.searchsorted(nodes, link_pairs),
    )


def principal_plane(embeddings: np.ndarray) -> tuple[np.ndarray, tuple[float, float], np.ndarray]:
    """The first two principal components, the variance that they hold, and whose they are.

    An orthogonal projection: no two nodes are closer in the map than they are in the plane. The
    per cent of the nodes that is farthest from the median has no say in it (the padded stacks of
    an episode's start are a few nodes far off, and would be a component of their own). The signs
    make the largest loading of each component positive, so that equal maps give equal planes. Of
    embeddings with more than 2,048 dimensions, 1,000 evenly spaced nodes choose the plane.

    Args:
        embeddings: float [n, d].

    Returns:
        float64 [n, 2]; the shares of the core's variance; bool [n], the core. A component that
        there is not is 0.
    """
    rows = embeddings.astype(np.float64)
    away = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    core = away <= np.quantile(away, CORE, method="higher")
    rows -= rows[core].mean(0)
    fitted = rows[core]
    if rows.shape[1] > WIDE:
        fitted = fitted[:: -(-len(fitted) // FITTED)]
    axes = np.linalg.svd(fitted, full_matrices=False)[2][:2]
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(1)]
    plane = np.zeros((len(rows), 2))
    plane[:, : len(axes)] = rows @ (axes * np.where(largest < 0, -1.0, 1.0)[:, None]).T
    total = np.square(rows[core]).sum()
    held = np.square(plane[core]).sum(0) / total if total > 0 else np.zeros(2)
    return plane, (float(held[0]), float(held[1])), core


def map_table(
    data: MapData, footprint: Mapping[str, int], fits: Mapping[str, Fit]
) -> dict[str, float | int]:
    """Quantity -> value, as table.csv holds it.

    Args:
        footprint: component -> bytes.
        fits: of each policy; the first one's quantities have no suffix, another's end in its name.
    """
    table: dict[str, float | int] = {
        "nodes": len(data.nodes),
        "links": len(data.links),
        "temporal_edges": len(data.edges),
        "transitions_represented": int(data.counts.sum()),
        "bytes": sum(footprint.values()),
        **{f"bytes_{name}": size for name, size in footprint.items()},
        **_spread("merges_per_node", data.merges),
        **_spread("transitions_per_edge", data.counts),
    }
    for number, (policy, fit) in enumerate(fits.items()):
        end = f"_{policy}" if number else ""
        table[f"quantisation_error{end}"] = fit.quantisation_error
        table[f"coverage{end}"] = fit.coverage
        table[f"observations_visited{end}"] = len(fit.distances)
    return table


def _spread(name: str, values: np.ndarray) -> dict[str, float | int]:
    if not len(values):
        return {}
    found = float(values.mean()), float(np.median(values)), int(values.max())
    return {f"{name}_{what}": value for what, value in zip(SPREAD, found, strict=True)}


def render_table(table: Mapping[str, float | int], fits: Mapping[str, Fit]) -> str:
    """The table for people: aligned lines."""

    def spread(name: str) -> str:
        if f"{name}_mean" not in table:
            return "-"
        return ", ".join(f"{part} {table[f'{name}_{part}']:,.4g}" for part in SPREAD)

    sizes = [name for name in table if name.startswith("bytes_")]
    rows = [
        ("nodes", f"{table['nodes']:,}"),
        ("links", f"{table['links']:,}"),
        ("temporal edges", f"{table['temporal_edges']:,}"),
        ("bytes", readable_bytes(table["bytes"])),
        *((f"  {name.removeprefix('bytes_')}", readable_bytes(table[name])) for name in sizes),
        ("merges per node", spread("merges_per_node")),
        ("transitions per temporal edge", spread("transitions_per_edge")),
    ]
    for policy, fit in fits.items():
        visited = f"{len(fit.distances):,} observations of {several(fit.episodes, 'episode')}"
        rows += [
            (f"visited by the {policy} policy", visited),
            ("  quantisation error", f"{fit.quantisation_error:.4g}"),
            ("  coverage", f"{fit.coverage:.1%} have activity {fit.activation:g} or more"),
        ]
    return aligned(rows)


def nodes_table(data: MapData) -> pd.DataFrame:
    """A row a node, for pictures of one's own."""
    into, out = data.degrees
    nodes = {
        "node": data.nodes,
        "x": data.plane[:, 0].round(6),
        "y": data.plane[:, 1].round(6),
        "habituation": data.habituation.round(6),
        "firings": data.firings,
        "merges": data.merges,
        "value": None if data.value is None else data.value.round(6),
        "in_degree": into,
        "out_degree": out,
    }
    return pd.DataFrame(nodes)
