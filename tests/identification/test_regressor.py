"""The regressor times its parameters is the force of inverse dynamics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints

RNG = np.random.default_rng(0)


def arm():
    """Two links of general inertia with springs, friction of all kinds, a rotor and a bias."""
    own = np.random.default_rng(1).normal(scale=0.3, size=(2, 10))
    links = [inertia.from_log_cholesky(x) for x in own]
    dry = [forces.StribeckFriction("elbow", 0.2 + 0.1 * k, 0.4, 0.3, 0.05) for k in range(2)]
    return mbd.Model(
        dict(zip(("upper", "lower"), links, strict=True)),
        {
            "shoulder": joints.Universal(mbd.ground, "upper"),
            "elbow": joints.Revolute(mbd.Frame("upper", [0.3, 0.1, -0.4]), "lower", [0, 1, 0]),
        },
        {
            "gravity": forces.Gravity([1.0, 0.0, -9.81]),
            "spring": forces.TorsionalSpringDamper("elbow", 2.0, 0.1, rest=0.3),
            "oil": forces.ViscousFriction("shoulder", [0.3, 0.4]),
            "dry": forces.CoulombFriction("shoulder", 0.2),
            "seal": forces.AsymmetricFriction(*dry),
            "bias": forces.JointTorque("elbow", 0.7),
            "drive": forces.JointTorque("elbow", mbd.signals.Sine(1.0, 2.0)),
            "load": forces.AppliedForce("lower", [1.0, 2.0, 3.0]),
        },
        rotors={"rotor": mbd.Rotor("elbow", 2e-4, 30.0)},
    )


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(arm(), mbd.JointCoordinates())


def states(system, n=4):
    q, v, vdot = RNG.normal(size=(3, n, system.nv))
    return RNG.uniform(size=n), q, v, vdot


def required(system, t, q, v, vdot):
    return mbd.inverse_dynamics(system, float(t), mbd.State(jnp.array(q), jnp.array(v)), vdot)


def test_a_pendulum_has_the_forces_of_its_equation():
    """One hinge about y: J q'' + m g l cos q + b v."""
    model = mbd.Model(
        {"rod": inertia.shifted(inertia.rod(2.0, 1.0), [0.5, 0, 0])},
        {"hinge": joints.Revolute(mbd.ground, "rod", [0, 1, 0])},
        {"gravity": forces.Gravity(), "oil": forces.ViscousFriction("hinge", 0.1)},
    )
    Y = mbd.regressor(mbd.formulate(model), 0.0, [[0.3], [0.5]], [[2.0], [1.0]], [[1.0], [0.0]])
    assert Y.matrix.shape == (2, 1, 11)
    moment = 2.0 * 9.81 * 0.5 * np.cos([0.3, 0.5])
    J = float(Y.parameters[Y.names.index("rod.Iyy")])
    expected = J * np.array([1.0, 0.0]) - moment + 0.1 * np.array([2.0, 1.0])
    np.testing.assert_allclose(Y.forces()[:, 0], expected, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "formulation",
    [mbd.JointCoordinates(), mbd.VelocityTransformation(mbd.MaximalCoordinates())],
    ids=lambda x: type(x).__name__,
)
def test_forces_are_those_of_inverse_dynamics(formulation):
    system = mbd.formulate(arm(), formulation)
    given = states(system)
    Y = mbd.regressor(system, *given)
    expected = np.array([required(system, *row) for row in zip(*given, strict=True)])
    np.testing.assert_allclose(Y.forces(), expected, rtol=1e-12, atol=1e-12)
    one = mbd.regressor(system, *(x[1] for x in given))
    np.testing.assert_allclose(one.matrix, Y.matrix[1], rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_columns_hold_for_other_parameters(system):
    """The regressor does not depend on the parameters: other ones give the forces of a model."""
    t, q, v, vdot = (x[0] for x in states(system))
    Y = mbd.regressor(system, t, q, v, vdot)
    other = inertia.from_log_cholesky(RNG.normal(size=10) * 0.3)
    model = eqx.tree_at(lambda m: m.bodies["lower"], arm(), other)
    model = model.replace(
        {
            "rotors.rotor.inertia": 5e-4,
            "forces.oil.coefficient": np.array([0.1, 0.9]),
            "forces.seal.backward.static": 0.9,
            "forces.spring.stiffness": 5.0,
            "forces.bias.signal.value": -0.2,
        }
    )
    theta = dict(zip(Y.names, Y.parameters, strict=True))
    body = inertia.to_inertial_parameters(other)
    names = [name for name in Y.names if name.startswith("lower.")]
    theta |= dict(zip(names, body, strict=True))
    theta |= {"rotor.inertia": 5e-4, "oil.coefficient[0]": 0.1, "oil.coefficient[1]": 0.9}
    theta |= {"seal.backward.static": 0.9, "spring.stiffness": 5.0, "bias.value": -0.2}
    assert set(theta) == set(Y.names)
    changed = mbd.formulate(model, mbd.JointCoordinates())
    expected = required(changed, t, q, v, vdot)
    np.testing.assert_allclose(Y.forces(list(theta.values())), expected, rtol=1e-12, atol=1e-12)


def four_bar():
    rod, frame = inertia.rod(1.0, 0.5), mbd.Frame
    return mbd.Model(
        {"crank": inertia.shifted(rod, [0.25, 0, 0]), "coupler": rod, "rocker": rod},
        {
            "A": joints.Revolute(mbd.ground, "crank"),
            "B": joints.Revolute(frame("crank", [0.5, 0, 0]), frame("coupler", [-0.4, 0, 0])),
            "C": joints.Revolute(frame("coupler", [0.4, 0, 0]), frame("rocker", [0.3, 0, 0])),
            "D": joints.Revolute(frame("ground", [0.7, 0, 0]), frame("rocker", [-0.3, 0, 0])),
        },
        {"gravity": forces.Gravity([0, -9.81, 0]), "oil": forces.ViscousFriction("C", 0.1)},
    )


@pytest.mark.long
def test_loops_are_eliminated_by_projection():
    """Forces on the driving joint equal those of inverse dynamics through the loop."""
    system = mbd.formulate(four_bar(), mbd.JointCoordinates())
    state = mbd.assemble(system, {"A": 1.0}, {"A": 2.0})
    vdot, _ = mbd.accelerations(system, 0.0, state)
    Y = mbd.regressor(system, 0.0, state.q, state.v, vdot, joints=["A"])
    # Free motion needs no force on the joint.
    assert abs(float(Y.forces()[0])) < 1e-9
    held = mbd.State(state.q, jnp.zeros(system.nv))
    Y = mbd.regressor(system, 0.0, held.q, held.v, held.v, joints=["A"])
    expected = mbd.driving_forces(system, 0.0, held, held.v, ["A"])["A"]
    np.testing.assert_allclose(Y.forces(), [expected], rtol=1e-9)
    assert "crank.mcx" in Y.names
    assert abs(float(expected)) > 1.0


def test_inertial_parameters_are_inverted():
    body = inertia.from_log_cholesky(RNG.normal(size=10))
    again = inertia.from_inertial_parameters(inertia.to_inertial_parameters(body))
    for x, y in zip(jax.tree.leaves(body), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_wrong_arguments_are_refused(system):
    t, q, v, vdot = (x[0] for x in states(system))
    with pytest.raises(mbd.ModelError, match="JointCoordinates"):
        mbd.regressor(mbd.formulate(arm(), mbd.MaximalCoordinates()), t, q, v, vdot)
    with pytest.raises(mbd.ModelError, match="vdot has shape"):
        mbd.regressor(system, t, q, v, vdot[:1])
    with pytest.raises(mbd.ModelError, match="unknown joint 'knee'"):
        mbd.regressor(system, t, q, v, vdot, joints=["knee"])
