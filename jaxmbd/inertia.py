"""Rigid bodies from shapes, and mass properties in unconstrained parameters.

The shapes return a `RigidBody` whose frame is at the centre of mass along the principal axes, and
so does `principal` by default. `shifted` and `rotated` displace and turn the material in its frame.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .bodies import RigidBody
from .errors import ModelError
from .model.values import as_direction, as_instance, as_leaf, is_concrete, on_host


def _positive(value: Any, shape: tuple[int, ...], name: str) -> Any:
    leaf = on_host(as_leaf(value, shape, name))
    if is_concrete(leaf) and not np.all(leaf > 0):
        raise ModelError(f"{name} must be positive, got {leaf.tolist()}")
    return leaf


def _axial(mass: Any, axis: Any, along: Any, across: Any) -> RigidBody:
    """A body of revolution with moment `along` about the axis and `across` about normals to it."""
    n = on_host(as_direction(axis, "axis"))
    inertia = across * np.eye(3, dtype=n.dtype) + (along - across) * (n[:, None] * n[None])
    return RigidBody(mass, inertia)


def rod(mass: Any, length: Any, axis: Any = (1.0, 0.0, 0.0), radius: Any = None) -> RigidBody:
    """A slender uniform rod of `mass` [kg] and `length` [m] along `axis`.

    The moment about normals to the axis is m L²/12, for any `radius` [m]. The moment about the
    axis is m r²/2. Use `cylinder` if the radius matters. Defaults: the x axis, so that joints about
    their default axis z move the rod in the plane of x and y; a radius of 0.01 `length`.

    For example:

        rod = inertia.rod(mass=1.0, length=0.5, axis=[1, 0, 0])
    """
    m, length = _positive(mass, (), "rod: mass"), _positive(length, (), "rod: length")
    r = 0.01 * length if radius is None else _positive(radius, (), "rod: radius")
    return _axial(m, axis, m * r**2 / 2, m * length**2 / 12)


def cylinder(mass: Any, radius: Any, length: Any, axis: Any = (0.0, 0.0, 1.0)) -> RigidBody:
    """A solid uniform cylinder of `mass` [kg], `radius` and `length` [m] along `axis`.

    Default: the z axis, about which joints turn by default.

    For example:

        drum = inertia.cylinder(5.0, radius=0.2, length=0.5)
    """
    m, r = _positive(mass, (), "cylinder: mass"), _positive(radius, (), "cylinder: radius")
    length = _positive(length, (), "cylinder: length")
    return _axial(m, axis, m * r**2 / 2, m * (length**2 / 12 + r**2 / 4))


def box(mass: Any, size: Any) -> RigidBody:
    """A solid uniform box of `mass` [kg] and edges `size` along x, y, z, shape `(3,)` [m].

    For example:

        crate = inertia.box(10.0, [0.4, 0.3, 0.3])
    """
    m, size = _positive(mass, (), "box: mass"), _positive(size, (3,), "box: size")
    squares = size**2
    return RigidBody(m, m / 12 * (squares.sum() - squares))


def sphere(mass: Any, radius: Any) -> RigidBody:
    """A solid uniform ball of `mass` [kg] and `radius` [m].

    For example:

        ball = inertia.sphere(1.0, radius=0.1)
    """
    m, r = _positive(mass, (), "sphere: mass"), _positive(radius, (), "sphere: radius")
    return RigidBody(m, 0.4 * m * r**2 * np.ones(3, dtype=m.dtype))


def principal(mass: Any, moments: Any, R: Any = None, com: Any = (0.0, 0.0, 0.0)) -> RigidBody:
    """A body from its principal `moments` about the centre of mass, shape `(3,)` [kg m²].

    The columns of `R` are the principal axes in the body frame. Default: the axes of that frame.
    `com` is the centre of mass in the body frame, shape `(3,)` [m].

    For example:

        plate = inertia.principal(2.0, [0.1, 0.1, 0.2])
    """
    moments = _positive(moments, (3,), "principal: moments")
    if R is None:
        return RigidBody(mass, moments, com)
    R = as_leaf(R, (3, 3), "principal: R")
    return RigidBody(mass, R @ jnp.diag(moments) @ R.T, com)


def shifted(body: RigidBody, by: Any) -> RigidBody:
    """The body with its material displaced by `by` in the body frame, shape `(3,)` [m].

    For example:

        pendulum = inertia.shifted(inertia.rod(1.0, 1.0), [0.5, 0, 0])  # frame at one end
    """
    by = on_host(as_leaf(by, (3,), "shifted: by"))
    body = as_instance(body, RigidBody, "shifted: body", "a RigidBody")
    return RigidBody(body.mass, body.inertia, on_host(body.com) + by)


def rotated(body: RigidBody, R: Any) -> RigidBody:
    """The body with its material rotated about the body frame's origin by the matrix `R`.

    For example:

        turned = inertia.rotated(inertia.rod(1.0, 1.0), np.eye(3)[[1, 2, 0]])
    """
    R = on_host(as_leaf(R, (3, 3), "rotated: R"))
    body = as_instance(body, RigidBody, "rotated: body", "a RigidBody")
    return RigidBody(body.mass, R @ on_host(body.inertia) @ R.T, R @ on_host(body.com))


def to_log_cholesky(body: RigidBody) -> Float[Array, "10"]:
    """The log-Cholesky parameters of a body: ten unconstrained numbers, shape `(10,)`.

    They parameterize the pseudo-inertia `P = [[Σ, h], [hᵀ, m]]`, Σ = ∫ρ s sᵀ, as `P = e^{2α} U Uᵀ`
    with an upper triangular U whose last diagonal entry is one. Order: α, d1, d2, d3, s12, s23,
    s13, t1, t2, t3. Source: Rucker & Wensing (2022), "Smooth parameterization of rigid-body
    inertia", eqs 6 to 10.
    """
    body = as_instance(body, RigidBody, "to_log_cholesky: body", "a RigidBody")
    J = body.symmetric_inertia()
    h = body.mass * body.com
    second = 0.5 * jnp.trace(J) * jnp.eye(3, dtype=J.dtype) - J
    second = second + jnp.outer(h, h) / body.mass
    P = jnp.block([[second, h[:, None]], [h[None, :], body.mass[None, None]]])
    # An upper factor U Uᵀ is a lower Cholesky factor in reversed order.
    U = jnp.linalg.cholesky(P[::-1, ::-1])[::-1, ::-1]
    scale = U[3, 3]
    u = U / scale
    logs = jnp.log(jnp.diagonal(u)[:3])
    rest = jnp.stack([u[0, 1], u[1, 2], u[0, 2], u[0, 3], u[1, 3], u[2, 3]])
    return jnp.concatenate([jnp.log(scale)[None], logs, rest])


def from_log_cholesky(theta: Any) -> RigidBody:
    """The body with the log-Cholesky parameters `theta`; the inverse of `to_log_cholesky`.

    **Raises** `ModelError` for another shape than `(10,)`.

    For example:

        body = inertia.from_log_cholesky(np.zeros(10))
    """
    theta = as_leaf(theta, (10,), "from_log_cholesky: theta")
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = theta
    zero, one = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    U = jnp.exp(alpha) * jnp.stack(
        [
            jnp.stack([jnp.exp(d1), s12, s13, t1]),
            jnp.stack([zero, jnp.exp(d2), s23, t2]),
            jnp.stack([zero, zero, jnp.exp(d3), t3]),
            jnp.stack([zero, zero, zero, one]),
        ]
    )
    P = U @ U.T
    mass, h = P[3, 3], P[:3, 3]
    second = P[:3, :3] - jnp.outer(h, h) / mass
    inertia = jnp.trace(second) * jnp.eye(3, dtype=P.dtype) - second
    return RigidBody(mass, inertia, h / mass)


def to_inertial_parameters(body: RigidBody) -> Float[Array, "10"]:
    """The parameters in which the equations of motion are linear, shape `(10,)`.

    Order: m, m c (three entries), and the inertia about the origin of the body's frame, Ixx, Ixy,
    Iyy, Ixz, Iyz, Izz.

    For example:

        mass, *rest = inertia.to_inertial_parameters(inertia.sphere(1.0, radius=0.1))
    """
    body = as_instance(body, RigidBody, "to_inertial_parameters: body", "a RigidBody")
    c, J = body.com, body.symmetric_inertia()
    I = J + body.mass * (c @ c * jnp.eye(3, dtype=c.dtype) - jnp.outer(c, c))
    moments = [I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]]
    return jnp.concatenate([body.mass[None], body.mass * c, jnp.stack(moments)])


def from_inertial_parameters(theta: Any) -> RigidBody:
    """The body with the parameters `theta`; the inverse of `to_inertial_parameters`.

    **Raises** `ModelError` for another shape than `(10,)`.

    For example:

        body = inertia.from_inertial_parameters([2.0, 0, 0, 0.2, 0.12, 0, 0.12, 0, 0, 0.02])
    """
    theta = as_leaf(theta, (10,), "from_inertial_parameters: theta")
    mass, h = theta[0], theta[1:4]
    xx, xy, yy, xz, yz, zz = theta[4:]
    I = jnp.stack([jnp.stack([xx, xy, xz]), jnp.stack([xy, yy, yz]), jnp.stack([xz, yz, zz])])
    parallel = (h @ h * jnp.eye(3, dtype=theta.dtype) - jnp.outer(h, h)) / mass
    return RigidBody(mass, I - parallel, h / mass)


__all__ = [
    "box",
    "cylinder",
    "from_inertial_parameters",
    "from_log_cholesky",
    "principal",
    "rod",
    "rotated",
    "shifted",
    "sphere",
    "to_inertial_parameters",
    "to_log_cholesky",
]
