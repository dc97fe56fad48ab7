"""The null space of the constraints and the tangent matrices of the equations of motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, ModelError, forces, joints
from jaxmbd.system import constraints
from jaxmbd.system.tangent_space import n_free, null_space, tangent_matrices, tangent_stiffness
from tests.marks import thorough_but
from tests.models import name_of

LENGTH = 0.8
FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
)


def hanging_rods(length: object = LENGTH) -> mbd.Model:
    """Three equal rods on hinges, hanging at zero coordinates."""
    bodies, links, z = {}, {}, jnp.array([0.0, 0.0, 1.0])
    for k in range(3):
        rod = mbd.inertia.rod(mass=1.0, length=length, axis=[0, 0, 1])
        bodies[f"rod{k}"] = mbd.inertia.shifted(rod, -0.5 * length * z)
        carrier = Frame(f"rod{k - 1}", -length * z) if k else mbd.ground
        links[f"hinge{k}"] = joints.Revolute(carrier, f"rod{k}", axis=[0, 1, 0])
    return mbd.Model(bodies, links, {"gravity": forces.Gravity([0, 0, -9.81])})


def squares_of_hanging_rods() -> np.ndarray:
    """ω² of the equations in absolute angles, M_ij = m L² (n - max(i, j) - ½), n from zero."""
    L, g = LENGTH, 9.81
    # A rod's own hinge carries its moment L²/3 and the masses of the rods below.
    below = np.array([2.0, 1.0, 0.0])
    i, j = np.indices((3, 3))
    M = (below[np.maximum(i, j)] + 0.5) * L**2
    np.fill_diagonal(M, (below + 1 / 3) * L**2)
    K = np.diag((below + 0.5) * g * L)
    return np.sort(np.linalg.eigvals(np.linalg.solve(M, K)).real)


@pytest.mark.long
@pytest.mark.parametrize(
    "formulation",
    thorough_but(FORMULATIONS[:2], FORMULATIONS),
    ids=name_of,
)
def test_stiffness_contains_the_curvature_of_the_constraints(formulation):
    system = mbd.formulate(hanging_rods(), formulation)
    state = mbd.assemble(system)
    lam = mbd.accelerations(system, 0.0, state)[1]
    N = null_space(system, configuration(system, state.q))
    K = tangent_stiffness(system, 0.0, state, lam)
    squares = np.sort(np.linalg.eigvals(N.T @ K @ N).real)
    np.testing.assert_allclose(N.T @ system.mass(state.q) @ N, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(squares, squares_of_hanging_rods(), rtol=1e-12)
    np.testing.assert_allclose(squares, [5.946, 36.79, 131.3], rtol=2e-4)


@eqx.filter_jit
def configuration(system, q):
    return system.configuration(jnp.zeros((), q.dtype), q)


def door(axis: object) -> mbd.Model:
    """A door on two hinges along one line: five rows of the loop are redundant."""
    hinges = {
        name: joints.Revolute(Frame("ground", at * axis), Frame("leaf", at * axis), axis=axis)
        for name, at in (("lower", 0.0), ("upper", 1.5))
    }
    leaf = mbd.inertia.shifted(mbd.inertia.box(20.0, [0.9, 0.05, 2.0]), [0.45, 0.1, 1.0])
    return mbd.Model({"leaf": leaf}, hinges)


UPRIGHT = jnp.array([0.0, 0.0, 1.0])


@pytest.mark.thorough
def test_derivative_of_the_null_space_with_redundant_rows():
    """The projector N Nᵀ does not depend on the basis, so that differences of it are defined."""
    system = mbd.formulate(door(UPRIGHT), mbd.MaximalCoordinates())
    q = mbd.assemble(system).q
    assert n_free(system, configuration(system, q)) == 1

    @jax.jit
    def projector(tilt):
        # At zero coordinates the loop is closed for any common axis of the hinges.
        axis = jnp.stack([jnp.sin(tilt), jnp.zeros(()), jnp.cos(tilt)])
        tilted = mbd.formulate(door(axis), mbd.MaximalCoordinates())
        N = null_space(tilted, tilted.configuration(jnp.zeros(()), q), n=1)
        return N @ N.T

    h = 2e-5
    difference = (projector(0.3 + h) - projector(0.3 - h)) / (2 * h)
    assert np.abs(difference).max() > 1e-2
    np.testing.assert_allclose(jax.jit(jax.jacfwd(projector))(0.3), difference, atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacrev(projector))(0.3), difference, atol=1e-8)


@pytest.mark.thorough
def test_nonholonomic_rows_can_be_omitted():
    model = mbd.Model(
        bodies={"sledge": mbd.inertia.box(2.0, [0.4, 0.2, 0.1])},
        joints={
            "blade": joints.KnifeEdge(mbd.ground, "sledge"),
            "ice": joints.PointOnPlane(mbd.ground, "sledge", axis=[0, 0, 1]),
        },
    )
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    c = configuration(system, mbd.assemble(system).q)
    holonomic = constraints.is_holonomic(system)
    G = constraints.jacobian(system, c)
    N, P = null_space(system, c), null_space(system, c, holonomic=True)
    assert P.shape[1] == N.shape[1] + np.sum(~holonomic)
    assert np.abs(G @ N).max() < 1e-15
    assert np.abs(G[holonomic] @ P).max() < 1e-15


@pytest.mark.long
def test_coupling_to_states_of_a_motor():
    """Torque k_t i and ż = (-R i - k_e v)/L of a motor on one hinge."""
    motor = forces.DCMotor("hinge", 0.3, voltage=0.0, resistance=2.0, inductance=0.5)
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    model = mbd.Model(
        {"rod": rod}, {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])}, {"m": motor}
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    matrices = tangent_matrices(system, 0.0, mbd.assemble(system), jnp.zeros(0))
    np.testing.assert_allclose(matrices.states, [[-0.3]], rtol=1e-14)
    np.testing.assert_allclose(matrices.rates_by_velocity, [[-0.6]], rtol=1e-14)
    np.testing.assert_allclose(matrices.rates_by_states, [[-4.0]], rtol=1e-14)
    assert not np.any(matrices.stiffness)
    assert not np.any(matrices.rates_by_position)


@pytest.mark.long
def test_static_number_of_columns():
    system = mbd.formulate(door(UPRIGHT), mbd.JointCoordinates())
    q = mbd.assemble(system).q
    with pytest.raises(ModelError, match=r"n_free outside jit"):
        jax.jit(lambda q: null_space(system, system.configuration(jnp.zeros(()), q)))(q)
    with pytest.raises(ModelError, match=r"from 0 to nv = 1, got 2"):
        null_space(system, configuration(system, q), n=2)
