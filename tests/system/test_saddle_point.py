"""Constraints in one system that are independent and others that are not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from tests.system import linkages


def straight_chain(n, beside=True):
    """Links along x with hinges about y, pulled along the hinges: nothing can move.

    Beside it stands a four-bar of hinges, whose constraints are redundant.
    """
    rod = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.02), [0.5, 0, 0])
    bodies = {f"link{k:03}": rod for k in range(n)}
    names = ["ground", *bodies]
    hinges = {
        f"hinge{k:03}": joints.Revolute(
            Frame(names[k], [1.0 if k else 0.0, 0, 0]), names[k + 1], [0, 1, 0]
        )
        for k in range(n)
    }
    if beside:
        other = linkages.hinged(**linkages.four_bar(at=0.5))
        bodies |= other.bodies
        hinges |= other.joints
    return mbd.Model(bodies, hinges, {"gravity": forces.Gravity([0, 9.81, 0])})


@eqx.filter_jit
def tip_acceleration(system, state):
    vdot, _ = mbd.accelerations(system, 0.0, state)
    return jnp.max(jnp.abs(vdot))


@pytest.mark.parametrize(("n", "dtype"), [(12, "float32"), (100, "float64"), (200, "float64")])
def test_a_loop_elsewhere_leaves_a_chain_its_constraints(n, dtype):
    model = jax.tree.map(lambda x: x.astype(dtype), straight_chain(n))
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    state = linkages.drawn(system)
    assert state.q.dtype == dtype
    # Turning all links by the same small amount each bends the chain by n² of them.
    assert float(tip_acceleration(system, state)) < 9.81 * 10 * n**2 * np.finfo(dtype).eps
