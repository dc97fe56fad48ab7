"""Mechanisms in contact that several tests use, and their motions."""

import jax
import jax.numpy as jnp

import jaxmbd as mbd
from jaxmbd import contact, forces, inertia

GRAVITY = 9.81


def ball(touch, radius=0.1, mass=1.0, gravity=GRAVITY, inertia_factor=0.4, **more):
    """A free ball with contacts."""
    moment = inertia_factor * mass * radius**2
    body = mbd.RigidBody(mass, [moment, moment, moment])
    return mbd.Model(
        {"ball": body}, forces={"weight": forces.Gravity([0, 0, -gravity]), **touch}, **more
    )


def floor(radius=0.1, normal=None, friction=None, rolling=None):
    """Contact of the ball with the ground."""
    normal = contact.HuntCrossley(1e5, 0.3, exponent=1.5) if normal is None else normal
    pair = contact.Sphere("ball", radius), contact.HalfSpace("ground")
    return forces.Contact(*pair, normal, friction, rolling)


def states_at(system, states, name="ball"):
    """Poses of a body along the states of a rollout."""
    return jax.vmap(lambda y: system.frames(jnp.zeros(()), y.q)[name])(states)


def block(angle, coefficient, size):
    """A box of 2 kg on a slope that descends along x, on bristles; both in one frame."""
    half = 0.5 * angle
    quat = jnp.stack([jnp.cos(half), 0.0 * half, jnp.sin(half), 0.0 * half])
    touch = forces.Contact(
        contact.Box("block", size),
        contact.HalfSpace(mbd.Frame("ground", quat=quat)),
        contact.HuntCrossley(2e5, 1.0, 1.0),
        contact.Bristle(coefficient, 1e3, 10.0),
    )
    return mbd.Model(
        {"block": inertia.box(2.0, [0.3, 0.2, 0.2])},
        forces={"weight": forces.Gravity([0, 0, -GRAVITY]), "touch": touch},
    )
