"""Transforms from constrained values (positive, bounded, physically consistent) to free numbers.

A transform maps the value of a leaf (or of a whole body) to numbers that an optimizer may vary
without limits, and back. Both maps take the `reference`, the value in the starting model. A
transform also reports numbers in the units of the user.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..errors import ModelError
from ..inertia import from_log_cholesky, to_log_cholesky

Free = Float[Array, "n"]


class AbstractTransform(eqx.Module):
    """From values to free numbers and back."""

    @abstractmethod
    def to_free(self, reference: Any) -> Free:
        """Free numbers of the reference; not finite if it is out of range."""

    @abstractmethod
    def to_value(self, free: Free, reference: Any) -> Any:
        """The value at free numbers, shaped like the reference."""

    @abstractmethod
    def report(self, value: Any, reference: Any) -> Float[Array, "k"]:
        """Reported numbers of a value."""

    @abstractmethod
    def labels(self, name: str, reference: Any) -> list[str]:
        """A label for each reported number."""

    def bounds(self) -> tuple[float, float]:
        """The bounds of every reported number, which finite free numbers do not reach.

        With bounds, each reported number has one free number. Default: none.
        """
        return -np.inf, np.inf


def _indexed(name: str, shape: tuple[int, ...]) -> list[str]:
    if shape == ():
        return [name]
    return [f"{name}{list(index)}" for index in np.ndindex(shape)]


class AbstractElementwise(AbstractTransform):
    """A transform of every entry of one leaf."""

    @abstractmethod
    def forward(self, x: Array, reference: Array) -> Array:
        """Free numbers of entries."""

    @abstractmethod
    def backward(self, free: Array, reference: Array) -> Array:
        """Entries of free numbers."""

    def to_free(self, reference: Array) -> Free:
        return self.forward(reference, reference).ravel()

    def to_value(self, free: Free, reference: Array) -> Array:
        return self.backward(free.reshape(reference.shape), reference)

    def report(self, value: Array, reference: Array) -> Float[Array, "k"]:
        return value.ravel()

    def labels(self, name: str, reference: Array) -> list[str]:
        return _indexed(name, jnp.shape(reference))


class Unbounded(AbstractElementwise):
    """Any real number, in units of its starting value if that is not zero."""

    def forward(self, x: Array, reference: Array) -> Array:
        return x / _unit(reference)

    def backward(self, free: Array, reference: Array) -> Array:
        return free * _unit(reference)


def _unit(reference: Array) -> Array:
    size = jnp.abs(jax.lax.stop_gradient(reference))
    return jnp.where(size > 0, size, jnp.ones_like(size))


class Positive(AbstractElementwise):
    """Positive numbers, by their logarithm."""

    def forward(self, x: Array, reference: Array) -> Array:
        return jnp.log(x)

    def backward(self, free: Array, reference: Array) -> Array:
        return jnp.exp(free)

    def bounds(self) -> tuple[float, float]:
        return 0.0, np.inf


class Bounded(AbstractElementwise):
    """Numbers strictly between `lower` and `upper`, by their logit."""

    lower: float
    upper: float

    def __check_init__(self):
        if not self.lower < self.upper:
            raise ModelError(f"Bounded: lower {self.lower} must be below upper {self.upper}")

    def forward(self, x: Array, reference: Array) -> Array:
        share = (x - self.lower) / (self.upper - self.lower)
        return jnp.log(share) - jnp.log1p(-share)

    def backward(self, free: Array, reference: Array) -> Array:
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(free)

    def bounds(self) -> tuple[float, float]:
        return self.lower, self.upper


class Entries(AbstractTransform):
    """Some entries of an array, with one common value; the other entries do not change.

    `Entries((0, 0))` is one entry of an inertia matrix; `Entries((0, 0), (1, 1), (2, 2))` is its
    isotropic diagonal. `inner` is the transform of the value.
    """

    indices: tuple[tuple[int, ...], ...]
    inner: AbstractElementwise

    def __init__(self, *indices: int | tuple[int, ...], inner: AbstractElementwise | None = None):
        if not indices:
            raise ModelError("Entries needs at least one index")
        self.indices = tuple(i if isinstance(i, tuple) else (i,) for i in indices)
        self.inner = Unbounded() if inner is None else inner

    def _first(self, value: Array) -> Array:
        try:
            return value[self.indices[0]]
        except IndexError as error:
            raise ModelError(f"Entries: no entry {self.indices[0]}: {error}") from error

    def to_free(self, reference: Array) -> Free:
        return self.inner.to_free(self._first(reference))

    def to_value(self, free: Free, reference: Array) -> Array:
        entry = self.inner.to_value(free, self._first(reference))
        for index in self.indices:
            reference = reference.at[index].set(entry)
        return reference

    def report(self, value: Array, reference: Array) -> Float[Array, "1"]:
        return self._first(value)[None]

    def labels(self, name: str, reference: Array) -> list[str]:
        return [name]

    def bounds(self) -> tuple[float, float]:
        return self.inner.bounds()


class Scaled(AbstractTransform):
    """The starting value times a positive factor, which is reported."""

    def to_free(self, reference: Any) -> Free:
        return jnp.zeros(1, dtype=jax.tree.leaves(reference)[0].dtype)

    def to_value(self, free: Free, reference: Any) -> Any:
        return jax.tree.map(lambda x: jnp.exp(free[0]) * x, reference)

    def report(self, value: Any, reference: Any) -> Float[Array, "1"]:
        old = jnp.concatenate([x.ravel() for x in jax.tree.leaves(reference)])
        new = jnp.concatenate([x.ravel() for x in jax.tree.leaves(value)])
        return ((new @ old) / (old @ old))[None]

    def labels(self, name: str, reference: Any) -> list[str]:
        return [f"{name} (factor)"]

    def bounds(self) -> tuple[float, float]:
        return 0.0, np.inf


class PhysicalBody(AbstractTransform):
    """A whole `RigidBody`; every value is that of some distribution of mass.

    Ten free numbers by the log-Cholesky form of the pseudo-inertia (Rucker & Wensing 2022).
    """

    def to_free(self, reference: RigidBody) -> Free:
        if not isinstance(reference, RigidBody):
            raise ModelError("PhysicalBody is for a whole body, such as 'bodies.rod'")
        return to_log_cholesky(reference)

    def to_value(self, free: Free, reference: RigidBody) -> RigidBody:
        return from_log_cholesky(free)

    def report(self, value: RigidBody, reference: RigidBody) -> Float[Array, "10"]:
        moments = _moments_and_products(value.symmetric_inertia())
        return jnp.concatenate([value.mass[None], value.com, moments])

    def labels(self, name: str, reference: RigidBody) -> list[str]:
        parts = ("mass", "com x", "com y", "com z", *MOMENTS_AND_PRODUCTS)
        return [f"{name} {part}" for part in parts]


class PhysicalInertia(AbstractTransform):
    """The inertia of a `RigidBody` whose mass and centre of mass are known; always possible.

    Six free numbers: the second moments of mass about the centre, Σ = ½ tr(J) 1 - J, are
    D L Lᵀ D with D = diag(exp d) and a lower triangular L whose diagonal is one. Σ is positive
    definite if and only if J is positive definite and satisfies the triangle inequality.

    For example:

        parameter = mbd.Parameter("bodies.rod.inertia", mbd.transforms.PhysicalInertia())
    """

    def to_free(self, reference: Array) -> Free:
        if jnp.shape(reference) != (3, 3):
            raise ModelError("PhysicalInertia is for an inertia, such as 'bodies.rod.inertia'")
        J = 0.5 * (reference + reference.T)
        C = jnp.linalg.cholesky(0.5 * jnp.trace(J) * jnp.eye(3, dtype=J.dtype) - J)
        d = jnp.diagonal(C)
        return jnp.concatenate([jnp.log(d), (C / d[:, None])[jnp.tril_indices(3, -1)]])

    def to_value(self, free: Free, reference: Array) -> Array:
        L = jnp.eye(3, dtype=free.dtype).at[jnp.tril_indices(3, -1)].set(free[3:])
        C = jnp.exp(free[:3])[:, None] * L
        second = C @ C.T
        return jnp.trace(second) * jnp.eye(3, dtype=free.dtype) - second

    def report(self, value: Array, reference: Array) -> Float[Array, "6"]:
        return _moments_and_products(0.5 * (value + value.T))

    def labels(self, name: str, reference: Array) -> list[str]:
        return [f"{name} {part}" for part in MOMENTS_AND_PRODUCTS]


MOMENTS_AND_PRODUCTS = ("Jxx", "Jyy", "Jzz", "Jxy", "Jxz", "Jyz")


def _moments_and_products(J: Float[Array, "3 3"]) -> Float[Array, "6"]:
    return jnp.concatenate([jnp.diagonal(J), jnp.stack([J[0, 1], J[0, 2], J[1, 2]])])
