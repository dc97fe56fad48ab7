"""Redundant joints with nothing special done: a planar four-bar made of four hinges of space."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.lie import so3
from jaxmbd.system import constraints, equation_residuals
from tests import derivatives, models
from tests.marks import thorough_but

ALL = (
    mbd.JointCoordinates(),
    mbd.JointCoordinates(cut="B"),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates("xy"),
)
IDS = ("joint", "joint cut at B", "maximal", "natural", "points in xy")
GUESS = {"A": 1.0, "B": -0.5, "D": 1.2}
LENGTHS = (0.2, 0.5, 0.45, 0.6)


def four_bar(lengths=LENGTHS, mass=1.0, stiffness=200.0, tilt=(0.0, 0.0, 0.0), loose=False):
    """Crank, coupler, rocker and frame, the whole of it turned by `tilt`.

    With `loose`, a ball and a universal joint in place of two hinges: nothing is redundant.
    """
    a, b, c, d = (jnp.asarray(x, float) for x in lengths)
    mass = jnp.asarray(mass, float)
    turned = so3.exp(jnp.asarray(tilt, float))
    R, zero = so3.to_matrix(turned), jnp.zeros(())

    def along(x):
        return jnp.stack([x, zero, zero])

    def bar(length):
        moments = jnp.stack([1e-3 + zero, *2 * [mass * length**2 / 12 + 1e-3]])
        return mbd.RigidBody(mass, jnp.diag(moments), along(length / 2))

    def hinge(F, M):
        return joints.Revolute(F, M)

    B, C = hinge, hinge
    if loose:
        B, C = joints.Spherical, lambda F, M: joints.Universal(F, M, [0, 0, 1], [1, 0, 0])
    spring = forces.SpringDamper(
        Frame("coupler", [0.1, 0.2, 0.0]), Frame("ground", [0.3, 0.9, 0.0]), stiffness, 1.0, 0.3
    )
    return mbd.Model(
        {"crank": bar(a), "coupler": bar(b), "rocker": bar(c)},
        {
            "A": hinge(Frame("ground", quat=turned), "crank"),
            "B": B(Frame("crank", along(a)), "coupler"),
            "C": C(Frame("coupler", along(b)), Frame("rocker", along(c))),
            "D": hinge(Frame("ground", R @ along(d), quat=turned), "rocker"),
        },
        {"gravity": forces.Gravity([0, -9.81, 0]), "spring": spring},
        frames={"tip": Frame("coupler", [0.25, 0.2, 0.0])},
    )


@eqx.filter_jit
def look(system, state):
    vdot, lam = mbd.accelerations(system, 0.0, state)
    c = system.configuration(jnp.zeros(()), state.q)
    G = constraints.jacobian(system, c)
    return {
        "joints": mbd.joint_states(system, 0.0, state),
        "energy": mbd.energy(system, 0.0, state).total,
        "crank": c.joint_rates(vdot)[0][0],
        "reactions": mbd.reactions(system, 0.0, state),
        "smallest": (lam, jnp.linalg.pinv(G.T, rtol=1e-8) @ (G.T @ lam)),
    }


@functools.cache
def found(k):
    system = mbd.formulate(four_bar(), ALL[k])
    state = mbd.assemble(system, GUESS, {"A": 3.0}, hold=["A"])
    return system, state, look(system, state)


@pytest.mark.long
@pytest.mark.parametrize("k", thorough_but([2], range(len(ALL))), ids=IDS)
def test_all_formulations_agree(k):
    """State, energy, acceleration, and reactions within the plane, which are unique."""
    seen, first = found(k)[2], found(0)[2]
    assert float(seen["joints"]["A"].q) == pytest.approx(1.0, abs=1e-12)
    assert float(seen["joints"]["A"].v) == pytest.approx(3.0, abs=1e-12)
    models.near(seen["joints"], first["joints"], 1e-10)
    for quantity in ("energy", "crank"):
        models.near(seen[quantity], first[quantity], 1e-10)
    for name, wrench in seen["reactions"].items():
        np.testing.assert_allclose(wrench[:2], first["reactions"][name][:2], atol=1e-9)
        np.testing.assert_allclose(wrench[2:], 0.0, atol=1e-9)  # The smallest across it are none.
    models.near(*seen["smallest"], 1e-9)


@pytest.mark.thorough
def test_reactions_within_the_plane_are_those_without_redundancy():
    system = mbd.formulate(four_bar(loose=True), mbd.JointCoordinates(cut="C"))
    guess = {"A": 1.0, "B": [0, 0, -0.3084930], "D": 1.8104084}
    state = mbd.assemble(system, guess, {"A": 3.0}, hold=["A"])
    seen, first = look(system, state), found(0)[2]
    for name in "ABCD":
        np.testing.assert_allclose(
            seen["reactions"][name][:2], first["reactions"][name][:2], atol=1e-6
        )


@pytest.mark.thorough
def test_projected_motion_stays_closed_and_keeps_its_energy():
    free = four_bar()
    system = mbd.formulate(
        mbd.Model(free.bodies, free.joints, {"gravity": free.forces["gravity"]}),
        mbd.JointCoordinates(),
    )
    state = mbd.assemble(system, GUESS, {"A": 9.0}, hold=["A"])
    ends = []
    for stabilization in (mbd.Projection(), mbd.CoordinatePartitioning()):
        method = mbd.ExplicitRK(diffrax.Dopri8(), stabilization)
        motion = mbd.simulate(system, state, t1=1.0, dt=2e-3, saveat=0.0503, integrator=method)
        gaps = eqx.filter_jit(
            jax.vmap(lambda t, y: equation_residuals.position_residual(system, t, y.q))
        )
        rates = eqx.filter_jit(
            jax.vmap(lambda t, y: equation_residuals.velocity_residual(system, t, y))
        )
        assert np.abs(gaps(motion.ts, motion.states)).max() < 1e-13
        assert np.abs(rates(motion.ts, motion.states)).max() < 1e-12
        total = np.asarray(motion.energy.total)
        assert np.abs(total - total[0]).max() < 1e-11 * np.max(motion.energy.kinetic)
        ends.append(motion.states.q[-1])
    np.testing.assert_allclose(*ends, atol=1e-10)


@pytest.mark.thorough
def test_a_passage_that_would_add_energy_is_an_error():
    """A parallelogram folds into its line after 0.107 s; energy would grow by 15 % there."""
    lengths, fast = (0.2, 0.5, 0.2, 0.5), {"A": 20.0}
    plain = four_bar(lengths)
    system = mbd.formulate(mbd.Model(plain.bodies, plain.joints), mbd.MaximalCoordinates())
    state = mbd.assemble(system, {"A": 1.0, "B": -1.0, "D": 1.0}, fast, hold=["A"])
    method = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())
    with pytest.raises(
        mbd.SimulationError, match=r"at t = 0\.10\d* s in all joints; .*singular position"
    ):
        mbd.simulate(system, state, t1=0.12, dt=1e-3, integrator=method)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("k", "method"),
    [
        (2, mbd.GeneralizedAlpha(0.9)),
        pytest.param(0, mbd.BDF(2), marks=pytest.mark.thorough),
        pytest.param(2, mbd.EnergyMomentum(), marks=pytest.mark.thorough),
    ],
    ids=lambda x: x if isinstance(x, int) else type(x).__name__,
)
def test_implicit_integrators_take_redundant_joints(k, method):
    """Against Dopri8, to the accuracy of an order of 2."""
    system, state, _ = found(k)
    tip = system.frames(0.0, mbd.rollout(system, state, 2e-3, 25, method).q[-1])["tip"].p
    reference, start, _ = found(0)
    q = mbd.rollout(reference, start, 5e-3, 10, diffrax.Dopri8()).q[-1]
    np.testing.assert_allclose(tip, reference.frames(0.0, q)["tip"].p, atol=2e-5)


def inputs(x):
    """Three numbers that change everything and keep the linkage planar."""
    lengths = jnp.asarray(LENGTHS) * (1 + 0.05 * jnp.stack([x[0], x[1], x[2], -x[0]]))
    return four_bar(lengths, 1 + 0.2 * x[1], 200 + 30 * x[2], 0.1 * x)


def start(x):
    system = mbd.formulate(inputs(x), mbd.JointCoordinates())
    return system, mbd.assemble(system, GUESS, {"A": 3.0}, hold=["A"])


@pytest.mark.thorough
def test_gradients_through_redundant_loops():
    """Derivatives of a reaction and a position by eight leaves at once, in both modes."""

    def found(x):
        system, state = start(x)
        wrench = mbd.reactions(system, 0.0, state)["C"]
        tip = system.frames(0.0, state.q)["tip"].p
        return wrench[0] + 0.3 * wrench[1] + tip @ jnp.array([1.0, 2.0, 3.0])

    derivatives.check_gradient(found)


@pytest.mark.thorough
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_projected_motion(reverse):
    def end(x):
        system, state = start(x)
        method = mbd.ExplicitRK(diffrax.Tsit5(), mbd.Projection())
        states = mbd.rollout(system, state, 0.01, 3, method)
        return system.frames(0.0, states.q[-1])["tip"].p @ jnp.array([1.0, 2.0, 3.0])

    derivatives.check_gradient(end, reverse)


@pytest.mark.long
@pytest.mark.parametrize(("angle", "rate"), [(-1.0, -10.0), (0.3, 10.0), (2.0, -12.0)])
def test_default_steps_pass_the_folded_position_straight_on(angle, rate):
    """Without weight the cranks of a parallelogram turn at a constant rate, for ten passages."""
    plain = four_bar((0.2, 0.5, 0.2, 0.5))
    system = mbd.formulate(mbd.Model(plain.bodies, plain.joints))
    guess = {"A": angle, "B": -angle, "D": angle}
    rates = {"A": rate, "B": -rate, "D": rate}
    state = mbd.assemble(system, guess, rates, hold=["A"])
    with pytest.warns(mbd.BifurcationWarning, match="loop of 'A', 'B', 'D', 'C' passes a singular"):
        motion = mbd.simulate(system, state, t1=3.0)
    for crank in "AD":
        np.testing.assert_allclose(motion.joint(crank).v, rate, rtol=1e-6)
