"""Eigenvalues along a parameter."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Complex, Float

from ..errors import ModelError
from ..linear import eig, follow
from ..model.values import as_leaf, described, require_concrete
from ..programs import with_progress
from .linearization import Linearization


class RootLocus(eqx.Module):
    """Eigenvalues of a linearization along a parameter.

    - `values`: the k values of the parameter, shape `(k,)`.
    - `eigenvalues`: shape `(k, n)`; a column follows one mode.
    - `shapes`: eigenvectors in columns, shape `(k, n, n)`, in the same order.
    - `assurance`: modal assurance between a mode and the same one at the value before, shape
      `(k, n)`. Small numbers mean that steps are too large, or that modes are a cluster.
    - `states`: names of the states.
    """

    values: Float[np.ndarray, "k"]
    eigenvalues: Complex[np.ndarray, "k n"]
    shapes: Complex[np.ndarray, "k n n"]
    assurance: Float[np.ndarray, "k n"]
    states: tuple[str, ...] = eqx.field(static=True)

    @property
    def growth(self) -> Float[np.ndarray, "k"]:
        """The largest real part of the eigenvalues [1/s], shape `(k,)`; unstable if positive."""
        return np.real(self.eigenvalues).max(axis=1)

    def crossings(self, tolerance: float = 1e-6) -> Float[np.ndarray, "c"]:
        """Values of the parameter at which `growth` rises above or falls below `tolerance` [1/s].

        Interpolated between the given values.
        """
        above = self.growth - tolerance
        (at,) = np.nonzero((above[:-1] > 0) != (above[1:] > 0))
        part = above[at] / (above[at] - above[at + 1])
        return self.values[at] + part * (self.values[at + 1] - self.values[at])

    def plot(self) -> Any:
        """The eigenvalues in the complex plane, and their real parts against the parameter.

        Needs the extra `viz`. **Returns** a `matplotlib.figure.Figure`.
        """
        from ..viz.linearization_figures import plot_root_locus

        return plot_root_locus(self)


@with_progress
def root_locus(linearization_at: Callable[[Array], Linearization], values: Any) -> RootLocus:
    """Eigenvalues along a parameter, in one compiled program.

    **Arguments:**

    - `linearization_at`: a traceable function from a value to a `Linearization`. It gives
      `coordinates` to `linearize`, see there.
    - `values`: shape `(k,)`.

    **Raises** `ModelError` for values that are not finite, or eigenvalues that are not, and under
    a transformation.
    """
    if isinstance(linearization_at, type) or not callable(linearization_at):
        raise ModelError(
            "root_locus: the first argument must be a function from a value to a Linearization, "
            f"got {described(linearization_at)}"
        )
    parameters = parameters_of(values, "root_locus: values")
    batch = eqx.filter_jit(eqx.filter_vmap(linearization_at))(parameters)
    return located(parameters, batch, "root_locus")


def parameters_of(values: Any, caller: str) -> Float[Array, "k"]:
    """Values of a parameter, which must be finite numbers in order; errors name `caller`."""
    parameters = as_leaf(values, None, caller)
    require_concrete(caller.partition(":")[0], parameters)
    if parameters.ndim != 1 or not len(parameters) or not np.all(np.isfinite(parameters)):
        raise ModelError(f"{caller} must be finite numbers of shape (k,), got {values!r}")
    return parameters


def located(
    values: Float[Array, "k"], batch: Linearization, caller: str, backwards: bool = False
) -> RootLocus:
    """Modes of a batch of linearizations in one order, that of the first or of the last value."""
    require_concrete(caller, batch.A)
    finite = np.isfinite(np.asarray(batch.A)).all(axis=(1, 2))
    if not finite.all():
        first = float(values[int(np.argmin(finite))])
        raise ModelError(
            f"{caller}: the linearization at {first:.6g} is not finite; its state may violate the "
            "constraints there"
        )
    eigen = eqx.filter_jit(jax.vmap(eig))(batch.A)
    eigenvalues, right = np.asarray(eigen.values), np.asarray(eigen.right)
    way = slice(None, None, -1 if backwards else 1)
    followed = follow(list(right[way]))
    order, assurance = followed.order[way], followed.assurance[way]
    return RootLocus(
        np.asarray(values),
        np.take_along_axis(eigenvalues, order, axis=1),
        np.take_along_axis(right, order[:, None], axis=2),
        assurance,
        batch.states,
    )
