"""The interface that formulations implement and that integrators and analyses use."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ModelError
from ..lie import Pose
from ..mechanism.groups import IndexSet
from ..mechanism.mechanism import Mechanism
from ..model.model import Model, as_own, unknown
from ..model.values import as_leaf
from ..programs import stored
from ..programs.tracing import kernel
from .configuration import AbstractConfiguration
from .sparsity import SparsityPattern

if TYPE_CHECKING:  # Python before 3.13 has no defaults of type variables.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from .acceleration import AbstractStabilization
    from .mass_and_energy import Momentum

    C = TypeVarWithDefault("C", bound=AbstractConfiguration, default=Any)
else:
    C = TypeVar("C", bound=AbstractConfiguration)
T = TypeVar("T")

Elastic = tuple[Float[Array, "n_elastic"], Float[Array, "n_elastic"]]
Time = Float[Array, ""]
Coordinates = Float[Array, "nq"]
Velocities = Float[Array, "nv"]
States = Float[Array, "nz"]


class State(eqx.Module):
    """Coordinates, velocities and first-order states of a system.

    - `q`: coordinates, shape `(nq,)`; `v`: velocities, shape `(nv,)`. The formulation defines their
      entries. `jaxmbd.assemble` computes a state from values of named joints, `joint_states` the
      values from a state.
    - `z`: first-order states of elements, shape `(nz,)`, such as the current of a motor;
      `element_states` reads them by name. Default: none, shape `(0,)`.

    For example:

        state = mbd.State(q=jnp.array([0.3]), v=jnp.array([0.0]))
    """

    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch nv"]
    z: Float[Array, "*batch nz"]

    def __init__(self, q: Any, v: Any, z: Any = None):
        q, v, z = (
            as_leaf(x, None, f"State: {name}") if isinstance(x, list | tuple | str) else x
            for name, x in (("q", q), ("v", v), ("z", z))
        )
        self.q, self.v = q, v
        self.z = _no_states(v) if z is None else z


def _no_states(v: Any) -> Array:
    """First-order states of a system without any, for velocities `v`."""
    try:
        return jnp.zeros((*jnp.shape(v)[:-1], 0), jnp.result_type(v))
    except (TypeError, ValueError) as error:
        raise ModelError(f"State: v must be numeric, got {v!r:.60}") from error


class AbstractByFrame(eqx.Module, Mapping[str, T]):
    """A mapping by the names of bodies, of marker frames and of the two frames of every joint.

    - `names`: of all rows, None for frames without a name.
    """

    names: eqx.AbstractVar[tuple[str | None, ...]]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name is not None)

    def __len__(self) -> int:
        return sum(name is not None for name in self.names)

    def row(self, name: str) -> int:
        """The row of a frame. **Raises** `KeyError` with the known names for another one."""
        if name not in self:
            raise KeyError(unknown("unknown frame", name, dict.fromkeys(self)))
        return self.names.index(name)

    def __contains__(self, name: object) -> bool:
        return name is not None and name in self.names


class NamedPoses(AbstractByFrame[Pose]):
    """Poses of named frames: `poses["rod"].p`, shape `(..., 3)`, and `.R`, shape `(..., 3, 3)`."""

    names: tuple[str | None, ...] = eqx.field(static=True)
    pose: Pose

    def __getitem__(self, name: str) -> Pose:
        row = self.row(name)
        return Pose(self.pose.p[..., row, :], self.pose.R[..., row, :, :])


class NamedTwists(AbstractByFrame[Array]):
    """Twists `[v, ω]` of named frames along their own axes: `twists["rod"]`, shape `(..., 6)`."""

    names: tuple[str | None, ...] = eqx.field(static=True)
    twist: Float[Array, "*batch n 6"]

    def __getitem__(self, name: str) -> Float[Array, "*batch 6"]:
        return self.twist[..., self.row(name), :]


class ArtificialEnergyLimit(NamedTuple):
    """A limit on the energy in the formulation's own springs.

    - `part`: the limit as a part of the largest kinetic energy of a motion.
    - `remedy`: the advice in messages if the energy exceeds the limit.
    """

    part: float
    remedy: str


class AbstractSystem(eqx.Module, Generic[C]):
    """Equations of motion of a mechanism in the coordinates of a formulation.

    q̇ = N(q) v,   M(q) v̇ + b(q, v) = f(t, q, v, z) + G(t, q)ᵀ λ,   0 = g(t, q)
    ż = r(t, q, v, z)
    """

    mechanism: eqx.AbstractVar[Mechanism]

    @property
    def constant_mass(self) -> bool:
        """True if M depends neither on q nor on t. Default: False."""
        return False

    @property
    def absolute(self) -> bool:
        """True if q are positions and quaternions of rigid bodies, and v twists. Default: False."""
        return False

    @property
    @abstractmethod
    def nq(self) -> int:
        """Number of coordinates."""

    @property
    @abstractmethod
    def nv(self) -> int:
        """Number of velocities."""

    @property
    @abstractmethod
    def constrained(self) -> tuple[int, ...]:
        """Groups of joints whose fixed relative motions are constraint equations."""

    @abstractmethod
    def retract(self, q: Coordinates, dv: Velocities) -> Coordinates:
        """q ⊞ δ: coordinates displaced by an increment `dv` in the space of the velocities.

        q ⊞ s v is the motion q̇ = N(q) v at constant v, to second order in s at least.
        """

    @abstractmethod
    def rates(self, q: Coordinates, v: Velocities) -> Coordinates:
        """q̇ = N(q) v."""

    @abstractmethod
    def velocities(self, q: Coordinates, q_dot: Coordinates) -> Velocities:
        """v of q̇ = N(q) v, the inverse of `rates`; linear in `q_dot`.

        If no v has these rates, the result is that of the nearest rates that have one.
        """

    @property
    def nz(self) -> int:
        """Number of first-order states."""
        return self.mechanism.n_states

    @abstractmethod
    def configuration(self, t: Time, q: Coordinates, z: States | None = None) -> C:
        """Poses of all ports and the maps from velocities. Forward kinematics run here only.

        **Arguments:** `z`: first-order states, required for loads of elements that have states.
        """

    @abstractmethod
    def mass_at(self, c: C) -> Float[Array, "nv nv"]:
        """Mass matrix M(q) [kg, kg m, kg m²]."""

    @abstractmethod
    def solve_mass(self, c: C, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        """M(q)⁻¹ f."""

    def apply_mass(self, c: C, v: Velocities) -> Velocities:
        """M(q) v, shape `(nv,)`."""
        return self.mass_at(c) @ v

    def inertial_terms(self, c: C, v: Velocities) -> Velocities:
        """Sums of the absolute terms of `apply_mass`, which scale its rounding errors.

        Terms that cancel within an entry of M count in full. Default: |M| |v|.
        """
        return jnp.abs(self.mass_at(c)) @ jnp.abs(v)

    def mass_factor(self, c: C) -> Any:
        """L of M(q) = L Lᵀ, in the form that `whiten` and `unwhiten` accept."""
        return jnp.linalg.cholesky(self.mass_at(c))

    def whiten(self, factor: Any, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        """L⁻¹ f, whose Euclidean norm is the norm of f in the metric M⁻¹."""
        return jsl.solve_triangular(factor, f, lower=True)

    def unwhiten(self, factor: Any, y: Float[Array, "nv"]) -> Velocities:
        """L⁻ᵀ y."""
        return jsl.solve_triangular(factor, y, trans=1, lower=True)

    @abstractmethod
    def bias_at(self, c: C, v: Velocities) -> Velocities:
        """Bias b(q, v): centrifugal, Coriolis and gyroscopic terms, and the gradient of
        `internal_potential`. Gravity is an applied force."""

    @abstractmethod
    def internal_potential(self, q: Coordinates) -> Float[Array, ""]:
        """Potential energy [J] of forces that the formulation itself adds."""

    @abstractmethod
    def intrinsic_constraint(self, c: C) -> Float[Array, "n_intrinsic"]:
        """Residual of the constraints between the coordinates themselves."""

    def intrinsic_rate(self, c: C, v: Velocities) -> Float[Array, "n_intrinsic"]:
        """Time derivative of `intrinsic_constraint`; linear in `v`."""
        if not self.intrinsic_names():
            return jnp.zeros(0, dtype=v.dtype)
        return jax.jvp(self._intrinsic, (c.t, c.q), (jnp.zeros_like(c.t), self.rates(c.q, v)))[1]

    def intrinsic_bias(
        self, c: C, v: Velocities, motion: tuple[Array, Array]
    ) -> Float[Array, "n_intrinsic"]:
        """Second time derivative of `intrinsic_constraint` at v̇ = 0.

        **Arguments:** `motion`: twists of all ports and their rates at v̇ = 0.
        """
        if not self.intrinsic_names():
            return jnp.zeros(0, dtype=v.dtype)

        def rate(q: Coordinates) -> Array:
            return jax.jvp(lambda q: self._intrinsic(c.t, q), (q,), (self.rates(q, v),))[1]

        return jax.jvp(rate, (c.q,), (self.rates(c.q, v),))[1]

    def _intrinsic(self, t: Time, q: Coordinates) -> Float[Array, "n_intrinsic"]:
        return self.intrinsic_constraint(self.configuration(t, q))

    @abstractmethod
    def intrinsic_names(self) -> list[str]:
        """Name of the component of each intrinsic constraint."""

    @abstractmethod
    def from_tree(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        elastic: Float[Array, "n_elastic"] | None = None,
    ) -> Coordinates:
        """Coordinates q at given coordinates of the spanning tree's joints, by group.

        Groups outside the tree have entries too, which are ignored.

        **Arguments:** `elastic`: elastic coordinates of the bodies. Default: zero.
        """

    @abstractmethod
    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Velocities:
        """Velocities v at given velocities of the spanning tree's joints, by group.

        **Arguments:** `elastic`: elastic coordinates of the bodies and their rates. Default: zero.
        """

    def prepared(self) -> "AbstractSystem":
        """The system with quantities that do not depend on the state computed in advance.

        The leaves of the result must not be replaced. Default: the system itself.
        """
        return self

    def sparsity_pattern(self) -> SparsityPattern | None:
        """Sparsity of the equations of motion and of the constraints; None if they are dense.

        The pattern is static and holds at one time and over a step. If there is a pattern, Newton's
        linear systems are solved by blocks. Default: None.
        """
        return None

    def loop_closure_system(self) -> "AbstractSystem":
        """The system in whose coordinates `assemble` closes loops. Default: the system itself.

        Another system must have the same mechanism. Its configuration gives the coordinates of the
        tree's joints, from which `from_tree` of this system computes q.
        """
        return self

    def rigid(self) -> "AbstractSystem":
        """The system with rigid bodies for artificial springs. Default: the system itself."""
        return self

    @property
    def artificial_energy_limit(self) -> ArtificialEnergyLimit | None:
        """Limit on `internal_potential`; None for a system without artificial springs.

        Default: None.
        """
        return None

    def coordinates_in_words(self) -> list[str]:
        """Meaning and units of q and v, line by line, for `inspect`."""
        return [f"those of {type(self).__name__}"]

    def periodic_coordinates(self) -> Bool[np.ndarray, "nq"]:
        """For each coordinate, whether values that differ by 2π are equivalent. Default: False."""
        return np.zeros(self.nq, dtype=bool)

    def joint_velocities(self) -> dict[int, IndexSet] | None:
        """Entries of v that are the velocities of the tree's joints, for each group of joints.

        None, the default, if the velocities are not those of joints.
        """
        return None

    def quaternions(self) -> Int[np.ndarray, "k 4"]:
        """Places of the quaternions in q, a row for each one. Default: none."""
        return np.zeros((0, 4), dtype=int)

    def sizes(self, length: Float[Array, ""]) -> tuple[Coordinates, Velocities]:
        """Large displacements: increments of each entry of q and of v that count as large.

        They are `length` [m] for displacements, 1 for angles and for entries of quaternions.
        Default: `length` for all of them.
        """
        return jnp.full(self.nq, length), jnp.full(self.nv, length)

    def displaced(self, state: State, change: Float[Array, "n"]) -> State:
        """A state displaced by increments of q (in the sense of `retract`), v and z.

        **Arguments:** `change`: the increments in this order, shape `(2 nv + nz,)`.
        """
        dq, dv, dz = jnp.split(change, [self.nv, 2 * self.nv])
        return State(self.retract(state.q, dq), state.v + dv, state.z + dz)

    # Own ways of a formulation to compute what a function of this folder computes for all systems
    # from the methods above: None for the general way of the function that the docstring names.
    # The choice may depend on the kinds of components and on the float type, but not on values,
    # which are traced.

    def own_motion_residual(
        self, c: C, v: Velocities, vdot: Velocities, lam: Float[Array, "ng"] | None
    ) -> Velocities | None:
        """Residual M v̇ + b - f - Gᵀ λ of the equations of motion; without Gᵀ λ if `lam` is None.

        Default: None, the general way of `residuals.motion_residual`, by the mass matrix.
        """
        return None

    def own_rest_residual(self, c: C, lam: Float[Array, "ng"] | None) -> Velocities | None:
        """Residual b - f - Gᵀ λ at v = v̇ = 0.

        Default: None, the general way of `residuals.rest_residual`, by that of a motion.
        """
        return None

    def own_rest_stiffness(self, c: C, lam: Float[Array, "ng"]) -> Float[Array, "nv nv"] | None:
        """Derivative of the residual at rest by displacements of q, in closed form.

        Default: None; `equilibrium` differentiates `residuals.rest_residual`.
        """
        return None

    def own_free_accelerations(self, t: Time, state: State) -> Velocities | None:
        """M⁻¹ (f - b), the accelerations of a system without constraints.

        Default: None, the general way of `acceleration.free_accelerations`, by the mass matrix.
        """
        return None

    def own_constrained_accelerations(
        self, t: Time, state: State, stabilization: "AbstractStabilization | None"
    ) -> tuple[Velocities, Float[Array, "ng"]] | None:
        """v̇ and λ of a system with constraints.

        Default: None, the general way of `acceleration.constrained_accelerations`, by G M⁻¹ Gᵀ.
        """
        return None

    def own_acceleration_derivatives(
        self, t: Time, state: State
    ) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"]] | None:
        """∂v̇/∂q and ∂v̇/∂v in closed form.

        Default: None; `acceleration_derivatives` differentiates `accelerations`.
        """
        return None

    def own_reactions_of(
        self, t: Time, state: State, solved: tuple[Velocities, Float[Array, "ng"]]
    ) -> dict[str, Float[Array, "6"]] | None:
        """Reactions of all joints by name, as `jaxmbd.reactions` returns them.

        Default: None, the general way of `reactions.reactions_of`, by multipliers of all joints.

        **Arguments:** `solved`: v̇ and λ of the state.
        """
        return None

    def own_kinetic_energy(self, c: C, v: Velocities) -> Float[Array, ""] | None:
        """Kinetic energy [J].

        Default: None, the general way of `energy.kinetic_energy`, by the twists of bodies.
        """
        return None

    def own_momentum_at(self, c: C, v: Velocities) -> "Momentum | None":
        """Momentum of all bodies about the world's origin.

        Default: None, the general way of `energy.momentum_at`, by the twists of bodies.
        """
        return None

    def own_port_accelerations(self, c: C, v: Velocities) -> Float[Array, "n_ports 6"] | None:
        """Rates of the port twists at v̇ = 0.

        Default: None, the general way of `constraints.port_accelerations`, by differentiation.
        """
        return None

    def own_jacobian(self, c: C) -> Float[Array, "ng nv"] | None:
        """Constraint Jacobian G(t, q).

        Default: None, the general way of `constraints.jacobian`, by transposed velocity maps.
        """
        return None

    def own_possibly_redundant(self) -> Bool[np.ndarray, "ng"] | None:
        """Mask of the constraint rows that may depend on other rows.

        Default: None, the rows of `constraints.possibly_redundant`: loops, couplings and drivers.
        """
        return None

    def own_sizes_of_possible_zeros(
        self, c: C, size: Float[Array, ""]
    ) -> Float[Array, "ng"] | None:
        """Sizes of constraint residuals whose rows of G may be zero; 0 for others.

        Formulations without constraint equations for all joints override it: the tree alone may
        satisfy a row, whose derivatives are then rounding errors relative to these sizes.
        Default: None, zeros as in `sizes.sizes_of_possible_zeros`.

        **Arguments:** `size`: size of the mechanism [m].
        """
        return None

    def own_row_lengths(self, c: C, B: Float[Array, "nv ng"]) -> Float[Array, "ng"] | None:
        """Lengths of the rows of G in the metric M⁻¹, each row by itself, from B = L⁻¹ Gᵀ.

        Formulations without constraint equations for all joints override it, since a row of theirs
        may consist of rounding errors. Default: None, the norms of the columns of B, as in
        `saddle_point.row_lengths`.
        """
        return None

    def mass(self, q: Coordinates) -> Float[Array, "nv nv"]:
        """Mass matrix M(q) [kg, kg m, kg m²], shape `(nv, nv)`."""
        return _mass(self, _of_size(q, self, "q"))

    def bias(self, q: Coordinates, v: Velocities) -> Velocities:
        """Bias b(q, v), shape `(nv,)`: centrifugal, Coriolis and gyroscopic terms, and the gradient
        of `internal_potential`. Gravity is an applied force."""
        return _bias(self, _of_size(q, self, "q"), _of_size(v, self, "v"))

    def frames(self, t: float | Time, q: Coordinates) -> NamedPoses:
        """Poses in the world of bodies, marker frames and joint frames, by name."""
        return _frames(self, as_time(t, self), _of_size(q, self, "q"))

    def twists(self, t: float | Time, q: Coordinates, v: Velocities) -> NamedTwists:
        """Twists of bodies, marker frames and joint frames along their own axes, by name."""
        q, v = _of_size(q, self, "q"), _of_size(v, self, "v")
        return _twists(self, as_time(t, self), q, v)


@stored
@kernel
def _frames(system: AbstractSystem, t: Time, q: Coordinates) -> NamedPoses:
    return NamedPoses(pose=system.configuration(t, q).ports, names=system.mechanism.port_names)


@stored
@kernel
def _twists(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> NamedTwists:
    return NamedTwists(
        twist=system.configuration(t, q).twists(v), names=system.mechanism.port_names
    )


@stored
@kernel
def _mass(system: AbstractSystem, q: Coordinates) -> Float[Array, "nv nv"]:
    return system.mass_at(system.configuration(as_time(0.0, system), q))


@stored
@kernel
def _bias(system: AbstractSystem, q: Coordinates, v: Velocities) -> Velocities:
    return system.bias_at(system.configuration(as_time(0.0, system), q), v)


def _of_size(x: Any, system: AbstractSystem, name: str) -> Array:
    """Coordinates q or velocities v in the system's float type.

    **Raises** `ModelError` for another shape.
    """
    size = system.nq if name == "q" else system.nv
    array = x if isinstance(x, State) else as_own(x, system, name)
    if isinstance(array, State) or array.shape != (size,):
        shape = "a State" if isinstance(array, State) else f"shape {array.shape}"
        raise ModelError(
            f"{name} must have shape ({size},), got {shape}; use vmap for a batch of states"
        )
    return array


@stored
def reference_values(mechanism: Mechanism) -> tuple[Float[Array, "_n _nq"], ...]:
    """Zero coordinates of every joint, by group."""
    return tuple(
        jax.vmap(lambda joint: joint.zero())(group.joint).astype(mechanism.dtype)
        for group in mechanism.joints
    )


class AbstractFormulation(eqx.Module):
    """Settings of a formulation, from which `formulate` makes the system of a model."""

    @abstractmethod
    def system(self, model: Model) -> AbstractSystem:
        """The equations of motion of a model whose floats have one type.

        **Raises** `ModelError`, naming the component, if the formulation cannot represent it.
        """


def require_system(system: Any) -> None:
    """Check that a value is a system.

    **Raises** `ModelError` if not, for a batch of systems, and for float types below float32.
    """
    if not isinstance(system, AbstractSystem):
        what = "the class " + system.__name__ if isinstance(system, type) else type(system).__name__
        raise ModelError(
            f"a system of `formulate` is needed, got {what}; arguments come in the order system, "
            "t, state"
        )
    p = system.mechanism.offsets.p
    if p.ndim != 2:
        raise ModelError(
            f"the system is a batch of {p.shape[0]} systems; call the function under jax.vmap, "
            "whose argument is the batch"
        )
    if jnp.finfo(p.dtype).bits < 32:
        raise ModelError(f"the system is of {p.dtype}; use float32, by `formulate(model, ...)`")


def as_time(t: Any, system: AbstractSystem, name: str = "t, a time,") -> Time:
    """Convert `t` to a strongly typed scalar of the system's float type; `name` is for messages.

    **Raises** `ModelError` for anything but numbers, and for anything but a system.
    """
    require_system(system)
    try:
        if isinstance(t, str | bytes) or jnp.iscomplexobj(t):  # NumPy converts them.
            raise TypeError
        time = jnp.asarray(t, dtype=system.mechanism.dtype)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{name} must be a number [s], got {t!r:.60}; arguments come in the order system, t, "
            "state"
        ) from error
    if time.shape != ():
        raise ModelError(f"{name} must be a number [s], got shape {time.shape}; use vmap for many")
    return time


def as_state(state: Any, system: AbstractSystem, name: str = "state", batch: bool = False) -> State:
    """Convert a state, or a `batch` of states, to the system's float type; `name` is for messages.

    **Raises** `ModelError` for anything but a state, for a wider float type, whose digits would be
    lost, and for numbers of coordinates, velocities or first-order states other than those of the
    system.
    """
    require_system(system)
    if not isinstance(state, State):
        raise ModelError(
            f"{name} must be a State, such as `assemble(system, {{joint: coordinates}})` returns, "
            f"got a {type(state).__name__}"
        )
    own = {part: as_own(getattr(state, part), system, f"{name}.{part}") for part in "qvz"}
    if own["z"].shape[-1] != system.nz:
        names = ", ".join(map(repr, system.mechanism.state_places)) or "no element"
        raise ModelError(
            f"{name}.z has {own['z'].shape[-1]} first-order states, the system has {system.nz} "
            f"(of {names}); take a state of `assemble`, or State(q, v, z)"
        )
    shapes = {part: x.shape for part, x in own.items()}
    axes = own["q"].shape[:-1] if batch else ()
    needed = {"q": (*axes, system.nq), "v": (*axes, system.nv), "z": (*axes, system.nz)}
    if shapes != needed:
        part = next(part for part in "qvz" if shapes[part] != needed[part])
        raise ModelError(
            f"{name}.{part} has shape {shapes[part]}, this system needs {needed[part]}; compute "
            "the state by `assemble` with this system, use vmap for a batch of states"
        )
    return state if all(x is getattr(state, part) for part, x in own.items()) else State(**own)
