"""Derivatives at rest through redundant joints: angle, reactions and the lowest eigenvalue."""

import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from tests.models import name_of
from tests.statics.test_equilibrium import angle, door
from tests.statics.test_equilibrium_derivatives import check_derivatives


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()], ids=name_of
)
def test_derivatives_of_a_door_on_redundant_hinges(formulation):
    """Derivatives by stiffness, mass, wind, distance of the hinges and direction of both axes."""
    near = mbd.formulate(door(), formulation)
    state = mbd.assemble(near, {"lower": 1.0, "upper": 1.0})
    start = mbd.equilibrium(near, state, method="newton").state

    @jax.jit
    def value(numbers):
        system = mbd.formulate(door(*numbers), formulation)
        found = mbd.equilibrium(system, start, method="newton")
        force = sum(w @ jnp.arange(1.0, 7.0) for w in found.reactions.values())
        return jnp.sin(angle(system, found, "lower")) + 1e-2 * (force + found.eigenvalues[0])

    check_derivatives(value, jnp.array([3.0, 20.0, 1.0, 1.8, 0.0]), tolerance=3e-7)
