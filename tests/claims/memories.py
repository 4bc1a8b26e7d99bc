"""What memories take and buy, reckoned again from the result files."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rlmem.analysis.compare.statistics import row_mean, stratified_bootstrap
from rlmem.analysis.read.record import read_record
from studies.maze.compare import paired as maze_by_maze
from tests.claims.files import (
    ROOT,
    Claim,
    benchmark,
    interval,
    listed,
    of,
    paired,
    results,
    short,
)


def reacher() -> list[Claim]:
    table, small = results("reacher_frontier"), "FIFO of the bytes of a_T .05"
    rows = "uniform", "reservoir, 250 kB", "a_T .05", small
    full, sample, coarse, newest = (of(table, row, "return_over_run") for row in rows)
    held, *shares = (of(table, row, "memory_bytes_peak").mean() for row in rows)
    level, more = paired(sample, full), paired(sample, newest)
    below = paired(full, coarse)
    assert {len(full), len(sample), len(coarse), len(newest)} == {5}
    assert set(table["env_steps"]) == {30_000}
    assert ((sample - newest) > 0).all()  # in each of the seeds
    assert ((coarse - newest) > 0).all()
    assert (of(table, small, "eval_return_mean") > -12).sum() == 4
    assert all(0.13 < share / held < 0.145 for share in shares)  # a seventh
    claims = [
        f"took {shares[0] / held:.0%}".replace("%", " %") + " of the full replay's bytes: in "
        f'the mean of the learning curve ("over the run") {sample.mean():.1f} and '
        f"{full.mean():.1f} (difference "
        f"{short(level.value, '.2f')}, 95 % interval {interval(level, '.2f')})",
        f"no difference was seen: {coarse.mean():.1f} ({below.value:.1f} below the full replay, "
        f"{interval(below)})",
        f"scored less: {newest.mean():.1f} ({more.value:.1f} below the sample, {interval(more)})",
        "in each of the five seeds; at the end four of the five had learned again",
        "Reacher, 30,000 steps",
        "learned as a full replay does, in a seventh of its bytes; of a map of states in as few no "
        f"difference was seen (over the run {below.value:.1f} below, {interval(below)})",
    ]
    found = (
        f"(paired difference {level.value:.1f}, 95 % interval {interval(level)}), map "
        f"{coarse.mean():.1f} ({below.value:.1f} below the full replay, {interval(below)}), "
        f"list {newest.mean():.1f}"
    )
    return [("README.md", c) for c in claims] + [("studies/reacher_frontier/findings.md", found)]


def sb3() -> list[Claim]:
    runs = {run["name"]: run for run in benchmark("sb3_atari")["results"]}
    default, ours = (runs[f"sb3 {kind}"] for kind in ("default", "compressed"))
    assert default["weights_crc32"] == ours["weights_crc32"]
    size, small = (run["metrics"]["bytes_a_transition"] for run in (default, ours))
    grew = ours["metrics"]["resident_bytes_a_transition"]
    return [("README.md", f"takes {size:,.0f} bytes a transition on Road Runner. With rlmem's "
                          f"buffer it takes {small:,.0f} as counted (the process grew by "
                          f"{grew:.0f}),")]  # fmt: skip


def random_play() -> list[Claim]:
    runs = {run["recording"]["game"]: run for run in benchmark("bytes_random")["results"]}
    games = "road_runner", "ms_pacman", "pong"
    counted, resident = (
        [f"{1e3 * runs[game]['metrics'][name]:.0f}" for game in games]
        for name in ("counted_gb_a_million", "gb_a_million")
    )
    assert {run["recording"]["policy"] for run in runs.values()} == {"random"}
    said = "random play takes {} (Road Runner), {} (MsPacman), {} (Pong) bytes a transition"
    grew = "as counted; the process grew by {}, {} and {} |"
    return [("README.md", f"{said.format(*counted)} {grew.format(*resident)}")]


def trained_play() -> list[Claim]:
    sizes: dict[str, list[float]] = {}
    grown = []
    for run in benchmark("bytes_trained")["results"]:
        assert run["recording"]["policy"] == "training, agent=rainbow"
        assert run["recording"]["steps"] == 100_000
        each = sizes.setdefault(run["recording"]["game"], [])
        assert run["recording"]["seed"] == len(each)
        each.append(1e3 * run["metrics"]["counted_gb_a_million"])
        if run["recording"]["game"] == "road_runner":
            grown.append(1e8 * run["metrics"]["gb_a_million"] / 2**20)
    mebibytes = [size * 1e5 / 2**20 for size in sizes["road_runner"]]
    assert len(mebibytes) == 5
    assert max(mebibytes) < 16
    least, most = (f"{found(mebibytes):.1f}" for found in (min, max))
    low, high = (f"{found(grown):.1f}" for found in (min, max))
    grew = " and ".join(", ".join(f"{size:.1f}" for size in grown).rsplit(", ", 1))
    listed = ", ".join(f"{size:.1f}" for size in mebibytes)
    shown = ", ".join(f"{size:.0f}" for size in sizes["road_runner"])
    others = [
        ("docs/bytes.md", f"| {name} | {size:.0f} | {size * 1e5 / 2**20:.1f} |")
        for name, game in (
            ("Alien", "alien"),
            ("Frostbite", "frostbite"),
            ("MsPacman", "ms_pacman"),
            ("Hero", "hero"),
            ("Pong", "pong"),
        )
        for (size,) in [sizes[game]]
    ]
    return [
        ("README.md", f"transitions of the five runs into {least} to {most} MiB, without loss"),
        ("README.md", f"on Road Runner take {least} to {most} MiB, without loss | measured"),
        ("README.md", f"(as counted; the process grew by {low} to {high} MiB;"),
        ("README.md", f"as counted: the process grew by {low} to {high} MiB |"),
        ("docs/atari.md", f"the process grew by {grew} MiB ("),
        ("docs/bytes.md", f"| RoadRunner | {shown} | {listed} |"),
        ("docs/atari.md", f"{', '.join(listed.split(', ')[:4])} and {mebibytes[4]:.1f} MiB"),
        *others,
    ]


def frontiers() -> list[Claim]:
    breakout = results("minatar_frontier")
    by_label = breakout.groupby("label")["return_over_run"].mean()
    maps = [label for label in by_label.index if label.startswith("a_T .9")]
    lists = [f"FIFO of the bytes of {label}" for label in maps]
    beside = [(by_label[m], by_label[x]) for m, x in zip(maps, lists, strict=True) if x in by_label]
    assert beside
    assert all(listed > 0.9 * mapped for mapped, listed in beside)
    assert breakout.groupby("label")["seed"].nunique().max() == 3
    size = breakout.groupby("label")["memory_bytes_peak"].mean() / 1e6
    rows = "a_T .9, exemplar, 32 dims, no links", "uniform"
    each = [f"{size[row]:.1f}" for row in rows]
    (level,) = {f"{by_label[row]:.1f}" for row in rows}
    few = "FIFO of the bytes of a_T .5, exemplar, 32 dims"
    assert 6 < size["uniform"] / size[few] < 8
    return [
        (page, f"it took as many{of} ({' and '.join(each)} MB)")
        for page, of in (
            ("docs/gwr.md", " as compressed uniform replay"),
            ("studies/minatar_frontier/findings.md", ""),
        )
    ] + [
        (
            "README.md",
            "on MinAtar Breakout a map took as many bytes as all transitions (over the run "
            f"{level} each), a list of the newest a seventh of them ({by_label[few]:.1f}) | "
            "5 seeds; 3, too few for a claim",
        )
    ]


def mountain_car() -> list[Claim]:
    table = results("medqn_small", "MountainCar")
    ours, large, small = (
        of(table, row, "eval_return_mean") for row in ("MeDQN(U), 32", "DQN, 10,000", "DQN, 32")
    )
    assert {len(ours), len(large), len(small)} == {20}
    (updates,) = set(of(table, "MeDQN(U), 32", "grad_steps"))
    level, above = paired(ours, large), paired(ours, small)
    return [
        ("README.md", f"on MountainCar MeDQN with 32 transitions ends at {ours.mean():.0f}, DQN "
                      f"with 10,000 at {large.mean():.0f} (no difference was seen: "
                      f"{level.value:.0f}, {interval(level, '.0f')}), with 32 at "
                      f"{small.mean():.0f} | 20 seeds; four gradient steps on each of "
                      f"{updates:,} minibatches"),
        ("studies/medqn_small/findings.md",
         f"{above.value:.0f} (95 % interval {interval(above, '.0f')}), and {level.value:.0f} "
         f"against 10,000 transitions ({interval(level, '.0f')})"),
    ]  # fmt: skip


def mazes() -> list[Claim]:
    table = pd.read_csv(ROOT / "studies/maze/results.csv")
    random = table[table["maze"] != "released"]
    shorter, same = (maze_by_maze(random, *p) for p in (("GCMR", "Q table"), ("GBMR", "GCMR")))
    assert shorter.below == len(shorter.ratio) == 30
    ratio, bounds = short(shorter.mean.value, ".2f"), interval(shorter.mean, ".2f")
    return [
        ("README.md", f"in mazes GCMR takes {ratio} of a Q table's steps ({bounds}); GBMR takes as "
                      f"many as GCMR ({same.mean.value:.3f}, {short(same.mean.low, '.3f')} to "
                      f"{same.mean.high:.3f}) | 30 mazes"),
        ("studies/maze/findings.md", f"({ratio}, 95 % interval {bounds})"),
    ]  # fmt: skip


def episodes_of_one_count() -> list[Claim]:
    """PER and CER below uniform replay in runs of 300 episodes, up to the end of the shortest."""
    runs = [
        run
        for run in read_record(ROOT / "studies/er_study/runs.npz")
        if run.task == "CartPole-v1" and run.label != "none"
    ]
    end = min(float(run.curves["env_steps"][-1]) for run in runs)

    def up_to_end(label: str) -> pd.Series:
        found = {}
        for run in (run for run in runs if run.label == label):
            known = np.isfinite(run.curves["train_return_mean"])
            steps, returns = (run.curves[c][known] for c in ("env_steps", "train_return_mean"))
            at = np.append(steps[steps < end], end)
            area = np.trapezoid(np.interp(at, steps, returns), at)
            found[run.seed] = float(area / (at[-1] - at[0]))
        return pd.Series(found).sort_index()

    table = results("er_study", "CartPole")
    taken = [table["label"] == "none", table["label"] != "none"]
    (low, high), (least, most) = (
        (table[of]["env_steps"].min(), table[of]["env_steps"].max()) for of in taken
    )
    per, cer = (paired(up_to_end("uniform"), up_to_end(label)) for label in ("per", "cer"))
    return [
        ("studies/er_study/findings.md",
         f"{least:,} to {most:,} env steps on CartPole, {low:,} to {high:,} without replay"),
        ("studies/er_study/findings.md",
         f"PER is {per.value:.0f} below uniform replay ({interval(per, '.0f')}) and CER "
         f"{cer.value:.0f} ({interval(cer, '.0f')})"),
    ]  # fmt: skip


def episodic() -> list[Claim]:
    """Who is above whom, in each seed."""
    table = results("episodic_atari")

    def by_seed(game: str, label: str) -> pd.Series:
        return of(table[table["env_id"].str.contains(game)], label, "eval_return_mean")

    for game, best, others in (
        ("MsPacman", "MFEC", ("DQN", "PER", "NEC")),
        ("RoadRunner", "NEC", ("DQN", "PER", "MFEC")),
    ):
        for other in others:
            above = (by_seed(game, best) - by_seed(game, other)).dropna()
            assert len(above) == 3, (game, other)
            assert (above > 0).all(), (game, other)
    atari = table[~table["env_id"].str.contains("Pong")]
    assert set(atari["env_steps"]) == {100_000}
    return [("README.md", "at 100,000 steps MFEC, which trains no network, scored more than DQN, "
                          "PER and NEC on MsPacman, and NEC more than DQN, PER and MFEC on Road "
                          "Runner")]  # fmt: skip


def equal_updates() -> list[Claim]:
    found, steps = [], set()
    for env_id in ("CartPole", "Breakout", "Acrobot"):
        table = results("equal_updates", env_id)
        rows = [table[table["label"] == row] for row in ("newest", "uniform, compressed")]
        assert {len(row) for row in rows} == {5}
        assert len({*rows[0]["grad_steps"], *rows[1]["grad_steps"]}) == 1
        steps.add(int(rows[0]["grad_steps"].iloc[0]))
        newest, whole = (row.set_index("seed")["return_over_run"].sort_index() for row in rows)
        found.append(paired(newest, whole) if env_id == "CartPole" else paired(whole, newest))
    above, near, below = found
    return [("README.md",
             f"on CartPole (over the run {above.value:.0f} above, {above.low:.1f} to "
             f"{above.high:.0f}), less on Acrobot ({below.value:.0f} below, {below.low:.1f} to "
             f"{below.high:.0f}); on MinAtar Breakout {short(near.value, '.3f')} less "
             f"({interval(near, '.3f')}), too near 0 for a claim | "
             f"5 seeds; {max(steps):,} and {min(steps):,} gradient steps")]  # fmt: skip


def published_maps() -> list[Claim]:
    """GWR-R's published figures on Reacher."""
    page, table = "studies/gwrr_paper/findings.md", results("gwrr_paper", "Reacher")
    plain, ours = (
        table[table["label"] == label].set_index("seed").sort_index()
        for label in ("plain buffer", "gwr_released")
    )
    assert [*plain.index] == [*ours.index] == [*range(5)]
    assert {*plain["grad_steps"], *ours["grad_steps"]} == {85_010}
    ends = [runs["eval_return_mean"] for runs in (plain, ours)]
    means = [stratified_bootstrap([end.to_numpy()], row_mean, widen=True) for end in ends]
    told = [f"{mean.value:.1f} ({interval(mean)}) with the" for mean in means]
    below = ends[0] - ends[1]
    apart = paired(ends[0], ends[1])
    over = paired(plain["return_over_run"], ours["return_over_run"])
    nodes, published = ours["memory_entries"], 22_044
    more = nodes.mean() / published - 1
    sizes = ours["memory_bytes_peak"].agg(["min", "max"]) / 1e6
    held = f"{sizes['min']:.1f} to {sizes['max']:.1f} MB against"
    least = f"{plain['memory_bytes_peak'].max() / 1e6:.1f}"
    listed_nodes = " and ".join(listed(nodes).rsplit(", ", 1))
    return [
        (page, f"{listed_nodes}: {nodes.mean():,.0f} on average, {more:.0%}".replace("%", " %")),
        (page, f"Reacher {told[0]} plain buffer"),
        (page, f"{told[1]} map"),
        (page, f"by {below.min():.1f} to {below.max():.1f} ({apart.value:.1f} in the mean, "
               f"{interval(apart)})"),
        (page, f"Over the run it is {over.value:.1f} below ({interval(over)})"),
        (page, f"Reacher {held} {least}"),
        ("docs/gwr.md", f"{held} {least} on Reacher"),
        ("docs/gwr.md", f"| {means[0].value:.1f} | -9.5 +- 1.2 | {means[1].value:.1f} | "
                        f"{published:,} | {nodes.mean():,.0f} ({nodes.min():,} to "
                        f"{nodes.max():,}) |"),
    ]  # fmt: skip


