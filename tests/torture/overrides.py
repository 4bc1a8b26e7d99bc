"""Keys with values that cannot work: exit code 2 and one line that names the key, or a run that
begins. Groups, options and keys are those of `conf/`, so a new part is tried without a line here.
"""

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from rlmem.config import check, compose
from rlmem.errors import UserError
from rlmem.machine import peak_rss_bytes, reset_peak_rss
from rlmem.runs import build
from rlmem.runs.preflight import preflight
from rlmem.setting_keys import free_keys
from tests.torture.runner import Case, Told, forked
from tests.torture.runs import BASE, command
from website import conf_files
from website.keys import NAMED_BY_OPTION

CASES = 12
MOST_BYTES = 200 * 2**20  # more than the run that nothing is wrong with
VALUES = [
    "0", "-1", "1", "-1.5", "1.5", "1e-30", "1e30", "99999999999999999999", "inf", "-inf", "nan",
    "null", "true", "abc", '""', "' '", "täglich", "日本", "'a/b'", "auto",
    "[]", "[0]", "[-1]", "[1,2]", "[nan]", "[null]", "[abc]", "[[1]]", "{}", "{a:1}",
]  # fmt: skip
NEVER = {"paths.output_dir"}  # where a run lies
ENVS = ("cartpole", "reacher", "mini_maze", "bit_flip", "minatar_breakout", "pong")


@cache
def plan() -> list[tuple[str, list[str]]]:
    """An option (empty: none) -> up to so many of its keys; together every key of every group."""
    found: list[tuple[str, list[str]]] = []
    known: set[str] = set()
    options = [
        (f"{group}={name}", group.replace("/", "."), conf_files.option(group, name))
        for group in conf_files.groups()
        if group not in conf_files.BUNDLES
        for name in conf_files.options(group)
    ]
    for chosen, group, option in [("", "", conf_files.entry("train")), *options]:
        names = [f"{group}.{name}".lstrip(".") for name in option.keys]
        fresh = [name for name in names if name not in known | NEVER]
        known.update(fresh)
        random.Random(chosen).shuffle(fresh)
        found += [(chosen, fresh[i : i + CASES]) for i in range(0, len(fresh), CASES)]
        if not fresh:
            found.append((chosen, []))
    random.Random(0).shuffle(found)
    keys, others = [part for part in found if part[1]], [part for part in found if not part[1]]
    # In turn, so that any 86 trials on end try all keys, and half of them options without.
    return [part for n, one in enumerate(keys) for part in (one, others[n % len(others)])]


def trial(rng: Case, folder: Path) -> Told:
    """One option of one group with several overrides, the last of them played with."""
    chosen, planned = plan()[rng.number % len(plan())]
    given, cfg = _composed(rng, folder, chosen)
    keys = list(_leaves(OmegaConf.to_container(cfg), ""))
    settings = check(cfg)
    begins = ["agent.learning_starts=40"] if settings.agent.learning_starts >= 240 else []
    own = [
        key for key in keys if key.startswith(f"{given[0].partition('=')[0].replace('/', '.')}.")
    ]
    allowed = _peak(given)
    tried, of = [], []
    for number in range(CASES):
        key = rng.choice(own if own and rng.random() < 0.8 else keys)
        if number < len(planned):
            key = planned[number]
        wrong = f"{key}={rng.choice(VALUES)}"
        if number >= len(planned) and rng.random() < 0.05:
            wrong = f"{'+' if rng.random() < 0.5 else ''}{key}_not={rng.choice(VALUES)}"
        what = f"{' '.join(given)} {wrong}"
        (folder.parent / "told").write_text(f"{what}: ")  # of one that ends the process
        if number < CASES - 1:
            said = _refusal([*given, wrong], what, allowed)
        else:
            free = key in free_keys(settings)  # lengths: such a run may be as long as it likes
            said = _played([*begins, *given, wrong], what, folder, free)
        if said is not None:
            assert "\n" not in said, f"{what}: {said}"
            changed = list(_changed(key, cfg, given, wrong))
            named = any(k.rpartition(".")[2] in said for k in changed) or any(
                above in said for k in changed for above in _groups_above(k)
            )
            assert named, f"{what}: {said} does not name {key}"
        tried.append(f"{wrong} {'begins' if said is None else 'refused'}")
        of.append(key)
    return Told(f"{' '.join(given)}: {', '.join(tried)}", CASES, tuple(of))


