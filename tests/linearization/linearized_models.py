"""Models whose linearized equations are known, and these equations."""

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints

FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(),
    mbd.PointCoordinates(),
)
GRAVITY = 9.81
CART, POLE, LENGTH = 2.0, 0.5, 0.7


def cart_pendulum() -> mbd.Model:
    """A cart with a rod upright on it; a force drives the cart."""
    rod = mbd.inertia.rod(POLE, LENGTH, axis=[0, 0, 1])
    return mbd.Model(
        bodies={
            "cart": mbd.inertia.box(CART, [0.3, 0.2, 0.1]),
            "pole": mbd.inertia.shifted(rod, [0, 0, LENGTH / 2]),
        },
        joints={
            "slide": joints.Prismatic(mbd.ground, "cart", axis=[1, 0, 0]),
            "pivot": joints.Revolute("cart", "pole", axis=[0, 1, 0]),
        },
        forces={"gravity": forces.Gravity(), "push": forces.JointTorque("slide", 0.0)},
    )


def cart_pendulum_matrices() -> tuple[np.ndarray, np.ndarray]:
    """A and B of x = (slide, pivot, their rates), from M q̈ = K q + (F, 0)."""
    h = LENGTH / 2
    M = np.array([[CART + POLE, POLE * h], [POLE * h, POLE * LENGTH**2 / 3]])
    K = np.diag([0.0, POLE * GRAVITY * h])
    A, B = np.zeros((4, 4)), np.zeros((4, 1))
    A[:2, 2:], A[2:, :2] = np.eye(2), np.linalg.solve(M, K)
    B[2:, 0] = np.linalg.solve(M, [1.0, 0.0])
    return A, B


def column(n: int, load: object, length: object, stiffness: object, follower: bool) -> mbd.Model:
    """n uniform rods upright on sprung hinges, with a load on the top, down the column."""
    z, bodies, links, parts = jnp.array([0.0, 0.0, 1.0]), {}, {}, {}
    for k in range(n):
        rod = mbd.inertia.rod(1.0, length, axis=[0, 0, 1])
        bodies[f"rod{k}"] = mbd.inertia.shifted(rod, 0.5 * length * z)
        carrier = Frame(f"rod{k - 1}", length * z) if k else mbd.ground
        links[f"hinge{k}"] = joints.Revolute(carrier, f"rod{k}", axis=[0, 1, 0])
        parts[f"spring{k}"] = forces.TorsionalSpringDamper(f"hinge{k}", stiffness)
    top = Frame(f"rod{n - 1}", length * z)
    parts["load"] = forces.AppliedForce(top, -load * z, follower=follower)
    return mbd.Model(bodies, links, parts)


def column_matrices(
    n: int, load: float, length: float, stiffness: float, follower: bool
) -> tuple[np.ndarray, np.ndarray]:
    """M and K of the column in absolute angles."""
    above = n - 1.0 - np.arange(n)
    i, j = np.indices((n, n))
    M = (above[np.maximum(i, j)] + 0.5) * length**2
    np.fill_diagonal(M, (above + 1 / 3) * length**2)
    K = stiffness * (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
    K[-1, -1] = stiffness
    K -= load * length * np.eye(n)
    if follower:
        K[:, -1] += load * length
    return M, K


def four_bar(length: object = 0.7, stiffness: object = 4.0, tilt: object = 0.0) -> mbd.Model:
    """A planar four-bar with a prestressed spring at its crank and a spring across.

    The whole mechanism is turned by `tilt` [rad] about z, the direction of gravity, with the axes
    of its hinges.
    """
    c, s = jnp.cos(jnp.asarray(tilt)), jnp.sin(jnp.asarray(tilt))
    zero = jnp.zeros_like(c)
    x, y, z = jnp.stack([c, s, zero]), jnp.stack([-s, c, zero]), jnp.array([0.0, 0.0, 1.0])
    bars = {"crank": 0.3, "coupler": length, "rocker": 0.5}
    bodies = {}
    for name, size in bars.items():
        bar = mbd.inertia.rod(1.0 + size, size, axis=x, radius=0.02)
        bodies[name] = mbd.inertia.shifted(bar, 0.5 * size * x)
    links = {
        "left": joints.Revolute(mbd.ground, "crank", axis=y),
        "crank pin": joints.Revolute(Frame("crank", 0.3 * x), "coupler", axis=y),
        "right": joints.Revolute(Frame("ground", 0.6 * x), "rocker", axis=y),
        "rocker pin": joints.Revolute(
            Frame("coupler", length * x), Frame("rocker", 0.5 * x), axis=y
        ),
    }
    parts = {
        "gravity": forces.Gravity(),
        "spring": forces.TorsionalSpringDamper("left", stiffness, damping=0.05, rest=REST),
        "across": forces.SpringDamper(
            Frame("coupler", 0.5 * length * x), Frame("ground", 0.2 * x + 0.9 * z), 30.0
        ),
    }
    return mbd.Model(bodies, links, parts)


REST = -1.3
GUESS = {"left": -1.0, "crank pin": 0.9, "right": -1.6}


def door(stiffness: object = 3.0, distance: object = 1.5) -> mbd.Model:
    """A door on two hinges of one line, with a closing spring on one of them."""
    z = jnp.array([0.0, 0.0, 1.0])
    hinges = {
        name: joints.Revolute(Frame("ground", at * z), Frame("leaf", at * z), axis=z)
        for name, at in (("lower", 0.0 * distance), ("upper", distance))
    }
    leaf = mbd.inertia.shifted(mbd.inertia.box(20.0, [0.9, 0.05, 2.0]), [0.45, 0.1, 1.0])
    closer = forces.TorsionalSpringDamper("lower", stiffness, damping=2.0, rest=0.2)
    return mbd.Model({"leaf": leaf}, hinges, {"closer": closer, "gravity": forces.Gravity()})


DOOR_INERTIA = 20.0 * ((0.9**2 + 0.05**2) / 12 + 0.45**2 + 0.1**2)
