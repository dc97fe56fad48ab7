"""Forces of contacts as sensors see them, and pairs of many shapes."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, sensors
from jaxmbd.motion.motion_warnings import can_gain_energy
from tests.contact import models


def test_a_resting_ball_weighs_what_it_weighs():
    """Depth, point and force in closed form; also with the shapes in the other order."""
    law, friction = contact.HuntCrossley(1e4, 0.3, 1.0), contact.Coulomb(0.4, 0.01)
    shapes = contact.Sphere("ball", 0.1), contact.HalfSpace("ground")
    pushes = {
        "down": forces.Contact(*shapes, law, friction),
        "up": forces.Contact(*shapes[::-1], law, friction),
    }
    model = models.ball(pushes)
    system = mbd.formulate(model, mbd.JointCoordinates())
    X = mbd.Pose(jnp.asarray([0.3, 0.2, 0.099]), jnp.eye(3))
    state = mbd.assemble(system, {"ball": X}, {"ball": [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]})
    found = mbd.contacts(system, 0.0, state)
    np.testing.assert_allclose(found["down"].depth, [1e-3], rtol=1e-10)
    np.testing.assert_allclose(found["up"].depth, [1e-3], rtol=1e-10)
    for name, sign in (("down", 1.0), ("up", -1.0)):
        np.testing.assert_allclose(found[name].position, [[0.3, 0.2, -5e-4]], atol=1e-12)
        np.testing.assert_allclose(found[name].normal, [[0, 0, sign]], atol=1e-12)
        np.testing.assert_allclose(found[name].force, [[-sign * 4, 0, sign * 10]], atol=1e-8)
    read = sensors.ContactForce("down")(system, jnp.asarray(0.0), state)
    np.testing.assert_allclose(read, [-4.0, 0.0, 10.0], atol=1e-8)
    with pytest.raises(mbd.ModelError, match="unknown contact 'left'; known are 'down', 'up'"):
        sensors.ContactForce("left")(system, jnp.asarray(0.0), state)


def test_pairs_of_shapes():
    shapes = {
        "red": contact.Sphere("red", 0.03),
        "blue": contact.Sphere("blue", 0.03),
        "crate": contact.Box("crate", [0.1, 0.1, 0.1]),
        "lid": contact.Sphere(mbd.Frame("crate", [0, 0, 0.1]), 0.02),
        "table": contact.HalfSpace("ground"),
        "hill": contact.Terrain("ground", contact.Washboard(0.1, 2.0)),
    }
    felt = forces.Material(contact.HuntCrossley(1e5, exponent=1.5), contact.Coulomb(0.2))
    steel = forces.Material(contact.HuntCrossley(1e7, exponent=1.5))

    def materials(a, b):
        return steel if {a, b} == {"red", "blue"} else felt

    found = forces.contact_pairs(shapes, materials, exclude=[("hill", "red")])
    wanted = "red-blue red-crate red-lid red-table blue-crate blue-lid blue-table blue-hill"
    wanted += " crate-table crate-hill lid-table lid-hill"
    assert list(found) == wanted.split()
    assert found["red-blue"].friction is None
    assert found["crate-table"].friction is felt.friction
    everywhere = forces.contact_pairs({x: shapes[x] for x in ("red", "table")}, felt)
    assert everywhere["red-table"].normal is felt.normal
    with pytest.raises(mbd.ModelError, match="unknown shape 'green'"):
        forces.contact_pairs(shapes, felt, exclude=[("red", "green")])
    boxes = {x: contact.Box(x, [1.0, 1.0, 1.0]) for x in ("a", "b")}
    with pytest.raises(mbd.ModelError, match="between Box 'a' and Box 'b'; exclude"):
        forces.contact_pairs(boxes, felt)


@pytest.mark.thorough
def test_warnings_of_simulate():
    """A bounce of 5 ms in steps of 1 ms; with the step that is named there is no warning."""
    law = contact.HuntCrossley(4e5, 0.3, 1.0)
    model = models.ball({"touch": models.floor(normal=law)})
    system = mbd.formulate(model, mbd.JointCoordinates())

    def start(z):
        X = mbd.Pose(jnp.asarray([0.0, 0.0, z]), jnp.eye(3))
        return mbd.assemble(system, {"ball": X}, {"ball": [0.0, 0.0, -1.0, 0.0, 0.0, 0.0]})

    with pytest.warns(
        mbd.ContactWarning, match=r"'touch' at t = 0.00[4-6]\d* s lasts for [4-6] s"
    ) as seen:
        mbd.simulate(system, start(0.105), t1=0.02, dt=1e-3)
    (text,) = (str(x.message) for x in seen)
    assert "dt of at most 0.0001 s" in text
    solution = mbd.simulate(system, start(0.105), t1=0.02, dt=1e-4)
    assert solution.twists["ball"][-1, 2] > 0.5
    with pytest.warns(mbd.ContactWarning, match="overlap by 0.03 m in the first state"):
        mbd.simulate(system, start(0.07), t1=0.02, dt=1e-3)


class Trampoline(contact.AbstractNormalLaw):
    """Returns more than it takes."""

    def force(self, depth, rate):
        return jnp.where(depth > 0, 1e4 * depth * (1.0 - 0.1 * rate), 0.0)

    def energy(self, depth):
        return 0.5e4 * jnp.where(depth > 0, depth, 0.0) ** 2


def test_energy_is_watched_where_contacts_add_none():
    laws = (
        (contact.HuntCrossley(1e4, exponent=1.5), contact.Coulomb(0.3)),
        (Trampoline(), contact.Coulomb(0.3)),
    )
    for pair, gains in zip(laws, (False, True), strict=True):
        system = mbd.formulate(models.ball({"touch": models.floor(0.1, *pair)}))
        assert can_gain_energy(system) == gains
