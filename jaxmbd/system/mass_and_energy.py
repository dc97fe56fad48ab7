"""Mass matrix, bias, energy and momentum, from the velocities of bodies.

Formulations have faster methods for rigid bodies, which are tested against these functions. Bodies
of other kinds, and formulations without a faster method, use these functions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import AbstractBody, RigidBody
from ..lie import Pose, se3, so3
from ..mechanism.groups import required_force
from ..programs import stored
from ..programs.tracing import kernel
from .abstract import AbstractSystem, Coordinates, State, Time, Velocities, as_state, as_time
from .configuration import AbstractConfiguration
from .loads import potentials


def spatial_inertia(body: RigidBody) -> Float[Array, "6 6"]:
    """Inertia of one body for twists taken at its frame: [[m 1, -m ĉ], [m ĉ, J - m ĉ ĉ]]."""
    c = so3.hat(body.com)
    linear = body.mass * jnp.eye(3, dtype=c.dtype)
    angular = body.symmetric_inertia() - body.mass * (c @ c)
    return jnp.block([[linear, -body.mass * c], [body.mass * c, angular]])


def momentum_of(body: RigidBody, V: Float[Array, "6"]) -> Float[Array, "6"]:
    """Spatial momentum: inertia times twist, without forming the matrix."""
    linear = body.mass * (V[:3] + so3.cross(V[3:], body.com))
    angular = body.symmetric_inertia() @ V[3:] + so3.cross(body.com, linear)
    return jnp.concatenate([linear, angular])


def inertial_factor(body: RigidBody) -> Float[Array, "6 6"]:
    """Cholesky factor L of the spatial inertia L Lᵀ of one body, in closed form.

    L = [[√m 1, 0], [√m ĉ, K]] with the inertia K Kᵀ about the centre of mass.
    """
    root, J = jnp.sqrt(body.mass), body.symmetric_inertia()
    zero = jnp.zeros_like(root)
    k00 = jnp.sqrt(J[0, 0])
    k10, k20 = J[1, 0] / k00, J[2, 0] / k00
    k11 = jnp.sqrt(J[1, 1] - k10**2)
    k21 = (J[2, 1] - k20 * k10) / k11
    k22 = jnp.sqrt(J[2, 2] - k20**2 - k21**2)
    K = jnp.array([[k00, zero, zero], [k10, k11, zero], [k20, k21, k22]])
    unit = jnp.eye(3, dtype=K.dtype)
    return jnp.block([[root * unit, jnp.zeros_like(K)], [root * so3.hat(body.com), K]])


def whiten_wrenches(L: Float[Array, "n 6 6"], W: Float[Array, "n 6 k"]) -> Float[Array, "n 6 k"]:
    """L⁻¹ W for the factors of `inertial_factor` of several bodies.

    A library's triangular solve costs more than these few operations.
    """
    linear = W[:, :3] / L[:, 0, 0][:, None, None]
    rest = W[:, 3:] - L[:, 3:, :3] @ linear
    K = L[:, 3:, 3:, None]
    x = rest[:, 0] / K[:, 0, 0]
    y = (rest[:, 1] - K[:, 1, 0] * x) / K[:, 1, 1]
    z = (rest[:, 2] - K[:, 2, 0] * x - K[:, 2, 1] * y) / K[:, 2, 2]
    return jnp.concatenate([linear, jnp.stack([x, y, z], axis=1)], axis=1)


def unwhiten_twists(L: Float[Array, "n 6 6"], y: Float[Array, "n 6"]) -> Float[Array, "n 6"]:
    """L⁻ᵀ y for the factors of `inertial_factor` of several bodies."""
    K = L[:, 3:, 3:]
    c = y[:, 5] / K[:, 2, 2]
    b = (y[:, 4] - K[:, 2, 1] * c) / K[:, 1, 1]
    a = (y[:, 3] - K[:, 1, 0] * b - K[:, 2, 0] * c) / K[:, 0, 0]
    angular = jnp.stack([a, b, c], axis=1)
    linear = y[:, :3] - jnp.einsum("nji,nj->ni", L[:, 3:, :3], angular)
    return jnp.concatenate([linear / L[:, 0, 0][:, None], angular], axis=1)


def squares_of_wrenches(body: RigidBody, X: Pose, W: Float[Array, "m 6"]) -> Float[Array, "m"]:
    """W · 𝓜⁻¹ W of wrenches expressed and taken at the frame X of a free body."""
    # |K⁻¹ τ|² with K as of `inertial_factor` and the moment τ about the centre of mass.
    K, arm = inertial_factor(body)[3:, 3:], X.R.T @ (X.p - body.com)
    first = X.R[0] / K[0, 0]
    second = (X.R[1] - K[1, 0] * first) / K[1, 1]
    third = (X.R[2] - K[2, 0] * first - K[2, 1] * second) / K[2, 2]
    forces, moments = W[:, :3], W[:, 3:] + jax.vmap(lambda f: so3.cross(arm, f))(W[:, :3])
    turned = moments @ jnp.stack([first, second, third], axis=1)
    return jnp.sum(forces**2, axis=1) / body.mass + jnp.sum(turned**2, axis=1)


def inertial_wrench(
    body: RigidBody, V: Float[Array, "6"], A: Float[Array, "6"]
) -> Float[Array, "6"]:
    """I A + V ×* I V: the wrench on a body of twist V and rate of twist A along its own axes."""
    # The momentum I V is constant along the body's axes but for A, and these move with V.
    return momentum_of(body, A) + se3.cross_wrench(V, momentum_of(body, V))


def twist_rates(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, vdot: Velocities
) -> Float[Array, "n_ports 6"]:
    """Time derivative of the twist of every port, each along its own moving axes."""

    def twists(t: Time, q: Coordinates, v: Velocities) -> Array:
        return system.configuration(t, q).twists(v)

    # The total derivative by time, so that t has the tangent one.
    tangents = (jnp.ones_like(c.t), system.rates(c.q, v), vdot)
    return jax.jvp(twists, (c.t, c.q, v), tangents)[1]


def body_velocities(c: AbstractConfiguration, v: Velocities) -> list[Float[Array, "_n _k"]]:
    """Velocities (V, η̇) of the bodies of each kind, V along their own axes; linear in `v`."""
    mechanism = c.mechanism
    V, rates = c.twists(v)[1 : mechanism.n_bodies + 1], c.elastic_rates(v)
    return [
        jnp.concatenate([group.rows.take(V), group.own(rates)], axis=1)
        for group in mechanism.bodies
    ]


def generalized_of_bodies(
    c: AbstractConfiguration, forces: list[Float[Array, "_n _k"]]
) -> Velocities:
    """Generalized force equivalent to forces on (V, η̇) of the bodies of each kind."""
    shape = jax.ShapeDtypeStruct((c.nv,), c.q.dtype)
    return jax.linear_transpose(lambda v: body_velocities(c, v), shape)(forces)[0]


def assembled_mass(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "nv nv"]:
    """M = Σ Jᵀ I J over bodies and rotors, with J from the velocity maps.

    For coordinates in which rotors have no velocities of their own.
    """
    units, total = jnp.eye(system.nv, dtype=c.q.dtype), mass_of_bodies(system, c)
    for group in system.mechanism.rotors:
        rates = jax.vmap(lambda v, g=group.group: c.rates(g, v), out_axes=-1)(units)
        spin = group.rows.take(rates)
        reflected = jax.vmap(lambda rotor: rotor.reflected_inertia())(group.rotor)
        total = total + jnp.einsum("nik,n,nil->kl", spin, reflected, spin)
    return total


def mass_of_bodies(system: AbstractSystem, c: AbstractConfiguration) -> Float[Array, "nv nv"]:
    """M = Σ Jᵀ I J over bodies, without rotors."""
    mechanism = system.mechanism
    units = jnp.eye(system.nv, dtype=c.q.dtype)
    total = jnp.zeros((system.nv, system.nv), dtype=c.q.dtype)
    columns = jax.vmap(lambda v: body_velocities(c, v), out_axes=-1)(units)
    for group, J in zip(mechanism.bodies, columns, strict=True):
        inertia = jax.vmap(inertia_matrix)(group.body, group.own(c.elastic))
        total = total + jnp.einsum("bik,bij,bjl->kl", J, inertia, J)
    return total


def inertia_matrix(body: AbstractBody, eta: Float[Array, "k"]) -> Float[Array, "6+k 6+k"]:
    """Mass matrix of a body for its velocities (V, η̇)."""
    if isinstance(body, RigidBody):
        return spatial_inertia(body)
    return body.mass_matrix(eta)


def forces_on_bodies(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities, vdot: Velocities
) -> list[Float[Array, "_n _k"]]:
    """Forces on (V, η̇) that the motion requires, for the bodies of each kind."""
    mechanism = system.mechanism
    A = twist_rates(system, c, v, vdot)[1 : mechanism.n_bodies + 1]
    second, forces = c.elastic_rates(vdot), []
    for group, u in zip(mechanism.bodies, body_velocities(c, v), strict=True):
        own = group.rows.take(A)
        if isinstance(group.body, RigidBody):
            forces.append(jax.vmap(inertial_wrench)(group.body, u, own))
        else:
            u_dot = jnp.concatenate([own, group.own(second)], axis=1)
            forces.append(jax.vmap(required_force)(group.body, group.own(c.elastic), u, u_dot))
    return forces


def assembled_bias(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Velocities:
    """b = Σ Jᵀ (I V̇ + V ×* I V) at v̇ = 0 over bodies (and rotors on fixed joint axes)."""
    return generalized_of_bodies(c, forces_on_bodies(system, c, v, jnp.zeros_like(v)))


# Energy and momentum of a state -------------------------------------------------------------------


class Energy(eqx.Module):
    """Energies of a state [J], by kind.

    - `kinetic`: kinetic energy of the bodies, and of rotors behind gears.
    - `field`: potential energy of fields such as gravity.
    - `elastic`: potential energy of all other forces in the model, such as springs.
    - `artificial`: potential energy of springs that a formulation uses instead of rigid bodies.
      Unless it is a small part of the total, the motion is not that of rigid bodies.
    """

    kinetic: Float[Array, "*batch"]
    field: Float[Array, "*batch"]
    elastic: Float[Array, "*batch"]
    artificial: Float[Array, "*batch"]

    @property
    def potential(self) -> Float[Array, "*batch"]:
        """All energy that is not kinetic [J]."""
        return self.field + self.elastic + self.artificial

    @property
    def total(self) -> Float[Array, "*batch"]:
        """Kinetic and potential energy together [J]."""
        return self.kinetic + self.potential


class Momentum(eqx.Module):
    """Linear [N s] and angular [N m s] momentum, the latter about the world's origin."""

    linear: Float[Array, "*batch 3"]
    angular: Float[Array, "*batch 3"]


