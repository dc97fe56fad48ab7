"""No joint is closed the wrong way round, half a turn from its rotations."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.joints import rotation
from jaxmbd.lie import Pose, so3
from jaxmbd.system.rank import constraint_rank
from tests.marks import thorough_but
from tests.models import name_of
from tests.statics.test_equilibrium import four_bar as pinned_four_bar

JOINT, MAXIMAL = mbd.JointCoordinates(), mbd.MaximalCoordinates()
FORMULATIONS = {
    "joint": JOINT,
    "maximal": MAXIMAL,
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(
        particles={"a": [(0.3, 0, 0), (0, 0.3, 0), (0, 0, 0.3), (-0.2, -0.2, -0.2)]}
    ),
    "planar points": mbd.PointCoordinates(  # Joints at one place give too few by themselves.
        plane="xy", particles={"a": [(0.3, 0, 0), (0, 0.3, 0), (-0.3, -0.3, 0)]}
    ),
}
BODY = mbd.RigidBody(1.0, np.diag([0.3, 0.25, 0.2]), (0.0, 0.0, 0.0))

# A joint of each kind beside a joint that leaves all rotation free.
KINDS = {
    "fixed": (joints.Fixed, joints.Spherical),
    "revolute": (joints.Revolute, joints.Spherical),
    "universal": (joints.Universal, joints.Spherical),
    "constant velocity": (joints.ConstantVelocity, joints.Spherical),
    "prismatic": (joints.Prismatic, joints.PointOnLine),
    "cylindrical": (joints.Cylindrical, joints.PointOnLine),
    "screw": (functools.partial(joints.Screw, pitch=0.1), joints.PointOnLine),
    "planar": (joints.Planar, joints.PointOnPlane),
    "generic": (functools.partial(joints.Generic, free=["z"]), joints.PointOnLine),
    "generic hinge": (functools.partial(joints.Generic, free=["rz"]), joints.Spherical),
    "free, but for one axis": (
        functools.partial(joints.Generic, free=["x", "y", "rx", "ry"]),
        joints.PointOnPlane,
    ),
}
ANGLES = (1.5, 1.7, 2.0, np.pi - 0.02, np.pi)
AXES = ((1.0, 0.0, 0.0), (0.0, 0.6, 0.8), (0.0, 0.0, 1.0), (0.5, -0.7, 0.2))
GUESSES = [angle * np.array(axis) / np.linalg.norm(axis) for angle in ANGLES for axis in AXES]


@functools.cache
def loop(kind, name="joint", dtype=jnp.float64):
    """A body on the ground by a joint that lets it turn, and by one of a kind."""
    judged, free = KINDS[kind]
    tilted = Frame("ground", quat=[0.9, 0.1, -0.3, 0.2]), Frame("a", quat=[0.9, 0.1, -0.3, 0.2])
    links = {"ball": free(*tilted), "judged": judged(*tilted)}
    model = mbd.Model({"a": BODY}, links)
    model = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, model)
    return mbd.formulate(model, FORMULATIONS[name])


def guess(system, turn):
    """Values of the joint that lets the body turn: at a rotation vector."""
    nq = system.mechanism.joint("ball").sizes()[0]
    return {"ball": jnp.concatenate([jnp.zeros(nq - 4), jnp.asarray(turn)])}


def missed(system, state):
    """The turn between the body's pose and the nearest one that the joint allows [rad]."""
    frames = system.frames(0.0, state.q)
    first, second = frames["judged.predecessor"], frames["judged.successor"]
    joint = system.mechanism.joint("judged")
    R = first.R.T @ second.R
    X = Pose(first.R.T @ (second.p - first.p), R)
    allowed = joint.pose(joint.coordinates(X)).R
    return float(jnp.linalg.norm(so3.log(so3.from_matrix(allowed.T @ R))))


def weld(turn=0.0, formulation=JOINT):
    """A hinge and a weld, whose frames differ by a turn [rad] about an axis across the hinge."""
    half = 0.5 * turn
    frame = Frame("a", quat=[np.cos(half), 0.0, np.sin(half), 0.0])
    hinge = joints.Revolute("ground", "a", (1, 0, 0))
    links = {"hinge": hinge, "weld": joints.Fixed("ground", frame)}
    return mbd.formulate(mbd.Model({"a": BODY}, links), formulation)


