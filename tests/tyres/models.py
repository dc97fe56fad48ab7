"""Wheels with tyres that several tests use."""

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import contact, forces, tyres

GRAVITY, RADIUS, STIFFNESS = 9.81, 0.3, 2e5


def across(body):
    """Frame of a disc in the xz plane of a body, with the axle along y."""
    return mbd.Frame(body, R=np.array([[1.0, 0, 0], [0, 0, 1.0], [0, -1.0, 0]]))


def tyre(slip=None, body="wheel", road=None, damping=0.0, **more):
    """A tyre on the ground, or on a road."""
    return forces.Tyre(
        contact.Disc(across(body), RADIUS),
        contact.HalfSpace("ground") if road is None else contact.Terrain("ground", road),
        contact.KelvinVoigt(STIFFNESS, damping),
        tyres.Linear(10.0, 0.8) if slip is None else slip,
        **more,
    )


def wheel(element, mass=20.0, gravity=GRAVITY):
    """A free wheel."""
    body = mbd.RigidBody(mass, [0.6, 1.0, 0.6])
    weight = forces.Gravity([0.0, 0.0, -gravity])
    return mbd.Model({"wheel": body}, forces={"weight": weight, "tyre": element})


def on_flat(load, stiffness=STIFFNESS):
    """Height of the centre of a wheel under a load."""
    return RADIUS - load / stiffness


def at(height, velocity, spin, heading=0.0, camber=0.0):
    """Poses and twists of disc and ground; the wheel turned by its heading, then its camber."""
    c, s, ci, si = jnp.cos(heading), jnp.sin(heading), jnp.cos(camber), jnp.sin(camber)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    turn = jnp.stack([jnp.stack([c, -s, zero]), jnp.stack([s, c, zero]), _row(zero, zero, one)])
    lean = jnp.stack([_row(one, zero, zero), _row(zero, ci, -si), _row(zero, si, ci)])
    R = turn @ lean @ across("wheel").R
    p = jnp.stack([zero, zero, jnp.asarray(height)])
    X = mbd.Pose(jnp.stack([p, jnp.zeros(3)]), jnp.stack([R, jnp.eye(3)]))
    v = R.T @ jnp.asarray(velocity)
    V = jnp.concatenate([v, jnp.zeros(2), jnp.asarray(spin)[None]])
    return X, jnp.stack([V, jnp.zeros(6)])


def _row(*numbers):
    return jnp.stack(numbers)
