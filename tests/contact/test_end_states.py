"""Derivatives of end states through contacts against a reference with located events, and a rod."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmbd as mbd
from jaxmbd import contact, forces
from tests.derivatives import difference

G, T1, TRANSITION = 9.81, 0.55, 0.05
# Friction, stiffness, radius of the shape, slope of the terrain, speed along it at first.
INPUTS = np.array([0.3, 2e4, 0.1, 0.2, 0.5])


def thrown(x):
    """Place, height and spin of a ball after two bounces on a slope."""
    friction, stiffness, radius, slope, speed = x
    touch = forces.Contact(
        contact.Sphere("ball", radius),
        contact.Terrain("ground", contact.Slope(jnp.stack([slope, 0.0 * slope]))),
        contact.HuntCrossley(stiffness, 0.2, exponent=1.5),
        contact.Coulomb(friction, TRANSITION),
    )
    gravity = forces.Gravity([0.0, 0.0, -G])
    model = mbd.Model({"ball": mbd.inertia.sphere(1.0, 0.1)}, forces={"g": gravity, "t": touch})
    system = mbd.formulate(model, mbd.JointCoordinates())
    zero = 0.0 * speed
    at = mbd.Pose(jnp.array([0.0, 0.0, 0.2]), jnp.eye(3))
    rates = jnp.stack([speed, zero, zero - 0.5, zero, zero + 3.0, zero])
    start = mbd.assemble(system, {"ball": at}, {"ball": rates})
    steps = diffrax.PIDController(rtol=1e-11, atol=1e-11)
    options = {"controller": steps, "max_steps": 20000, "adjoint": diffrax.ForwardMode()}
    motion = mbd.simulate(system, start, t1=T1, saveat=jnp.array([T1]), throw=False, **options)
    p = motion.frames["ball"].p[-1]
    return jnp.stack([p[0], p[2], motion.twists["ball"][-1, 4]])


def reference(x):
    """The same in the plane, with events at the beginning and the end of every contact."""
    friction, stiffness, radius, slope, speed = (float(v) for v in x)
    n, along = (np.array(v) / np.hypot(1.0, slope) for v in ((-slope, 1.0), (1.0, slope)))

    def depth(t, y):
        return radius - n @ y[:2]

    def rates(t, y):
        force, moment, d = np.array([0.0, -G]), 0.0, depth(t, y)
        if d > 0.0:
            arm = -(radius - 0.5 * d) * n
            w = y[3:5] + y[5] * np.array([arm[1], -arm[0]])
            size = stiffness * d**1.5 * max(1.0 - 0.2 * (n @ w), 0.0)
            push = size * (n - friction * np.tanh(along @ w / TRANSITION) * along)
            force = force + push
            moment = arm[1] * push[0] - arm[0] * push[1]
        return [*y[3:], *force, moment / (0.4 * 0.1**2)]

    t, y, inside, n_contacts = 0.0, np.array([0.0, 0.2, 0.0, speed, -0.5, 3.0]), False, 0
    while t < T1:
        depth.terminal, depth.direction = True, -1.0 if inside else 1.0
        options = {"events": depth, "rtol": 1e-12, "atol": 1e-13, "max_step": 5e-3}
        part = solve_ivp(rates, (t, T1), y, "DOP853", **options)
        t, y = part.t[-1], part.y[:, -1]
        if part.status == 1:
            inside = not inside
            n_contacts += inside
            # Beyond the event by rounding, so that it is not found again.
            y[:2] -= 1e-14 * n if inside else -1e-14 * n
    assert n_contacts == 2
    return np.array([y[0], y[1], y[5]])


@pytest.mark.thorough
def test_derivatives_of_end_states():
    """By friction, stiffness, shape, terrain and first state to 1e-4; a batch like one by one."""
    one = jax.jit(lambda x: (thrown(x), jax.jacfwd(thrown)(x)))
    rows = INPUTS * np.array([[1.0] * 5, [1.1, 1.2, 0.95, 0.9, 1.3]])
    batch = jax.jit(jax.vmap(lambda x: (thrown(x), jax.jacfwd(thrown)(x))))(rows)
    for k, row in enumerate(rows):
        value, jacobian = one(row)
        np.testing.assert_allclose(batch[0][k], value, rtol=1e-9)
        np.testing.assert_allclose(batch[1][k], jacobian, rtol=1e-6, atol=1e-9)
    value, jacobian = one(INPUTS)
    np.testing.assert_allclose(value, reference(INPUTS), rtol=1e-7, atol=1e-8)
    for k, size in enumerate(INPUTS):
        unit = size * np.eye(5)[k]
        for row in range(3):
            wanted = difference(lambda x, row=row: reference(x)[row], INPUTS, unit, h=1e-4)
            # By the change of all outputs that this input has.
            scale = np.abs(size * np.asarray(jacobian)[:, k]).max()
            assert size * jacobian[row, k] == pytest.approx(wanted, abs=1e-4 * scale), (k, row)


@pytest.mark.thorough
def test_the_rod_of_painleve():
    """The normal acceleration of the tip by the normal force of a rod that slides, tip ahead:

        (1 + 3 cos θ (cos θ - μ sin θ)) / m

    It is positive at all angles θ below μ = 4/3 only; beyond, a rigid rod has no acceleration.
    """
    mass, half, stiffness = 2.0, 0.7, 1e4
    tip = contact.Sphere(mbd.Frame("rod", [half, 0.0, 0.0]), 1e-5)

    def response(friction, angle):
        law = contact.HuntCrossley(stiffness, 0.0, 1.0), contact.Coulomb(friction, 1e-3)
        touch = forces.Contact(tip, contact.HalfSpace("ground"), *law)
        body = mbd.RigidBody(mass, [1e-3, *[mass * half**2 / 3.0] * 2])
        system = mbd.formulate(mbd.Model({"rod": body}, forces={"tip": touch}))
        R = mbd.lie.so3.about(jnp.array([0.0, 1.0, 0.0]), angle)

        def pushed(depth):
            height = half * jnp.sin(angle) + 1e-5 - depth
            at = mbd.Pose(jnp.stack([0.0 * angle, 0.0 * angle, height]), R)
            rates = jnp.concatenate([R.T @ jnp.array([1.0, 0.0, 0.0]), jnp.zeros(3)])
            state = mbd.assemble(system, {"rod": at}, {"rod": rates})
            vdot, _ = mbd.accelerations(system, 0.0, state)
            V = system.twists(0.0, state.q, vdot)["rod"]
            return (R @ (V[:3] + jnp.cross(V[3:], jnp.array([half, 0.0, 0.0]))))[2]

        depth = jnp.asarray(1e-6)
        return (pushed(2 * depth) - pushed(depth)) / (stiffness * depth)

    angles = np.radians(np.linspace(1.0, 89.0, 177))
    found = jax.jit(jax.vmap(jax.vmap(response, (None, 0)), (0, None)))
    frictions = np.array([0.0, 1.3, 4 / 3 + 0.03])
    values = found(jnp.asarray(frictions), jnp.asarray(angles))
    c, s = np.cos(angles), np.sin(angles)
    wanted = (1.0 + 3.0 * c * (c - frictions[:, None] * s)) / mass
    np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4 / mass)
    assert (np.asarray(values).min(axis=1) > 0.0).tolist() == [True, True, False]
