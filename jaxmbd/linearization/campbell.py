"""Campbell diagrams: frequencies of vibration against the speed of rotation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Complex, Float

from ..errors import ModelError
from ..model.values import described, require_concrete
from ..motion.arguments import as_system
from ..motion.assemble import assemble
from ..programs import with_progress
from ..system.abstract import State, as_time
from .coordinates import coordinates_at
from .linearization import Linearization, check_state, linearized
from .root_locus import located, parameters_of


class Campbell(eqx.Module):
    """Modes of vibration at several speeds of rotation, the result of `campbell`.

    - `speeds`: Ω, shape `(k,)` [rad/s].
    - `eigenvalues`: of the m modes that oscillate at the last speed, shape `(k, m)`; a column
      follows one mode. Sorted by the frequency at the last speed.
    - `shapes`: shape `(k, n, m)`; `assurance`: see `RootLocus`, shape `(k, m)`.
    - `states`: names of the n states.
    """

    speeds: Float[np.ndarray, "k"]
    eigenvalues: Complex[np.ndarray, "k m"]
    shapes: Complex[np.ndarray, "k n m"]
    assurance: Float[np.ndarray, "k m"]
    states: tuple[str, ...] = eqx.field(static=True)

    @property
    def frequencies(self) -> Float[np.ndarray, "k m"]:
        """Im λ / 2π [Hz]."""
        return np.abs(np.imag(self.eigenvalues)) / (2 * np.pi)

    @property
    def damping_ratios(self) -> Float[np.ndarray, "k m"]:
        """-Re λ / abs(λ)."""
        return -np.real(self.eigenvalues) / np.abs(self.eigenvalues)

    def critical_speeds(self, order: float = 1.0) -> list[Float[np.ndarray, "c"]]:
        """Speeds at which a mode has `order` times the frequency of rotation, for each mode.

        Interpolated linearly between the given speeds.
        """
        critical = []
        for omega in np.abs(np.imag(self.eigenvalues)).T:
            ahead = omega - order * np.abs(self.speeds)
            (at,) = np.nonzero((ahead[:-1] > 0) != (ahead[1:] > 0))
            part = ahead[at] / (ahead[at] - ahead[at + 1])
            critical.append(self.speeds[at] + part * (self.speeds[at + 1] - self.speeds[at]))
        return critical

    def plot(self, orders: Sequence[float] = (1.0,)) -> Any:
        """Frequencies and damping ratios against the speed, with lines of multiples of it.

        Needs the extra `viz`. **Returns** a `matplotlib.figure.Figure`.
        """
        from ..viz.linearization_figures import plot_campbell

        return plot_campbell(self, orders)


@with_progress
def campbell(
    system: Any,
    speeds: Any,
    joint: str | Callable[[Array], State],
    *,
    guess: Mapping[str, Any] | None = None,
    t: float = 0.0,
    coordinates: Sequence[str] | None = None,
) -> Campbell:
    """Linearize a rotating mechanism at several speeds and follow its modes.

    Frequencies are those of the joint coordinates. If the joint of the rotation carries the rotor
    on its bearings, these coordinates do not rotate, and forward and backward whirl separate.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `speeds`: Ω, shape `(k,)` [rad/s].
    - `joint`: the joint that rotates, or a function from a speed to a `State`.
    - `guess`: as for `assemble`; `coordinates`: as for `linearize`.

    **Raises** `ModelError` for an unknown joint, for speeds that are not finite, under a
    transformation, and as `linearize`.

    For example:

        rotor = mbd.Model(
            bodies={
                "hub": mbd.inertia.principal(1.0, [0.15, 0.15, 0.02]),
                "disc": mbd.inertia.principal(1.0, [0.15, 0.15, 0.2]),
            },
            joints={
                "tilt": mbd.joints.Universal("ground", "hub", axis1=[1, 0, 0], axis2=[0, 1, 0]),
                "spin": mbd.joints.Revolute("hub", "disc", axis=[0, 0, 1]),
            },
            forces={"shaft": mbd.forces.TorsionalSpringDamper("tilt", 500.0)},
        )
        diagram = mbd.campbell(rotor, jnp.linspace(0.0, 100.0, 11), "spin")
        diagram.frequencies  # (11, 2) [Hz]
    """
    require_concrete("campbell", system)
    system = as_system(system, "campbell")
    parameters = parameters_of(speeds, "campbell: speeds").astype(system.mechanism.dtype)
    system, time = system.rigid(), as_time(t, system)
    if isinstance(joint, str):
        names = {name for group in system.mechanism.joints for name in group.names}
        if joint not in names:
            listed = ", ".join(map(repr, sorted(names)))
            raise ModelError(f"campbell: unknown joint {joint!r}; known are {listed}")
        name = joint

        def assembled(speed: Array) -> State:
            return assemble(system, guess, {name: speed}, time, (name,))

        state_at: Callable[[Array], State] = assembled
    elif isinstance(joint, type) or not callable(joint):
        raise ModelError(
            "campbell: joint must be the name of a joint, or a function from a speed to a State, "
            f"got {described(joint)}"
        )
    else:
        state_at = joint
    last = state_at(parameters[-1])
    check_state(system, time, last, "campbell")
    chosen = coordinates_at(system, time, last, coordinates, caller="campbell")

    def at(speed: Array) -> Linearization:
        return linearized(system, time, state_at(speed), chosen)

    batch = eqx.filter_jit(eqx.filter_vmap(at))(parameters)
    # From the last speed on, since modes of a symmetric rotor are clusters at rest.
    locus = located(parameters, batch, "campbell", backwards=True)
    final = locus.eigenvalues[-1]
    size = np.abs(final).max(initial=0.0)
    kept = np.flatnonzero(np.imag(final) > 1e-9 * size)
    kept = kept[np.argsort(np.imag(final)[kept], kind="stable")]
    return Campbell(
        np.asarray(parameters),
        locus.eigenvalues[:, kept],
        locus.shapes[:, :, kept],
        locus.assurance[:, kept],
        batch.states,
    )
