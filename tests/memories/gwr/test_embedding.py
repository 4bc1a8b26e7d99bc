"""Embeddings: distances kept, linear, made again from their seed, bytes counted."""

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories.gwr.embedding import Identity, RandomProjection

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
    assert all(np.ndim(v) == 0 for v in first.state_dict().values()), "the signs are not saved"


def test_footprint_counts_the_signs_and_the_rotation():
    projection = RandomProjection(SHAPE, 16)
    assert projection.footprint() == 1600 * 16
    assert projection.projected_footprint() == 1600 * 16 + 16 * 16 * 4
    projection.rotate(projection.embed(pixels(20)))
    assert projection.footprint() == projection.projected_footprint()
    assert RandomProjection(SHAPE, 16, stack=4).footprint() == 400 * 16
    assert Identity(SHAPE).footprint() == Identity(SHAPE).projected_footprint() == 0


def distances(rows):
    return np.linalg.norm(rows[:, None].astype(np.float64) - rows[None], axis=2)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("seen", [2, 10, 200])  # fewer observations than axes, and more
def test_a_rotation_changes_no_distance_and_puts_the_widest_axes_first(stack, seen):
    projection = RandomProjection(SHAPE, 32, 0, 1 / 255, stack)
    x = pixels(60, seed=1)
    before = projection.embed(x)
    projection.rotate(projection.embed(pixels(seen)))
    after = projection.embed(x)
    np.testing.assert_allclose(distances(after), distances(before), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), np.linalg.norm(before, axis=1), 1e-5)
    assert not np.allclose(after, before, atol=0.1)
    if seen == 200:
        spread = projection.embed(pixels(200)).var(0)
        assert (np.diff(spread) <= 1e-5).all()


def test_a_rotated_projection_is_loaded_with_its_rotation():
    first = RandomProjection(SHAPE, 16, 1, 1 / 255, stack=4)
    first.rotate(first.embed(pixels(50)))
    second = RandomProjection(SHAPE, 16, 2, 1 / 255, stack=4)
    second.rotate(second.embed(pixels(50, seed=3)))
    second.load_state_dict(first.state_dict())
    x = pixels(5, seed=2)
    np.testing.assert_array_equal(first.embed(x), second.embed(x))
    plain = RandomProjection(SHAPE, 16, 1, 1 / 255, stack=4)
    second.load_state_dict(plain.state_dict())
    np.testing.assert_array_equal(plain.embed(x), second.embed(x))
    assert second.footprint() == plain.footprint()


@pytest.mark.parametrize("stack", [1, 4])
def test_squared_distances_are_kept_in_expectation(stack):
    """Over matrices, the mean of |Pd|^2 / |d|^2 is 1, with variance 2 / dims for one frame."""
    x = pixels(2)
    x[1, 0] = x[0, 0]  # the frames of a pair differ by unequal amounts
    x[1, 1] = np.clip(x[0, 1].astype(int) + 3, 0, 255)
    exact = distances(Identity(SHAPE, 1 / 255).embed(x))[0, 1] ** 2
    ratios = [
        distances(RandomProjection(SHAPE, 16, seed, 1 / 255, stack).embed(x))[0, 1] ** 2 / exact
        for seed in range(300)
    ]
    assert np.mean(ratios) == pytest.approx(1.0, abs=5 * np.std(ratios) / np.sqrt(300))
    assert np.std(ratios) == pytest.approx(np.sqrt(2 / 16), rel=0.5) or stack == 4
    assert 0.2 < np.std(ratios) < 1.0


def test_each_frame_has_its_own_part_of_the_dimensions():
    projection = RandomProjection(SHAPE, 16, 0, 1 / 255, stack=4)
    x = pixels(1)
    for frame in range(4):
        other = x.copy()
        other[0, frame] = 255 - other[0, frame]
        changed = (projection.embed(x) != projection.embed(other))[0].reshape(4, 4)
        assert changed.all(1).tolist() == [k == frame for k in range(4)]
        assert changed.any(1).tolist() == [k == frame for k in range(4)]


def test_other_dims_and_frames_are_refused():
    with pytest.raises(UserError, match="dims=0"):
        RandomProjection(SHAPE, 0)
    with pytest.raises(UserError, match="dims=8"):
        RandomProjection(SHAPE, 8).load_state_dict(RandomProjection(SHAPE, 16).state_dict())
    with pytest.raises(UserError, match="dims=10: give a multiple of the 4"):
        RandomProjection(SHAPE, 10, stack=4)
    with pytest.raises(UserError, match="stack=1: the saved map has 4"):
        RandomProjection(SHAPE, 8).load_state_dict(RandomProjection(SHAPE, 8, stack=4).state_dict())
