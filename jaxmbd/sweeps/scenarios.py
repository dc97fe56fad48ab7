"""Inputs of a sweep: named arrays with a row for each scenario."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..model.values import require_concrete
from .distributions import is_law, sample


@dataclass(frozen=True)
class Scenarios:
    """Leaves with a row for each scenario, named by their paths."""

    names: tuple[str, ...]
    leaves: tuple[np.ndarray, ...]
    structure: Any

    def __len__(self) -> int:
        return self.leaves[0].shape[0]

    def tree(self, leaves: Sequence[Any]) -> Any:
        """The argument of the user's function, from leaves."""
        return jax.tree.unflatten(self.structure, leaves)

    def rows(self, index: Any) -> Any:
        """Scenarios `index`, stacked."""
        return self.tree([x[index] for x in self.leaves])

    def digest(self) -> str:
        """A digest of names and numbers."""
        digest = hashlib.sha256(repr((self.names, str(self.structure))).encode())
        for x in self.leaves:
            digest.update(repr((x.shape, x.dtype.str)).encode() + np.ascontiguousarray(x).tobytes())
        return digest.hexdigest()


def as_scenarios(scenarios: Any, n: int | None, seed: int, sampling: Any) -> Scenarios:
    """Scenarios from arrays and distributions.

    **Raises** `ModelError` for no scenarios, leaves of different lengths, and values that are not
    numeric or not finite.
    """
    if any(map(is_law, jax.tree.leaves(scenarios, is_leaf=is_law))):
        if n is None:
            raise ModelError("sweep: give the number of scenarios to draw (n)")
        scenarios = sample(scenarios, n, seed=seed, sampling=sampling)
    given, structure = jax.tree_util.tree_flatten_with_path(scenarios)
    names = tuple(name_of(path) or "value" for path, _ in given)
    leaves = tuple(_leaf(name, x) for name, (_, x) in zip(names, given, strict=True))
    if not leaves:
        raise ModelError("sweep: there are no scenarios; give arrays or distributions by name")
    lengths = {name: x.shape[0] for name, x in zip(names, leaves, strict=True)}
    if len({*lengths.values()}) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ModelError(f"sweep: numbers of scenarios differ: {listed}")
    length = next(iter(lengths.values()))
    if length == 0:
        raise ModelError("sweep: there are no scenarios: the leading axis has length zero")
    if n is not None and n != length:
        raise ModelError(f"sweep: n is {n}, but there are {length} scenarios")
    return Scenarios(names, leaves, structure)


def name_of(path: tuple[Any, ...]) -> str:
    """Path of a leaf, such as `bodies.rod.mass`, without slashes, which netCDF does not support."""
    return jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".")


def _leaf(name: str, value: Any) -> np.ndarray:
    """One leaf in JAX's float type."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"sweep: scenarios {name!r} must be numeric, got {value!r}") from error
    require_concrete("sweep", array)  # Under `jit` every array is traced.
    x = np.asarray(array)
    if x.ndim == 0:
        raise ModelError(
            f"sweep: {name!r} is one number; give an array with a value for each scenario, or a "
            "distribution"
        )
    bad = ~np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    if bad.any():
        raise ModelError(
            f"sweep: {name!r} is not finite in {bad.sum()} scenarios, first in {bad.argmax()}"
        )
    return x
