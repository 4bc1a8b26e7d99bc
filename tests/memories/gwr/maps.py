"""Walks to show to GWR maps, and small maps of vectors and of images."""

from itertools import pairwise

import numpy as np
import torch

from rlmem.memories.gwr.embedding import Identity, RandomProjection
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import MapOptions
from rlmem.memories.gwr.rule import MetricSettings, RuleSettings
from rlmem.memories.gwr.writer import GWRWriter

DIMS = 3


def walk_block(rng, rows, num_envs=1, end=0.1, dims=DIMS, action_dims=0):
    """A block of random walks in a box; episodes end at random, in both ways.

    With action_dims, actions are vectors.
    """
    columns = {name: [] for name in ("observation", "action", "env_id")}
    following = {name: [] for name in ("observation", "reward", "terminated", "truncated")}
    position = rng.uniform(-1, 1, (num_envs, dims)).astype(np.float32)
    for row in range(rows):
        env = row % num_envs
        step = rng.normal(0, 0.5, dims).astype(np.float32)
        target = np.clip(position[env] + step, -1, 1) + rng.normal(0, 1e-3, dims)
        target = target.astype(np.float32)
        terminated, truncated = rng.random(2) < end / 2
        action = rng.normal(size=action_dims) if action_dims else rng.integers(2)
        columns["observation"].append(position[env].copy())
        columns["action"].append(action)
        columns["env_id"].append(env)
        following["observation"].append(target)
        following["reward"].append([rng.normal()])
        following["terminated"].append([terminated])
        following["truncated"].append([truncated])
        fresh = rng.uniform(-1, 1, dims).astype(np.float32)
        position[env] = fresh if terminated or truncated else target
    block = {k: np.array(v) for k, v in columns.items()}
    if action_dims:
        block["action"] = block["action"].astype(np.float32)
    block["next"] = {k: np.array(v) for k, v in following.items()}
    block["next"]["reward"] = block["next"]["reward"].astype(np.float32)
    return block


def image_block(rng, rows, num_envs=1, end=0.05, shape=(1, 6, 6)):
    """As `walk_block`, with random uint8 frames."""
    block = walk_block(rng, rows, num_envs, end)
    frames = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    done = (block["next"]["terminated"] | block["next"]["truncated"])[:, 0]
    observation = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    for env in range(num_envs):
        mine = np.flatnonzero(block["env_id"] == env)
        for before, after in pairwise(mine):
            if not done[before]:
                observation[after] = frames[before]
    block["observation"], block["next"]["observation"] = observation, frames
    return block


def part(block, rows):
    cut = {k: v[rows] for k, v in block.items() if k != "next"}
    return cut | {"next": {k: v[rows] for k, v in block["next"].items()}}


MAP = ("contexts", "prototype", "node_terminals", "evict")
WRITER = ("num_envs", "n_step", "gamma", "seed", "embedding")


def storage_options(options):
    """Arguments of a `MapStorage`, those of its `MapOptions` among them, put where they go."""
    own = MapOptions(**{k: v for k, v in options.items() if k in MAP})
    return {k: v for k, v in options.items() if k not in MAP} | {"options": own}


def writer_options(options):
    """Arguments of a `GWRWriter`, constants and the metric's among them, put where they go."""
    given = {k: v for k, v in options.items() if k in WRITER}
    rule = {k: v for k, v in options.items() if k not in WRITER}
    names = {"metric_scale": "scale", "scale_samples": "scale_samples"}
    metric = {names[k]: rule.pop(k) for k in names if k in rule}
    joined = "joined" if rule.pop("joined", False) else "apart"
    return given | {"rule": RuleSettings(**rule, episodes=joined, metric=MetricSettings(**metric))}


def split(options):
    """Arguments of a storage and of a writer."""
    of_storage = {k for k in options if k in (*MAP, "num_actions", "action_shape", "stack")}
    rest = {k: v for k, v in options.items() if k not in of_storage}
    return storage_options({k: options[k] for k in of_storage}), writer_options(rest)


def vector_map(activation=0.7, habituation=1.0, capacity=1000, dims=DIMS, own_keys=False, **kwargs):
    """A map of vectors; options of the storage and of the writer."""
    if "action_shape" not in kwargs:
        kwargs["num_actions"] = 2
    options, settings = split({"embedding": Identity((dims,)), **kwargs})
    key_dims = None if own_keys else dims
    storage = MapStorage(capacity, (dims,), np.float32, key_dims, **options)
    writer = GWRWriter(activation, habituation, **settings)
    writer.register_storage(storage)
    return storage, writer


def image_map(activation=0.9, stack=4, capacity=1000, **kwargs):
    """A map of uint8 images of 6 x 6 pixels, in a projection to 16 dimensions."""
    shape = (stack, 6, 6)
    embedding = RandomProjection(shape, 16, seed=1, scale_input=1 / 255, stack=stack)
    given = {"contexts": 2, "num_actions": 2, "stack": stack, "embedding": embedding}
    options, settings = split(given | kwargs)
    storage = MapStorage(capacity, shape, np.uint8, 16, **options)
    writer = GWRWriter(activation, 1.0, **settings)
    writer.register_storage(storage)
    return storage, writer


def write(writer, block, size=32):
    rows = len(block["action"])
    index = [writer.extend(part(block, slice(i, i + size))) for i in range(0, rows, size)]
    writer.check_valid()
    writer._storage.check_valid()
    return torch.cat(index).numpy()


def snapshot(state):
    return {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in state.items()}


def assert_same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        if name in ("edges.dirty", "book"):  # a load marks all edges as touched
            continue
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def corridor(rows, states, seed=0):
    """Random steps along a line of states; every state is a node at activation threshold 1."""
    rng = np.random.default_rng(seed)
    position = np.full(rows + 1, states // 2)
    action = rng.integers(2, size=rows)
    for i in range(rows):
        position[i + 1] = np.clip(position[i] + 2 * action[i] - 1, 0, states - 1)
    frames = np.stack([position, position % 3], 1).astype(np.float32)
    never = np.zeros((rows, 1), bool)
    following = {"observation": frames[1:], "reward": action[:, None].astype(np.float32)}
    following |= {"terminated": never, "truncated": never}
    return {"observation": frames[:-1], "action": action, "next": following}


def small_map(states=20, rows=400):
    storage = MapStorage(100, (2,), np.float32, 2, num_actions=2)
    rule = RuleSettings(max_age=10**6, eps_b=0.0, eps_n=0.0)  # a node a state: they stand still
    writer = GWRWriter(1.0, 1.0, embedding=Identity((2,)), rule=rule)
    writer.register_storage(storage)
    if rows:
        writer.extend(corridor(rows, states))
    return storage, writer