def energy(system: AbstractSystem, t: float | Time, state: State) -> Energy:
    """Energies of a state [J], by kind; friction and drives have no potential.

    For example:

        mbd.energy(system, 0.0, state).total  # [J]
    """
    return _energy(system, as_time(t, system), as_state(state, system))


def momentum(system: AbstractSystem, t: float | Time, state: State) -> Momentum:
    """Momentum of all bodies about the world's origin, without rotors behind gears.

    For example:

        mbd.momentum(system, 0.0, state).angular  # (3,) [N m s]
    """
    return _momentum(system, as_time(t, system), as_state(state, system))


@stored
@kernel
def _energy(system: AbstractSystem, t: Time, state: State) -> Energy:
    c = system.configuration(t, state.q, state.z)
    artificial = system.internal_potential(state.q)
    return Energy(kinetic_energy(system, c, state.v), *potentials(c), artificial)


def kinetic_energy(
    system: AbstractSystem, c: AbstractConfiguration, v: Velocities
) -> Float[Array, ""]:
    """Kinetic energy [J], from the twists of bodies if the system has no own way."""
    own = system.own_kinetic_energy(c, v)
    if own is not None:
        return own
    mechanism = system.mechanism
    if mechanism.all_rigid:
        V = c.twists(v)[1 : mechanism.n_bodies + 1]
        kinetic = 0.5 * jnp.sum(V * jax.vmap(momentum_of)(mechanism.rigid, V))
    else:
        kinetic = jnp.zeros((), dtype=v.dtype)
        for group, u in zip(mechanism.bodies, body_velocities(c, v), strict=True):
            eta, V, eta_dot = group.own(c.elastic), u[:, :6], u[:, 6:]
            of_body = jax.vmap(lambda body, *args: body.kinetic_energy(*args))
            kinetic += jnp.sum(of_body(group.body, eta, V, eta_dot))
    for group in mechanism.rotors:
        reflected = jax.vmap(lambda rotor: rotor.reflected_inertia())(group.rotor)
        rates = group.rows.take(c.rates(group.group, v))
        kinetic += 0.5 * jnp.sum(reflected * jnp.sum(rates**2, axis=1))
    return kinetic


@stored
@kernel
def _momentum(system: AbstractSystem, t: Time, state: State) -> Momentum:
    return momentum_at(system, system.configuration(t, state.q, state.z), state.v)


def momentum_at(system: AbstractSystem, c: AbstractConfiguration, v: Velocities) -> Momentum:
    """Momentum, from the twists of bodies if the system has no own way."""
    own = system.own_momentum_at(c, v)
    if own is not None:
        return own
    mechanism = system.mechanism
    bodies = slice(1, mechanism.n_bodies + 1)
    X = Pose(c.ports.p[bodies], c.ports.R[bodies])
    total = jnp.zeros(6, dtype=v.dtype)
    for group, u in zip(mechanism.bodies, body_velocities(c, v), strict=True):
        if isinstance(group.body, RigidBody):
            P = jax.vmap(momentum_of)(group.body, u)
        else:
            of_body = jax.vmap(lambda body, eta, u: body.momentum(eta, u)[:6])
            P = of_body(group.body, group.own(c.elastic), u)
        total += jnp.sum(jax.vmap(se3.transform_wrench)(group.rows.take_tree(X), P), axis=0)
    return Momentum(total[:3], total[3:])
