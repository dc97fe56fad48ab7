"""Placements of frames, on the host and in double precision."""

from dataclasses import dataclass, field

import numpy as np

from ..model import Frame


@dataclass(frozen=True)
class Placement:
    """Position `p` [m] and unit quaternion `quat` (w x y z) of one frame in another."""

    p: np.ndarray = field(default_factory=lambda: np.zeros(3))
    quat: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))

    @staticmethod
    def from_rpy(p: np.ndarray, rpy: np.ndarray) -> "Placement":
        """Rotation by roll, pitch and yaw about the fixed x, y and z axes, in this order [rad]."""
        quat = np.array([1.0, 0.0, 0.0, 0.0])
        for axis, angle in zip(np.eye(3), rpy, strict=True):
            quat = _multiply(_about(axis, angle), quat)
        return Placement(p, quat)

    @staticmethod
    def about(axis: np.ndarray, angle: float) -> "Placement":
        """Rotation by `angle` [rad] about the unit vector `axis`."""
        return Placement(quat=_about(axis, angle))

    @property
    def R(self) -> np.ndarray:
        """Rotation matrix, shape `(3, 3)`."""
        w, u = self.quat[0], self.quat[1:]
        crossed = np.array([[0.0, -u[2], u[1]], [u[2], 0.0, -u[0]], [-u[1], u[0], 0.0]])
        return np.eye(3) + 2.0 * (w * crossed + crossed @ crossed)

    def __matmul__(self, other: "Placement") -> "Placement":
        """X_AC = X_AB @ X_BC."""
        return Placement(self.apply(other.p), _multiply(self.quat, other.quat))

    def inverse(self) -> "Placement":
        """X_BA = X_AB⁻¹."""
        quat = self.quat * [1.0, -1.0, -1.0, -1.0]
        return Placement(-Placement(quat=quat).R @ self.p, quat)

    def apply(self, point: np.ndarray) -> np.ndarray:
        """Coordinates in A of a point given in B."""
        return self.p + self.R @ point


def placement_of(frame: Frame) -> Placement:
    """The placement of a frame in its body."""
    quat = np.asarray(frame.quat, float)
    return Placement(np.asarray(frame.p, float), quat / np.linalg.norm(quat))


def _about(axis: np.ndarray, angle: float) -> np.ndarray:
    return np.array([np.cos(angle / 2.0), *(np.sin(angle / 2.0) * axis)])


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *vector])
