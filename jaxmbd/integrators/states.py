"""First-order states z at the stages of an implicit step, as functions of q and v.

z are not among the unknowns of Newton's method for the step. The equations of the step compute z
from the configurations and velocities at the stages: Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i,
where W and k are those of the method.
"""

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..system.abstract import AbstractSystem, States, Time, Velocities
from ..system.configuration import AbstractConfiguration
from ..system.first_order import stage_states
from ..system.loads import state_inputs

C = TypeVar("C", bound=AbstractConfiguration)


def with_stage_states(
    system: AbstractSystem,
    stages: Sequence[tuple[C, Velocities]],
    weights: Float[Array, "s s"],
    known: Float[Array, "s nz"],
    guess: States,
) -> list[C]:
    """Configurations of all stages with the first-order states z of the stages.

    The states solve Σ_j W_ij z_j - r(t_i, q_i, v_i, z_i) = k_i; they are NaN without a solution.

    **Arguments:** `stages`: configuration and velocities; `weights`: W [1/s]; `known`: k; `guess`:
    initial guess of z. Without first-order states the configurations are returned unchanged.
    """
    if system.nz == 0:
        return [c for c, _ in stages]
    each = [state_inputs(c, v) for c, v in stages]
    inputs = jax.tree.map(lambda *x: jnp.stack(x), *each)
    tiled = jnp.broadcast_to(guess, known.shape)
    z = stage_states(system.mechanism, inputs, weights, known, tiled)
    return [c.with_states(z[i]) for i, (c, _) in enumerate(stages)]


def with_states(
    system: AbstractSystem,
    c: C,
    v: Velocities,
    weight: Float[Array, ""],
    known: States,
    guess: States,
) -> C:
    """The configuration with z that solves `weight` z - r(t, q, v, z) = `known`."""
    if system.nz == 0:
        return c
    return with_stage_states(system, [(c, v)], weight[None, None], known[None], guess)[0]


def with_middle_states(system: AbstractSystem, c: C, v: Velocities, h: Time, start: States) -> C:
    """The configuration at the middle of a step with z½ = z₀ + h/2 r(t½, q½, v½, z½)."""
    return with_states(system, c, v, 2.0 / h, 2.0 / h * start, start)


def after_middle(c: AbstractConfiguration, start: States) -> States:
    """z₁ = 2 z½ - z₀ for the configuration that `with_middle_states` returns."""
    assert c.z is not None
    return 2.0 * c.z - start