def turned(system, quaternion, v=None):
    """A state of one body in maximal coordinates."""
    q = jnp.concatenate([jnp.zeros(3), jnp.asarray(quaternion)])
    return mbd.State(q, jnp.zeros(6) if v is None else jnp.asarray(v))


@pytest.mark.long
@pytest.mark.smoke
def test_a_weld_is_not_closed_half_a_turn_away():
    """Its residual vanishes at diag(1, -1, -1) too, where Newton's method goes from 2 rad."""
    links = {"ball": joints.Spherical("ground", "a"), "weld": joints.Fixed("ground", "a")}
    system = mbd.formulate(mbd.Model({"a": BODY}, links), JOINT)
    state = mbd.assemble(system, {"ball": [2.0, 0.0, 0.0]})
    np.testing.assert_allclose(system.frames(0.0, state.q)["a"].R, np.eye(3), atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", thorough_but(["revolute"], KINDS))
def test_no_guess_closes_a_joint_the_wrong_way_round(kind):
    """From all of them the search comes to the joint's own rotations, also from half a turn."""
    for name in ("joint", "maximal"):  # Their loops close by one program.
        system = loop(kind, name)
        for turn in GUESSES:
            assert missed(system, mbd.assemble(system, guess(system, turn))) < 1e-6, (name, turn)


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(("points",), FORMULATIONS))
def test_no_formulation_closes_a_weld_the_wrong_way_round(name):
    if name == "planar points":
        links = {"ball": joints.Revolute("ground", "a"), "judged": joints.Fixed("ground", "a")}
        system = mbd.formulate(mbd.Model({"a": BODY}, links), FORMULATIONS[name])
        starts = [{"ball": angle} for angle in ANGLES]
    else:
        system = loop("fixed", name)
        starts = [guess(system, turn) for turn in GUESSES]
    for start in starts:
        assert missed(system, mbd.assemble(system, start)) < 1e-6, start


@pytest.mark.thorough
def test_single_precision_closes_the_right_way_round():
    system = loop("fixed", dtype=jnp.float32)
    for turn in GUESSES:
        state = mbd.assemble(system, guess(system, turn))
        assert state.q.dtype == jnp.float32
        assert missed(system, state) < 1e-3


@pytest.mark.long
@pytest.mark.parametrize("formulation", [JOINT, MAXIMAL], ids=name_of)
def test_loops_that_close_the_wrong_way_round_only_are_refused(formulation):
    """Half a turn across the hinge, whatever its angle: the weld's residual is zero everywhere."""
    system = weld(np.pi, formulation)
    message = r"wrong way round only: 'weld' by 3\.14 rad.*start from a guess nearer"
    with pytest.raises(mbd.AssemblyError, match=message):
        mbd.assemble(system, {"hinge": 0.3})


@pytest.mark.long
def test_the_wrong_way_round_is_an_error_at_run_time():
    system = weld()

    @eqx.filter_jit
    def closed(angle):
        return mbd.assemble(system, {"hinge": angle}).q

    np.testing.assert_allclose(closed(jnp.asarray(0.5)), 0.0, atol=1e-12)
    message = "joint 'weld' closes the wrong way round from this guess; start from a guess nearer"
    with pytest.raises(RuntimeError, match=message):
        closed(jnp.asarray(2.5))
    with pytest.raises(RuntimeError, match=message):
        jax.vmap(closed)(jnp.array([0.5, 2.5]))


@pytest.mark.thorough
def test_states_closed_the_wrong_way_round_are_refused():
    system = weld(formulation=MAXIMAL)
    state = turned(system, [0.0, 1.0, 0.0, 0.0])
    message = "closed the wrong way round: 'weld' by 3.14 rad"
    with pytest.raises(mbd.ModelError, match=f"first state.*{message}.*the state by assemble"):
        mbd.simulate(system, state, t1=0.1, dt=0.1)
    with pytest.raises(mbd.AssemblyError, match=f"kinematics: at t = 0 s.*{message}"):
        mbd.kinematics(system, [0.0, 0.1], state)
    with pytest.raises(
        RuntimeError, match="kinematics: the joints do not close, or close the wrong"
    ):
        eqx.filter_jit(mbd.kinematics)(system, jnp.array([0.0, 0.1]), state)
    assert not constraint_rank(system, 0.0, state.q).closes
    assert constraint_rank(system, 0.0, turned(system, [1.0, 0.0, 0.0, 0.0]).q).closes