def _composed(rng: random.Random, folder: Path, chosen: str) -> tuple[list[str], DictConfig]:
    """An option with partners that it goes with, and the configuration."""
    groups = [g for g in conf_files.groups() if g not in conf_files.BUNDLES]
    group = chosen.partition("=")[0]
    while True:  # an option that only agents of plugins take is passed over
        above, given = [g for g in ("agent", "memory", "env") if g != group], [chosen or "seed=0"]
        for _ in range(40):
            if (said := _build(given)) is None:
                return given, compose("train", ["paths.output_dir=.", *given])
            if wanted := re.search(r"is not set; give it, such as ([\w.]+)=([\w./-]+)$", said):
                value = folder if wanted[2].startswith("/") else wanted[2]
                given.append(f"{wanted[1]}={value}")
                continue
            partners = rng.sample(above, rng.randint(1, len(above)))
            options = {g: ENVS if g == "env" else conf_files.options(g) for g in partners}
            given = [chosen, *(f"{g}={rng.choice(options[g])}" for g in partners)]
        group = rng.choice(groups)
        chosen = f"{group}={rng.choice(conf_files.options(group))}"


def _leaves(node: Any, above: str) -> Iterator[str]:
    """The keys of a configuration that hold no others."""
    for name, value in node.items():
        key = f"{above}{name}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{key}.")
        elif key != "paths.output_dir":
            yield key


def _build(overrides: list[str]) -> str | None:
    """Everything of a run up to its first step; the line that refuses it."""
    try:
        settings = check(compose("train", ["paths.output_dir=.", *overrides]))
        env = build.build_env(settings)
        agent: Any = build.build_agent(settings, env.spec)
        memory = build.build_memory(settings, env.spec, agent.columns())
        agent.join(memory)
        stream = build.build_stream(settings, env, memory, agent)
        preflight(memory, 1, settings.trainer.max_env_steps)
        stream.close()
    except UserError as error:
        return str(error)
    return None


def _peak(overrides: list[str]) -> int:
    """Bytes that a run which nothing is wrong with adds until it begins."""
    before = psutil.Process().memory_info().rss
    reset_peak_rss()
    assert (said := _build(overrides)) is None, f"{' '.join(overrides)}: {said}"
    return max(0, peak_rss_bytes() - before)


def _refusal(overrides: list[str], what: str, allowed: int) -> str | None:
    before = psutil.Process().memory_info().rss
    reset_peak_rss()
    try:
        said = _build(overrides)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    more = peak_rss_bytes() - before - allowed
    assert said is None or more <= MOST_BYTES, f"{what}: {more / 2**20:.0f} MiB more"
    return said


def _played(overrides: list[str], what: str, folder: Path, endless: bool) -> str | None:
    """A tiny run by the command; what it says where it does not come to its end."""
    output = folder / "output"
    keys = {o.partition("=")[0] for o in overrides}
    tiny = [o for o in BASE if o.partition("=")[0] not in keys]

    def run() -> int:
        code, said = command([*tiny, *overrides, f"hydra.run.dir={folder / 'run'}"])
        (folder / "said").write_text(said)
        return code

    code = forked(run, 20, output)
    if code is None:  # it began: it is long, or large
        assert endless or (folder / "run").exists(), f"{what}: it hangs"
        return None
    assert code in (0, 2), f"{what}: code {code}: {output.read_text()[-500:]}"
    said = (folder / "said").read_text().strip().splitlines()
    lines = [line for line in said if line.startswith("rlmem: ")]
    assert len(lines) == (code == 2), f"{what}: code {code}: {said[-5:]}"
    assert not any("Traceback" in line for line in said), f"{what}: {said[-5:]}"
    return lines[0] if lines else None


def _groups_above(key: str) -> Iterator[str]:
    """`memory.sampler` of `memory.sampler.alpha`: where that group is missing, it is what is named;
    not `memory` alone, which any line may say."""
    names = key.split(".")
    for length in range(2, len(names)):
        yield ".".join(names[:length])


def _changed(key: str, cfg: DictConfig, given: list[str], wrong: str) -> Iterator[str]:
    """The key that was given, and those that follow it."""
    yield key
    if key.endswith(NAMED_BY_OPTION):  # another part: what is said of it is of its other keys
        yield key.rpartition(".")[0]
    try:
        other = compose("train", ["paths.output_dir=.", *given, wrong])
    except UserError:
        return
    for follower in _leaves(OmegaConf.to_container(cfg), ""):
        if repr(OmegaConf.select(cfg, follower)) != repr(OmegaConf.select(other, follower)):
            yield follower
