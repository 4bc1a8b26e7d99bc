"""Returns over a rollout."""

import numpy as np
from numba import njit


@njit(cache=True)
def lambda_returns(
    reward: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    gamma: float,
    mix: float,
) -> np.ndarray:
    """The targets of Q(lambda), float32 [E, T] (Gallici et al. 2024, arXiv 2407.04811).

    R_t = r_t + gamma (lambda R_t+1 + (1 - lambda) v_t+1), where v is the value of the best action.
    Where no later return of the same episode is known, at the rollout's end and at a truncation,
    R_t = r_t + gamma v_t+1; at a termination R_t = r_t. No return passes an episode's end.

    Args:
        reward: float32 [E, T], of E environments over T steps.
        next_value: float32 [E, T], max_a Q(s', a) of what truly followed; at an episode's end of
            its last observation, not of the next episode's first.
        terminated, truncated: bool [E, T].
        gamma: discount, [0, 1].
        mix: lambda, [0, 1].
    """
    envs, steps = reward.shape
    returns = np.empty((envs, steps), np.float32)
    for e in range(envs):
        following = 0.0
        for t in range(steps - 1, -1, -1):
            value = float(next_value[e, t])
            if t < steps - 1 and not truncated[e, t]:
                value = mix * following + (1.0 - mix) * value
            if terminated[e, t]:
                value = 0.0
            following = reward[e, t] + gamma * value
            returns[e, t] = following
    return returns
