"""Steps that are too long for contacts: repeated if adaptive, warned of if fixed."""

import warnings
from functools import partial

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, inertia, joints
from jaxmbd.motion.step_controllers import lowest_between
from tests.contact import models


def past_a_post():
    """A ball on two guides that flies past a post, and overlaps it by 5 mm if it does not turn."""
    post = contact.Sphere(mbd.Frame("ground", [1.0, 0.195, 0.0]), 0.1)
    touch = forces.Contact(
        contact.Sphere("ball", 0.1), post, contact.HuntCrossley(1e5, 0.0, exponent=1.5)
    )
    guides = {
        "along": joints.Prismatic("ground", "slide", [1, 0, 0]),
        "across": joints.Prismatic("slide", "ball", [0, 1, 0]),
    }
    bodies = {"slide": inertia.sphere(1.0, 0.1), "ball": inertia.sphere(1.0, 0.1)}
    return mbd.formulate(mbd.Model(bodies, guides, {"touch": touch}), mbd.JointCoordinates())


@pytest.mark.thorough
def test_adaptive_steps_do_not_jump_over_a_contact():
    """In free flight steps grow until one would pass the post."""
    system = past_a_post()
    start = mbd.assemble(system, {}, {"along": 2.0})
    ends = []
    for controller in (
        diffrax.PIDController(rtol=1e-6, atol=1e-6),
        diffrax.PIDController(rtol=1e-6, atol=1e-6, dtmax=1e-3),
    ):
        motion = mbd.simulate(system, start, t1=20.0, controller=controller, saveat=[20.0])
        ends.append(float(motion.states.v[-1, 1]))
    assert ends[1] < -0.1
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


def test_lowest_point_between_the_ends_of_a_step():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0, 1, (2, 50))
    falls, rises = -rng.uniform(0, 9, 50), rng.uniform(0, 9, 50)
    found = lowest_between(*(jnp.asarray(x) for x in (a, falls, b, rises)))
    s = np.linspace(0, 1, 4001)[:, None]
    square, cube = 3 * (b - a) - 2 * falls - rises, 2 * (a - b) + falls + rises
    cubic = a + s * (falls + s * (square + s * cube))
    tangents = np.maximum(a + s * falls, b + (s - 1) * rises)
    wanted = np.minimum(cubic.min(axis=0), tangents.min(axis=0))
    np.testing.assert_allclose(found, wanted, atol=3e-3)
    assert lowest_between(*(jnp.asarray([x]) for x in (1.0, 1.0, 1.0, 1.0)))[0] == jnp.inf


def dropped(saveat):
    """A ball on the floor and back with steps of 2 ms."""
    law = contact.HuntCrossley(1e7, 0.3, exponent=1.5)
    touch = forces.Contact(contact.Sphere("ball", 0.1), contact.HalfSpace("ground"), law)
    guide = joints.Prismatic(mbd.Frame("ground", [0.0, 0.0, 0.1]), "ball", [0, 0, 1])
    weight = forces.Gravity([0.0, 0.0, -9.81])
    bodies = {"ball": inertia.sphere(1.0, 0.1)}
    model = mbd.Model(bodies, {"guide": guide}, {"touch": touch, "weight": weight})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"guide": 0.01})
    return mbd.simulate(system, state, t1=0.15, dt=2e-3, saveat=saveat)


@pytest.mark.long
def test_short_contacts_are_counted_whatever_is_saved():
    with pytest.warns(
        mbd.ContactWarning, match="'touch' at t = 0.0.* lasts for .* steps of 0.002 s"
    ):
        motion = dropped([0.15])
    assert motion.ts.shape == (1,)


@pytest.mark.thorough
@pytest.mark.parametrize("dt", [2e-3, 2e-4])
def test_bristles_too_stiff_for_fixed_steps(dt):
    """σ₀ |u| / μ = 1e4 / 0.3 * 0.1 = 3.3e3 per second, against 2 / dt."""
    touch = models.floor(
        normal=contact.HuntCrossley(1e4, 0.0, 1.0), friction=contact.Bristle(0.3, 1e4, 0.0)
    )
    guide = joints.Prismatic(mbd.Frame("ground", [0.0, 0.0, 0.099]), "ball", [1, 0, 0])
    model = mbd.Model({"ball": inertia.sphere(1.0, 0.1)}, {"guide": guide}, {"touch": touch})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {}, {"guide": 0.1})
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        mbd.simulate(system, state, t1=2 * dt, dt=dt, throw=False)
    found = [str(w.message) for w in issued if issubclass(w.category, mbd.ContactWarning)]
    assert [("bristles of contact 'touch'" in x, "at most 0.0003 s" in x) for x in found] == (
        [(True, True)] if dt > 1e-3 else []
    )


@pytest.mark.thorough
def test_check_gradients_counts_steps_of_contacts():
    """A ball that falls on the floor and bounces, by fixed steps of 5 ms; and by adaptive ones."""

    def height(x, **steps):
        model = models.ball({"floor": models.floor()})
        system = mbd.formulate(model, mbd.JointCoordinates())
        X = mbd.Pose(jnp.stack([0.0 * x, 0.0 * x, x]), jnp.eye(3))
        options = {"adjoint": diffrax.DirectAdjoint(), "max_steps": 400, **steps}
        start = mbd.assemble(system, {"ball": X})
        motion = mbd.simulate(system, start, t1=0.3, saveat=jnp.array([0.3]), **options)
        return motion.frames["ball"].p[-1, 2]

    with pytest.warns(mbd.ContactWarning, match=r"contact 'floor' at t = .* take dt of at most"):
        mbd.check_gradients(partial(height, dt=5e-3), jnp.asarray(0.2), steps=[1e-3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mbd.check_gradients(height, jnp.asarray(0.2), steps=[1e-3])