@pytest.mark.thorough
def test_motions_that_end_the_wrong_way_round_say_so():
    """A hinge about z whose body turns about x, in one step: by 2 atan(3/2)."""
    model = mbd.Model(
        {"a": mbd.inertia.sphere(1.0, 0.5)}, {"hinge": joints.Revolute("ground", "a")}
    )
    system = mbd.formulate(model, MAXIMAL)
    state = turned(system, [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, 0.0, 0.0])
    loose = {"integrator": mbd.ExplicitRK(diffrax.Euler(), mbd.Baumgarte(0.0, 0.0)), "dt": 1.0}
    with pytest.raises(mbd.SimulationError, match=r"the wrong way round, 'hinge' by 1\.97 rad"):
        mbd.simulate(system, state, t1=1.0, **loose)
    failed = mbd.simulate(system, state, t1=1.0, throw=False, **loose)
    assert failed.result == mbd.RESULTS.joint_reversed

    @eqx.filter_jit
    def traced(state):
        return mbd.simulate(system, state, t1=1.0, max_steps=2, saveat=[1.0], **loose).states

    with pytest.raises(RuntimeError, match="the wrong way round"):
        traced(state)


ROTATIONS = (
    rotation.NoRotation(),
    rotation.AxisRotation(),
    rotation.TwoAxisRotation(),
    rotation.BendingRotation(),
    rotation.FreeRotation(),
)


@pytest.mark.long
@pytest.mark.parametrize("kind", ROTATIONS, ids=name_of)
def test_misalignment_is_zero_at_the_rotations_of_a_joint_alone(kind):
    """Also as a part of one's own has it by default, and with derivatives everywhere."""
    rng = np.random.default_rng(3)
    E = so3.exp_matrix(jnp.asarray(rng.normal(size=3)))
    shift = jnp.asarray(rng.uniform(-1.4, 1.4, (8, kind.nv)))
    half = [so3.exp_matrix(np.pi * E @ n) for n in np.eye(3)]
    half.append(so3.exp_matrix(np.pi * E @ jnp.array([0.6, 0.0, 0.8])))

    @jax.jit
    @jax.vmap
    def look(R):
        by_default = rotation.AbstractRotation.misalignment(kind, E, R)
        slope = jax.jacfwd(lambda R: kind.misalignment(E, R))(R)
        return kind.misalignment(E, R), by_default, slope, kind.residual(E, R)

    own = jnp.stack([kind.matrix(E, kind.retract(kind.zero(), s)) for s in shift])
    at_own, by_default, slope, _ = look(own)
    np.testing.assert_allclose(at_own, 0.0, atol=1e-14)
    np.testing.assert_allclose(by_default, 0.0, atol=1e-7)
    assert np.all(np.isfinite(slope))
    found, by_default, slope, residual = look(jnp.stack(half))
    assert np.all(np.isfinite(slope))
    for k, R in enumerate(half):  # Roots of the residual are a joint's own, or half a turn off.
        if np.abs(residual[k]).max(initial=0.0) < 1e-12:
            nearest = kind.matrix(E, kind.coordinates(E, R))
            own = np.abs(nearest - R).max() < 1e-6
            if own and isinstance(kind, rotation.BendingRotation):
                continue  # A shaft that bends back onto itself: where both kinds of root meet.
            wanted = 0.0 if own else np.pi
            assert np.linalg.norm(found[k]) == pytest.approx(wanted, abs=1e-6)
            assert (np.linalg.norm(by_default[k]) < 1e-6) == own


@pytest.mark.thorough
def test_joints_of_a_loop_close_without_whole_turns():
    """From this guess steps of Newton's method without a limit turn the hinges over."""
    system = mbd.formulate(pinned_four_bar())
    state = mbd.assemble(system, {"left": -0.7})
    angles = mbd.joint_states(system, 0.0, state)
    assert max(abs(float(angles[name].q)) for name in ("left", "crank pin", "right")) < np.pi
