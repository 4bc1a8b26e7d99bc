"""Embeddings: distances kept, linear, made again from their seed, bytes counted."""

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories.embedding import Identity, RandomProjection

SHAPE = (4, 20, 20)


def pixels(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *SHAPE), dtype=np.uint8)


def test_projection_keeps_distances_within_a_few_percent():
    x = pixels(200)
    projection = RandomProjection(SHAPE, 128, seed=0, scale_input=1 / 255)
    exact, embedded = Identity(SHAPE, 1 / 255).embed(x), projection.embed(x)
    ratio = np.linalg.norm(embedded[1:] - embedded[:-1], axis=1)
    ratio /= np.linalg.norm(exact[1:] - exact[:-1], axis=1)
    assert ratio.mean() == pytest.approx(1.0, abs=0.03)
    assert ratio.std() == pytest.approx(1 / np.sqrt(2 * 128), rel=0.2)


@pytest.mark.parametrize(
    "embedding", [Identity(SHAPE, 1 / 255), RandomProjection(SHAPE, 32, 3, 1 / 255)]
)
def test_embeddings_are_linear_float32_rows(embedding):
    x = pixels(4).astype(np.float32)
    rows = embedding.embed(x)
    assert rows.dtype == np.float32
    assert rows.shape == (4, embedding.dims)
    mixed = embedding.embed((0.25 * x[:1] + 0.75 * x[1:2]).astype(np.float32))
    np.testing.assert_allclose(mixed[0], 0.25 * rows[0] + 0.75 * rows[1], atol=1e-4)


def test_identity_scales_and_flattens_a_copy():
    x = np.ones((2, 3), np.float32)
    rows = Identity((3,)).embed(x)
    rows += 1
    assert (x == 1).all()
    assert (Identity(SHAPE, 1 / 255).embed(np.full((1, *SHAPE), 255, np.uint8)) == 1).all()


def test_a_loaded_projection_is_made_again_from_its_seed():
    first, second = (RandomProjection(SHAPE, 16, seed, 1 / 255) for seed in (1, 2))
    x = pixels(3)
    assert not np.allclose(first.embed(x), second.embed(x))
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(first.embed(x), second.embed(x))
    assert all(np.ndim(v) == 0 for v in first.state_dict().values()), "the matrix is not saved"


def test_footprint_counts_the_matrix():
    assert RandomProjection(SHAPE, 16).footprint() == 1600 * 16 * 4
    assert Identity(SHAPE).footprint() == 0


def test_other_dims_are_refused():
    with pytest.raises(UserError, match="dims=0"):
        RandomProjection(SHAPE, 0)
    with pytest.raises(UserError, match="dims=8"):
        RandomProjection(SHAPE, 8).load_state_dict(RandomProjection(SHAPE, 16).state_dict())
