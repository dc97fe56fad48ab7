"""Modes of a linearization: frequencies, damping, shapes, and the parts that take part in them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from scalarjit.with_room import with_room

from ..bodies import FlexibleBody, RigidBody
from ..errors import ModelError
from ..linear import Eigen
from ..model.values import all_concrete, as_count
from ..motion.motion import GivenMotion
from ..programs import stored
from ..programs.tracing import kernel
from ..system import sizes
from ..system.abstract import AbstractSystem, State, Time, Velocities
from ..system.projection import project_positions, project_velocities
from .linearization import Linearization

# The motion of one mode around an operating point, to animate -------------------------------------

# Largest rotation of a body [rad], and largest displacement of one relative to the mechanism.
TURN, PART = 0.2, 0.1
FRAMES = 32  # Times in a period.


def mode_motion(
    linearization: Linearization,
    eigenvalue: complex,
    shape: np.ndarray,
    amplitude: float | None,
    n_periods: int,
    extreme: bool = False,
) -> GivenMotion:
    """q₀ ⊞ a Re(E p exp(iωt)), projected onto the constraints.

    A mode that does not oscillate moves with a period of 2π / |λ|, or of 1 s if λ = 0. With
    `extreme` the motion starts where |Re(E p exp(iωt))| is largest.
    """
    at = linearization
    delta = np.asarray(at.directions.displacements) @ shape[: len(at.coordinates)]
    if extreme:  # |Re(δ exp(iα))|² = (δ*δ + Re(δᵀδ exp(2iα))) / 2
        delta = delta * np.exp(-0.5j * np.angle(delta @ delta))
    omega = abs(eigenvalue.imag) or abs(eigenvalue) or 2 * np.pi
    if amplitude is None:
        parts = [
            _reach(at.system, at.t, at.state, jnp.asarray(x))
            for x in (np.real(delta), np.imag(delta))
        ]
        largest = float(max(parts))
        amplitude = 1.0 / largest if largest > 0 else 0.0
    phase = np.linspace(0.0, 2 * np.pi * n_periods, FRAMES * n_periods + 1)
    turning = amplitude * np.exp(1j * phase)[:, None] * delta
    dtype = at.state.q.dtype
    dq, dv = (jnp.asarray(np.real(x), dtype) for x in (turning, 1j * omega * turning))
    states = _states(at.system, at.t, at.state, dq, dv)
    return GivenMotion(jnp.asarray(phase / omega, dtype), states, at.system)


@stored
def _reach(system: AbstractSystem, t: Time, state: State, delta: Velocities) -> Float[Array, ""]:
    """Largest displacement of a body or node in units of its limits."""
    c = system.configuration(t, state.q, state.z)
    twists = c.twists(delta)
    size, displacement = sizes.extent(c), jnp.max(jnp.abs(twists[:, :3]))
    for group in system.mechanism.bodies:
        if isinstance(group.body, FlexibleBody):
            args = group.body, group.own(c.elastic), group.own(c.elastic_rates(delta))
            displacement = jnp.maximum(displacement, jnp.max(jnp.abs(jax.vmap(_deformed)(*args))))
            size = jnp.maximum(size, jnp.max(jnp.ptp(group.body.positions, axis=1)))
    linear = displacement / (PART * size)
    return jnp.maximum(linear, jnp.max(jnp.abs(twists[:, 3:])) / TURN)


def _deformed(
    body: FlexibleBody, eta: Float[Array, "k"], delta: Float[Array, "k"]
) -> Float[Array, "n_nodes 3"]:
    """Displacements of nodes in the body's frame for small changes of η."""

    def displacements(eta: Float[Array, "k"]) -> Float[Array, "n_nodes 3"]:
        return jnp.einsum("nai,a->ni", body.translations, body.coefficients(eta)[1:])

    return jax.jvp(displacements, (eta,), (delta,))[1]


@stored
def _states(
    system: AbstractSystem,
    t: Time,
    state: State,
    dq: Float[Array, "n nv"],
    dv: Float[Array, "n nv"],
) -> State:
    def one(dq: Velocities, dv: Velocities) -> State:
        q = project_positions(system, t, system.retract(state.q, dq))
        v = project_velocities(system, t, State(q, dv, state.z))
        return State(q, v, state.z)

    return jax.vmap(one)(dq, dv)


