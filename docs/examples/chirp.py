"""A sine whose frequency rises, as used to excite a mechanism for identification."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractSignal


class Chirp(AbstractSignal):
    """`amplitude * sin(2π (start t + ½ rate t²))`; `start` in Hz, `rate` in Hz/s."""

    amplitude: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    start: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, t):
        cycles = self.start * t + 0.5 * self.rate * t**2
        return self.amplitude * jnp.sin(2 * jnp.pi * cycles)


def checks():
    """Its parameters are leaves of the model like any other."""
    drive = mbd.forces.JointTorque("hinge", Chirp(0.2, 0.5, 1.0))
    slope = eqx.filter_grad(lambda f: f.force(jnp.asarray(0.3), jnp.zeros(1), jnp.zeros(1))[0])
    assert abs(slope(drive).signal.amplitude - jnp.sin(2 * jnp.pi * 0.195)) < 1e-12
    assert len(jax.tree.leaves(drive)) == 3
