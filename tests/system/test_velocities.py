"""Velocities of rates of coordinates."""

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from tests.marks import thorough_but
from tests.models import FORMULATIONS, name_of, near, random_state, random_tree


@pytest.mark.long
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=name_of)
@pytest.mark.parametrize("seed", thorough_but([0], range(3)))
def test_velocities_undo_rates(formulation, seed):
    system = mbd.formulate(random_tree(seed), formulation)
    rng = np.random.default_rng(seed)
    # Quaternions of any length stand for their rotations.
    q = random_state(system, seed).q * rng.uniform(0.5, 2.0)
    v, other = (jax.numpy.asarray(rng.normal(size=system.nv)) for _ in range(2))

    @jax.jit
    def look(q, v, other):
        q_dot = system.rates(q, v)
        # The rest of q̇ that no velocity explains is normal to all that velocities do.
        away = q - system.rates(q, system.velocities(q, q))
        return (
            system.velocities(q, q_dot),
            system.velocities(q, q_dot + away),
            away @ system.rates(q, other),
        )

    found, nearest, overlap = look(q, v, other)
    near(found, v, 1e-13)
    near(nearest, v, 1e-13)
    near(overlap, 0.0, 1e-13)
