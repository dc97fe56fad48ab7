"""Frequency responses of linearizations."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..errors import ModelError
from ..model.values import as_leaf
from .linearization import Linearization


class FrequencyResponse(eqx.Module):
    """Response y = Y exp(iωt) to inputs u = U exp(iωt), Y = G(ω) U.

    - `w`: angular frequencies ω, shape `(k,)` [rad/s].
    - `values`: G = C (iω - A)⁻¹ B + D, shape `(k, ny, nu)`.
    - `inputs`, `outputs`: names.
    """

    w: Float[Array, "k"]
    values: Complex[Array, "k ny nu"]
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)

    @property
    def gains(self) -> Float[Array, "k ny nu"]:
        """abs(G), in units of the output per unit of the input."""
        return jnp.abs(self.values)

    @property
    def phases(self) -> Float[Array, "k ny nu"]:
        """Phases of G [rad], continuous along the frequencies."""
        return jnp.unwrap(jnp.angle(self.values), axis=0)

    def plot(self) -> Any:
        """A Bode plot: gain in dB above phase in degrees, against the frequency in Hz.

        Needs the extra `viz`. **Returns** a `matplotlib.figure.Figure`.
        """
        from ..viz.linearization_figures import plot_frequency_response

        return plot_frequency_response(self)


def frequency_response_of(linearization: Linearization, w: Any) -> FrequencyResponse:
    """See `Linearization.frequency_response`."""
    given = linearization.inputs, linearization.outputs
    for names, what in zip(given, ("inputs", "outputs"), strict=True):
        if not names:
            raise ModelError(
                f"frequency_response: the linearization has no {what}; give {what}= to linearize"
            )
    A, B, C, D = (getattr(linearization, name) for name in "ABCD")
    w = jnp.atleast_1d(as_leaf(w, None, "frequency_response: w")).astype(A.dtype)
    if w.ndim != 1:
        raise ModelError(f"frequency_response: w must have one axis, got shape {w.shape}")
    complex_type = jax.lax.complex(A, A).dtype

    def response(w: Float[Array, ""]) -> Complex[Array, "ny nu"]:
        iw = jax.lax.complex(jnp.zeros_like(w), w)
        left = iw * jnp.eye(len(A), dtype=complex_type) - A.astype(complex_type)
        x = jnp.linalg.solve(left, B.astype(complex_type))
        return C.astype(complex_type) @ x + D.astype(complex_type)

    return FrequencyResponse(w, jax.vmap(response)(w), *given)
