"""Rotations and motions on which the laws of the groups are tried."""

import numpy as np

NEAR_ZERO = (0.0, 1e-200, 1e-12, 1e-8, 1e-4)
NEAR_PI = (np.pi - 1e-3, np.pi - 1e-8)


def rotation_vectors() -> np.ndarray:
    """Angles from zero to just below π about random axes and the coordinate axes."""
    rng = np.random.default_rng(7)
    angles = [*NEAR_ZERO, 0.3, 1 - 1e-12, 1.0, 2.0, 3.0, *NEAR_PI]
    axes = np.concatenate([np.eye(3), -np.eye(3), rng.normal(size=(6, 3))])
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return np.concatenate([angle * axes for angle in angles])


def twists() -> np.ndarray:
    """Rotation vectors as above, each with a random translation."""
    phi = rotation_vectors()
    return np.concatenate([np.random.default_rng(8).normal(size=phi.shape), phi], axis=1)
