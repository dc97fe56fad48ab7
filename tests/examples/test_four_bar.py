"""The four-bar of four hinges in space: unique in motion and in the plane, like one without."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import joints, signals
from jaxmbd.system import equation_residuals
from tests import models
from tests.examples import comparing
from tests.marks import thorough_but

EXAMPLE = comparing.example("four_bar")
MODEL, LENGTHS, POSTURE = (EXAMPLE[name] for name in ("model", "LENGTHS", "posture"))
T = jnp.asarray(0.0)
ANGLES = (1.0, 4.0)
PINS = ("left", "crank pin", "rocker pin", "right")


@functools.cache
def states(hinged=True):
    """In joint coordinates at two angles, the crank turning."""
    system = mbd.formulate(MODEL(hinged=hinged), mbd.JointCoordinates())
    found = [
        mbd.assemble(system, POSTURE(angle, hinged), {"left": 12.0}, hold="left")
        for angle in ANGLES
    ]
    return system, found


@functools.cache
def wanted(hinged=True):
    system, found = states(hinged)
    return [comparing.look(system, T, state) for state in found]


def in_plane(reactions):
    """Forces along x and z, and the moment about y, which hinges leave free."""
    return {name: reactions[name][jnp.array([0, 2, 4])] for name in PINS}


def closed_form(angle, crank, coupler, rocker, ground):
    """The coupler's point where two circles meet, x and z [m], shape `(2,)`."""
    pin = crank * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    d = jnp.stack([ground - pin[0], -pin[1]])
    along = 0.5 * (1.0 + (coupler**2 - rocker**2) / (d @ d))
    across = jnp.sqrt(coupler**2 / (d @ d) - along**2)
    x = (along * d + across * jnp.stack([-d[1], d[0]])) / coupler
    return pin + 0.5 * coupler * x + 0.06 * jnp.stack([-x[1], x[0]])


@pytest.mark.thorough
def test_three_constraints_repeat_others():
    system, found = states()
    report = mbd.inspect(system, found[0])
    assert (report.dof, report.rank, report.redundant) == (1, 2, {"rocker pin": 3})
    assert not report.singular
    loose, _ = states(hinged=False)
    assert mbd.inspect(loose, states(hinged=False)[1][0]).redundant == {}


@pytest.mark.thorough
def test_it_moves_like_the_one_without_redundancy():
    """And holds the plane alike: what is across it is not unique, and differs."""
    for one, other in zip(wanted(), wanted(hinged=False), strict=True):
        models.near(one["accelerations"], other["accelerations"], 1e-9)
        models.near(one["energy"], other["energy"], 1e-9)
        models.near(in_plane(one["reactions"]), in_plane(other["reactions"]), 1e-9)
        assert abs(one["reactions"]["left"][1] - other["reactions"]["left"][1]) > 0.1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    thorough_but(comparing.ELSEWHERE[:1], comparing.ELSEWHERE[::2]),
    ids=["maximal", "points"],
)
def test_every_formulation_finds_the_same(formulation):
    system, found = states()
    other = mbd.formulate(MODEL(), formulation)
    for state, expected in zip(found, wanted(), strict=True):
        seen = comparing.look(other, T, comparing.carried_over(state, system, other))
        for gaps in (seen["gaps"], expected["gaps"]):
            np.testing.assert_allclose(jnp.concatenate(gaps), 0.0, atol=1e-10)
        models.near(seen["accelerations"], expected["accelerations"], 1e-9)
        models.near(seen["energy"], expected["energy"], 1e-9)
        models.near(in_plane(seen["reactions"]), in_plane(expected["reactions"]), 1e-9)


@pytest.mark.thorough
def test_slopes_through_the_redundant_loop():
    """Derivatives of the point and the crank's acceleration; of the point also in closed form."""
    angle = ANGLES[1]

    def outputs(inputs):
        system = mbd.formulate(MODEL(**inputs), mbd.JointCoordinates())
        state = mbd.assemble(system, POSTURE(angle), {"left": 12.0}, hold="left")
        vdot, _ = mbd.accelerations(system, T, state)
        crank = mbd.joint_states(system, T, mbd.State(state.q, vdot))["left"].v
        p = system.frames(T, state.q)["point"].p
        return jnp.stack([p[0], p[2], crank])

    inputs = LENGTHS | {"normal": [0.1, -1.0, 0.2], "mass": 0.5}
    slopes = comparing.check_slopes(outputs, inputs)
    assert abs(slopes["mass"][2]) > 0.1