Numbers = np.ndarray | Array


class Modes(eqx.Module):
    """Modes x(t) = Re(φ exp(λ t)) of a linearization, one for each pair of complex eigenvalues.

    The modes are sorted by abs(λ). For m modes of n states:

    - `eigenvalues`: λ, shape `(m,)` [1/s], of a pair the one with positive imaginary part.
    - `frequencies`: abs(λ) / 2π [Hz], those of the undamped mode; `damped_frequencies`: Im λ / 2π
      [Hz], zero for modes that do not oscillate. Shape `(m,)`.
    - `damping_ratios`: -Re λ / abs(λ), shape `(m,)`: 1 for decay without oscillation, negative for
      growth, 0 if λ = 0.
    - `shapes`: φ in columns, shape `(n, m)`, with the names `linearization.states`.
    - `joints`: `{joint: amplitudes}` of all joints, shape `(m, nv)` [rad or m].
    - `participation`: `{joint or element: shares}`, shape `(m,)`: sums of abs(left) abs(right)
      eigenvector over the states of a joint or an element; the sum of all is 1. How much a mode
      depends on them.
    - `energies`: `{body: shares}` of the kinetic energy, shape `(m,)`, without rotors.
    - `repeated`: whether the eigenvalue is one of a cluster, shape `(m,)`. Shapes of clusters are
      not unique.

    `Linearization.modes(n)` has JAX arrays, with the derivatives of `jaxmbd.linear.eig`: exact ones
    of eigenvalues and shapes that are not repeated. Modes beyond the last one, under a
    transformation, are NaN.
    """

    eigenvalues: Complex[Numbers, "m"]
    shapes: Complex[Numbers, "n m"]
    joints: Mapping[str, Complex[Numbers, "m nv"]]
    participation: Mapping[str, Float[Numbers, "m"]]
    energies: Mapping[str, Float[Numbers, "m"]]
    repeated: Bool[Numbers, "m"]
    linearization: Linearization

    @property
    def frequencies(self) -> Float[Numbers, "m"]:
        """abs(λ) / 2π [Hz], shape `(m,)`."""
        return abs(self.eigenvalues) / (2 * np.pi)

    @property
    def damped_frequencies(self) -> Float[Numbers, "m"]:
        """Im λ / 2π [Hz], shape `(m,)`."""
        values: Any = self.eigenvalues
        return values.imag / (2 * np.pi)

    @property
    def damping_ratios(self) -> Float[Numbers, "m"]:
        """-Re λ / abs(λ), shape `(m,)`."""
        values: Any = self.eigenvalues
        size = abs(values)
        where = np.where if isinstance(size, np.ndarray) else jnp.where
        return where(size > 0, -values.real / where(size > 0, size, 1.0), 0.0)

    def __len__(self) -> int:
        return len(self.eigenvalues)

    def __str__(self) -> str:
        lines = ["mode  frequency [Hz]  damping ratio  most of the motion"]
        for k in range(len(self)):
            most = [_largest(x, k) for x in (self.participation, self.energies) if x]
            lines.append(
                f"{k:4d}  {self.frequencies[k]:14.5g}  {self.damping_ratios[k]:13.4g}  "
                + ", ".join(dict.fromkeys(most))
            )
        return "\n".join(lines)

    def motion(self, k: int, amplitude: float | None = None, n_periods: int = 2) -> GivenMotion:
        """States in the motion of mode `k` around the operating point, without growth or decay.

        **Arguments:** `amplitude`: factor of the shape. Default: the fastest body turns by 0.2 rad,
        or moves by a tenth of the mechanism's size. `n_periods`: number of periods.

        **Raises** `ModelError` if there is no such mode.
        """
        return mode_motion(self.linearization, *self._mode(k), amplitude, n_periods)

    def animate(
        self,
        k: int,
        path: Any = None,
        *,
        amplitude: float | None = None,
        n_periods: int = 2,
        **options: Any,
    ) -> Any:
        """Animate mode `k`, a period in two seconds; needs the extra `viz`.

        **Arguments:** as `motion`; `path` and `options` as `Solution.animate`.

        **Raises** `ModelError` if there is no such mode.
        """
        motion = self.motion(k, amplitude, n_periods)
        duration = float(motion.ts[-1] - motion.ts[0])
        return motion.animate(path, **{"speed": duration / (2.0 * n_periods), **options})

    def snapshots(self, k: int, *, amplitude: float | None = None, **options: Any) -> Any:
        """Draw half a period of mode `k` in one picture; needs the extra `viz`.

        The middle pose is opaque. In a mode without damping it is the operating point, between
        both ends of the motion.

        **Arguments:** `amplitude`: as `motion`; `options`: as `Solution.snapshots`, with `n` for
        the number of poses.

        **Returns** a `matplotlib.figure.Figure`.

        **Raises** `ModelError` if there is no such mode.
        """
        n = options.pop("n", 5)
        period = mode_motion(self.linearization, *self._mode(k), amplitude, 1, extreme=True)
        half = period.rows(slice(0, FRAMES // 2 + 1))
        return half.snapshots(n, **{"solid": n // 2 if isinstance(n, int) else 0, **options})

    def plot(self) -> Any:
        """Eigenvalues in the complex plane, and the shares of joints and bodies in each mode.

        Of numbers of modes that would cover one another, the first one is shown.

        Needs the extra `viz`. **Returns** a `matplotlib.figure.Figure`.
        """
        from ..viz.linearization_figures import plot_modes

        return plot_modes(self)

    def _mode(self, k: int) -> tuple[complex, np.ndarray]:
        """Eigenvalue and shape of a mode."""
        if not 0 <= k < len(self):
            raise ModelError(f"modes: there is no mode {k}; there are {len(self)}, from 0")
        return complex(self.eigenvalues[k]), np.asarray(self.shapes[:, k])


def _largest(shares: Mapping[str, Numbers], k: int) -> str:
    return max(shares, key=lambda name: shares[name][k])


def modes_of(linearization: Linearization, n: int | None = None) -> Modes:
    """See `Linearization.modes`."""
    concrete = all_concrete(linearization.A)
    if n is None and not concrete:
        raise ModelError(
            "the number of oscillating modes depends on values: under jit, grad or vmap give their "
            "number, as modes(3), or use the eigenvalues of `eigen`"
        )
    if linearization.A.ndim != 2:
        raise ModelError(
            "modes: this is a batch of linearizations; take one of them, or use root_locus"
        )
    eigen = linearization.eigen()
    # NumPy's functions compile nothing.
    eigen = jax.tree.map(np.asarray, eigen) if concrete else eigen
    values: Any = eigen.values
    first = values.imag >= 0  # Of a pair.
    if n is not None:
        n = as_count(n, "modes: n")
        if n > len(values) or (concrete and n > int(np.sum(first))):
            raise ModelError(f"modes: there are fewer than n = {n} modes")
    if not concrete:
        kept = jnp.flatnonzero(first, size=n, fill_value=0)
        return _modes(linearization, eigen, kept, jnp.arange(n) < jnp.sum(first), jnp)
    found = _modes(linearization, eigen, np.flatnonzero(first)[:n], None, np)
    return found if n is None else _with_arrays(found, jax.device_put)


def _modes(
    linearization: Linearization,
    eigen: Eigen,
    kept: Int[Numbers, "m"],
    present: Array | None,
    xp: Any,
) -> Modes:
    """Modes of the eigenvalues `kept`, NaN unless `present`. Default of the latter: all present.

    **Arguments:** `xp`: the library of the arrays, NumPy or `jax.numpy`.
    """

    def marked(x: Any) -> Any:
        if present is None:
            return x
        return jnp.where(jnp.broadcast_to(present, x.shape), x, jnp.nan)

    right: Any = eigen.right[:, kept]
    left = eigen.left[:, kept]
    n_p = len(linearization.coordinates)
    E = xp.asarray(linearization.directions.displacements)
    of = linearization.system, linearization.t, linearization.state
    parts = _shares(*of, *(E @ x[:n_p] for x in (right.real, right.imag)))
    real, imaginary, shares = parts if xp is jnp else jax.device_get(parts)
    mechanism = linearization.system.mechanism
    together = (lambda x, y: x + 1j * y) if xp is np else jax.lax.complex
    joints = _by_name(mechanism.joints, list(map(together, real, imaginary)))
    energies = _by_name(mechanism.bodies, shares)
    weights = xp.abs(right) * xp.abs(left)
    total = xp.sum(weights, axis=0)
    weights = weights / xp.where(total > 0, total, 1.0)[None]
    participation: dict[str, Any] = {}
    for name, row in zip(_owners(linearization), weights, strict=True):
        participation[name] = participation.get(name, xp.zeros_like(row)) + row
    same = eigen.cluster[:, None] == eigen.cluster[None]
    return Modes(
        marked(eigen.values[kept]),
        marked(right),
        {name: marked(x.T).T for name, x in joints.items()},
        {name: marked(x) for name, x in participation.items()},
        {name: marked(x) for name, x in energies.items()},
        (xp.sum(same, axis=1) > 1)[kept],
        linearization,
    )


def _with_arrays(modes: Modes, convert: Callable[[Any], Any]) -> Modes:
    """The same modes with converted arrays."""
    rest = modes.linearization
    own = jax.tree.map(convert, eqx.tree_at(lambda m: m.linearization, modes, None))
    return eqx.tree_at(lambda m: m.linearization, own, rest, is_leaf=lambda x: x is None)


def _owners(linearization: Linearization) -> list[str]:
    """Name of the joint or element of each state; an entry of v without one has its own name."""
    known: dict[str, str] = {}
    for group in linearization.system.mechanism.joints:
        nv = group.joint.sizes()[1]
        known |= {name: name for name in group.names}
        known |= {f"{name}[{i}]": name for name in group.names for i in range(nv)}
    own = [known.get(name, name) for name in linearization.coordinates]
    rates = [known.get(name, name) for name in linearization.velocities]
    places = linearization.system.mechanism.state_places
    return own + rates + [name for name, (_, count) in places.items() for _ in range(count)]


def _by_name(groups: Sequence[Any], parts: Sequence[Any]) -> dict[str, Any]:
    """Rows of arrays of groups, shape `(m, n, …)`, by the names of the n members."""
    each = zip(groups, parts, strict=True)
    return {name: x[:, row] for group, x in each for row, name in enumerate(group.names)}


@stored
@with_room
def _shares(
    system: AbstractSystem,
    t: Time,
    state: State,
    real: Float[Array, "nv m"],
    imaginary: Float[Array, "nv m"],
) -> tuple[list[Array], list[Array], list[Array]]:
    """Amplitudes of joints, real and imaginary ones, and shares of bodies in the kinetic energy.

    Each by groups, shapes `(m, n, nv)` and `(m, n)`.

    **Arguments:** `real`, `imaginary`: parts of displacements.
    """
    of_part = jax.vmap(partial(kernel(_rates_and_energies), system, t, state))
    rates, energies = of_part(jnp.concatenate([real, imaginary], axis=1).T)
    m = real.shape[1]
    sums = [x[:m] + x[m:] for x in energies]
    total = sum(jnp.sum(part, axis=1) for part in sums)
    total = jnp.where(total > 0, total, 1.0)
    shares = [part / total[:, None] for part in sums]
    return [x[:m] for x in rates], [x[m:] for x in rates], shares


def _rates_and_energies(
    system: AbstractSystem, t: Time, state: State, v: Velocities
) -> tuple[list[Array], list[Float[Array, "n"]]]:
    """Rates of joints at a state, and kinetic energies of bodies, by groups."""
    c, mechanism = system.configuration(t, state.q, state.z), system.mechanism
    twists, elastic = mechanism.body_ports.take(c.twists(v)), c.elastic_rates(v)
    energies = []
    for group in mechanism.bodies:
        args: tuple[Any, ...] = group.body, group.rows.take(twists)
        if isinstance(group.body, RigidBody):
            zeros = jnp.zeros((len(group.names), 0), dtype=v.dtype)
            args = group.body, zeros, args[1], zeros
        else:
            args = group.body, group.own(c.elastic), args[1], group.own(elastic)
        of_body = lambda body, *at: body.kinetic_energy(*at)  # noqa: E731
        energies.append(jax.vmap(of_body)(*args))
    return [*c.joint_rates(v)], energies
