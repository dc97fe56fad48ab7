"""Rest on tyres and on bristles, whose deflections are first-order states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, contact, forces, joints, tyres

ACROSS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # Axle along y.
MASS, RADIUS, STIFFNESS = 20.0, 0.31, 2e5


@pytest.mark.thorough
def test_a_tyre_on_a_level_plane_rests_where_it_starts():
    """Its slip is zero up to rounding errors, which do not count as changes."""
    tyre = forces.Tyre(
        contact.Disc(Frame("wheel", R=ACROSS), RADIUS),
        contact.HalfSpace("ground"),
        contact.KelvinVoigt(STIFFNESS, 300.0),
        tyres.Brush(15.0, 0.9, 0.0),
        relaxation=0.3,
    )
    model = mbd.Model(
        {"wheel": mbd.RigidBody(MASS, [0.6, 1.1, 0.6])},
        {"plane": joints.Planar(mbd.ground, "wheel", axis=(0, 1, 0))},
        {"gravity": forces.Gravity(), "tyre": tyre},
    )
    system = mbd.formulate(model)
    height = RADIUS - MASS * 9.81 / STIFFNESS
    for x, turn in ((0.0, 0.0), (0.3, 0.7), (1.1, -2.3)):
        state = mbd.assemble(system, {"plane": [x, -height, turn]})
        found = mbd.equilibrium(system, state)
        assert found.stable
        assert found.free == ("plane",)
        assert np.abs(found.state.q - state.q).max() < 1e-6


@pytest.mark.thorough
def test_a_ball_that_does_not_slip_rolls_to_the_bottom_of_a_bowl():
    """From above the bowl, on bristles a thousandth of the way long."""
    bowl = contact.Terrain("ground", lambda x, y: 0.5 * (x**2 + 2.0 * y**2))
    touch = forces.Contact(
        contact.Sphere("ball", 0.1),
        bowl,
        contact.HuntCrossley(1e5, 0.3, exponent=1.5),
        contact.Bristle(0.5, 1e3, 10.0),
    )
    body = mbd.RigidBody(1.0, [0.004, 0.004, 0.004])
    model = mbd.Model({"ball": body}, forces={"gravity": forces.Gravity(), "touch": touch})
    system = mbd.formulate(model)
    start = mbd.assemble(system, {"ball": [0.3, 0.2, 0.4, 1.0, 0.0, 0.0, 0.0]})
    found = mbd.equilibrium(system, start)
    p = system.frames(0.0, found.state.q)["ball"].p
    depth = (9.81 / 1e5) ** (2 / 3)
    assert p == pytest.approx(np.array([0.0, 0.0, 0.1 - depth]), abs=1e-7)
    assert found.stable
    assert int(found.steps[0]) < 500


@pytest.mark.thorough
def test_bristles_take_one_step_to_rest_and_so_do_derivatives():
    """Under a force F they stretch by z = F/σ₀, after D = z / (1 - σ₀ z/F_s) of the block."""
    static, stiffness = 8.0, 1e4
    slide = forces.LuGreFriction("slide", 6.0, static, 0.01, stiffness, damping=100.0)

    def block(force):
        return mbd.formulate(
            mbd.Model(
                {"block": mbd.inertia.box(2.0, (0.1, 0.1, 0.1))},
                {"slide": joints.Prismatic(mbd.ground, "block", axis=(1, 0, 0))},
                {
                    "friction": slide,
                    "push": forces.AppliedForce("block", jnp.stack([force, 0.0 * force, 0.0])),
                },
            )
        )

    state = mbd.assemble(block(jnp.asarray(0.0)))

    def displacement(force):
        return mbd.equilibrium(block(force), state, method="newton").state.q[0]

    both = jax.jit(jax.value_and_grad(displacement))
    for force in (6.0, -3.0, 1e-3):
        part = 1.0 - abs(force) / static
        value, slope = both(jnp.asarray(force))
        assert float(value) == pytest.approx(force / stiffness / part, rel=1e-8)
        assert float(slope) == pytest.approx(1.0 / stiffness / part**2, rel=1e-6)
    # To either side of the first state it is the same here.
    assert float(both(jnp.asarray(0.0))[1]) == pytest.approx(1.0 / stiffness, rel=1e-6)