@pytest.mark.thorough
def test_slopes_by_the_axis_of_one_hinge():
    """With a cross and a ball joint the rocker's hinge may have any direction."""
    lowered = MODEL(hinged=False)

    def outputs(inputs):
        where = lambda m: (m.joints["right"].axis, m.joints["right"].predecessor.p)  # noqa: E731
        model = eqx.tree_at(where, lowered, (inputs["axis"], inputs["anchor"]))
        system = mbd.formulate(model, mbd.JointCoordinates())
        state = mbd.assemble(system, POSTURE(ANGLES[0], False), hold="left")
        return system.frames(T, state.q)["point"].p

    slopes = comparing.check_slopes(
        outputs, {"axis": [0.1, -1.0, 0.2], "anchor": [0.28, 0.01, -0.02]}
    )
    assert min(np.abs(slope).min() for slope in slopes.values()) > 1e-4


@pytest.mark.thorough
def test_the_torque_of_a_motor_drives_it_alike():
    """Also through the redundant loop."""
    system, found = states()
    model, state = MODEL(), found[0]
    motor = {"motor": joints.Driver("left", signals.Polynomial([ANGLES[0], 12.0, 15.0]))}
    driven = mbd.Model(model.bodies, model.joints, model.forces, drivers=motor)
    driven = mbd.formulate(driven, mbd.JointCoordinates())
    vdot, _ = mbd.accelerations(driven, T, state)
    assert vdot[0] == pytest.approx(30.0, rel=1e-12)
    torque = mbd.driving_forces(driven, T, state)["motor"]
    pull = model.forces | {"motor": mbd.forces.JointTorque("left", torque)}
    free = mbd.formulate(mbd.Model(model.bodies, model.joints, pull), mbd.JointCoordinates())
    np.testing.assert_allclose(
        mbd.accelerations(free, T, state)[0], vdot, atol=1e-9 * np.abs(vdot).max()
    )
    same = mbd.driving_forces(system, T, state, vdot, ["left"])["left"]
    assert same == pytest.approx(float(torque), rel=1e-9)


@pytest.mark.thorough
def test_the_script_says_what_it_found(capsys, tmp_path):
    """Its motion stays on the constraints, and keeps its energy."""
    motion = EXAMPLE["main"](png=tmp_path / "plot.png")
    said = capsys.readouterr().out
    assert "3 of 5 constraints are redundant (in rocker pin)" in said
    assert "crank 1.336" in said
    assert (tmp_path / "plot.png").stat().st_size > 10_000
    system = motion.system
    gaps = eqx.filter_jit(
        eqx.filter_vmap(lambda q: equation_residuals.position_residual(system, T, q))
    )(motion.states.q)
    np.testing.assert_allclose(gaps, 0.0, atol=1e-10)
    energy = motion.energy.total
    np.testing.assert_allclose(energy, energy[0], rtol=1e-10)


@pytest.mark.thorough
def test_sensitivities_have_a_closed_form():
    """Around the whole turn, to 1e-9 mm/mm."""
    angles = jnp.linspace(0.0, 2 * np.pi, 73)
    p, slopes = EXAMPLE["sensitivities"](np.asarray(angles))
    lengths = {name: jnp.asarray(x) for name, x in LENGTHS.items()}

    @jax.jit
    @functools.partial(jax.vmap, in_axes=0)
    def closed(angle):
        of = functools.partial(closed_form, angle)
        return of(**lengths), jax.jacfwd(lambda lengths: of(**lengths))(lengths)

    wanted, by = closed(angles)
    np.testing.assert_allclose(p[:, ::2], wanted, atol=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope[:, ::2], by[name], atol=1e-9)
        np.testing.assert_allclose(slope[:, 1], 0.0, atol=1e-12)