def bit_flips() -> list[Claim]:
    page, said = "studies/bit_flip/findings.md", []
    labels = "DQN", "HER, future", "HER, final", "HER, future, and PER"
    for bits, seeds in ((5, 3), (10, 3), (13, 3), (15, 5), (20, 3), (30, 1)):
        table = results("bit_flip", f"bits={bits}$")
        (steps,) = set(table["grad_steps"])
        rates = [list(of(table, label, "eval_success_rate")) for label in labels]
        assert {len(row) for row in rates} == {seeds}
        for rate in rates[1:]:
            assert bits == 30 or set(rate) == {1}  # every size up to 20 is solved
        cells = [", ".join(short(r, ".2f" if 0 < r < 1 else ".0f") for r in row) for row in rates]
        if seeds == 5:
            assert all(len(set(row)) == 1 for row in rates)
            cells = [f"{row[0]:.0f} on all" for row in rates]
        said.append((page, f"| {bits} | {seeds} | {steps:,.0f} | {' | '.join(cells)} |"))
        held = [of(table, label, "memory_bytes_peak").mean() for label in labels]
        assert all(1.295 < hindsight / held[0] < 1.5 for hindsight in held[1:3])
        assert 1.5 < held[3] / held[0] < 1.6
        if seeds == 5:
            sizes = [f"{size / 2**20:.1f}" for size in held]
            said.append((page, f"{sizes[0]}, {sizes[1]} and {sizes[3]} MiB at 15 bits"))
    return said


SOURCES: list[Callable[[], list[Claim]]] = [
    reacher,
    sb3,
    random_play,
    trained_play,
    frontiers,
    mountain_car,
    mazes,
    episodes_of_one_count,
    episodic,
    equal_updates,
    published_maps,
    bit_flips,
]
