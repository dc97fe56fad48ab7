"""Joint coordinates by a velocity transformation of another formulation.

Source: Attia, "equivalent particles", section 6; equation numbers in parentheses refer to it.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import ModelError
from ..joints import Free
from ..linear import solve_spd
from ..mechanism.groups import IndexSet
from ..mechanism.lowering import lower
from ..mechanism.mechanism import Mechanism
from ..model import Model
from ..system.abstract import AbstractFormulation, AbstractSystem, Elastic, State, Time
from ..system.acceleration import correction, general_free_accelerations
from ..system.reactions import reactions_of_motion
from ..system.sizes import is_checked
from .formulate import system_of
from .joint.system import JointSystem
from .joint.tree_configuration import JointConfiguration, split
from .joint.tree_recursion import Layout, lay_out
from .nodal.planar import PlanarPointSystem
from .nodal.plane import PlanarJointSystem, check_plane, normal_of


class VelocityTransformation(AbstractFormulation):
    """Joint coordinates whose equations are transformed from those of another formulation.

    With velocities u = B(θ) θ̇, mass matrix M and bias b of the other formulation, M̄ = Bᵀ M B and
    b̄ = Bᵀ (b + M Ḃ θ̇), eq. (6.4). Joints that close loops are cut and become constraints, eq.
    (6.8). `JointCoordinates` has the same coordinates and equations and is much faster. Use this
    formulation to compare the two formulations.

    **Arguments:** `formulation`: a formulation with a constant mass matrix, such as
    `PointCoordinates()`.

    `formulate` **raises** `ModelError` for a formulation without a constant mass matrix, for free
    joints if the formulation has a plane, and for all causes of the formulation, applied to the
    mechanism with its loops cut.

    For example:

        formulation = mbd.VelocityTransformation(mbd.MaximalCoordinates())
        system = mbd.formulate(model, formulation)
    """

    formulation: Any

    def system(self, model: Model) -> "ReducedSystem":
        mechanism = lower(model)
        loops = mechanism.topology.loops
        cut = Model(
            bodies=model.bodies,
            joints={name: joint for name, joint in model.joints.items() if name not in loops},
            rotors=model.rotors,
        )
        full = system_of(self.formulation, cut)
        if not full.constant_mass:
            raise ModelError(
                f"VelocityTransformation needs a formulation with a constant mass matrix, not "
                f"{type(self.formulation).__name__}"
            )
        plane = full.plane if isinstance(full, PlanarPointSystem) else None
        if plane is not None:
            mechanism = check_plane(mechanism, plane)
            for group in mechanism.joints:
                if isinstance(group.joint, Free):
                    raise ModelError(
                        f"joint {group.names[0]!r} is free: its six coordinates leave the {plane} "
                        "plane; use a Planar joint in its place, or PointCoordinates alone"
                    )
        return ReducedSystem(mechanism, full, lay_out(mechanism), plane)


class ReducedSystem(AbstractSystem[JointConfiguration]):
    """Equations in joint coordinates, transformed from the system `full` with its loops cut.

    - `plane`: plane of the particles, or None.
    """

    mechanism: Mechanism
    full: AbstractSystem
    layout: Layout = eqx.field(static=True)
    plane: str | None = eqx.field(static=True)

    @property
    def joint(self) -> JointSystem:
        """The system of `JointCoordinates`, with the same coordinates and constraints."""
        if self.plane is not None:
            return PlanarJointSystem(self.mechanism, self.layout, self.plane)
        return JointSystem(self.mechanism, self.layout)

    @property
    def nq(self) -> int:
        return self.joint.nq

    @property
    def nv(self) -> int:
        return self.joint.nv

    @property
    def constrained(self) -> tuple[int, ...]:
        return self.joint.constrained

    def prepared(self) -> "ReducedSystem":
        return replace(self, full=self.full.prepared())

    def coordinates_in_words(self) -> list[str]:
        return self.joint.coordinates_in_words()

    def joint_velocities(self) -> dict[int, IndexSet] | None:
        return self.joint.joint_velocities()

    def quaternions(self) -> Int[np.ndarray, "k 4"]:
        return self.joint.quaternions()

    def periodic_coordinates(self) -> Bool[np.ndarray, "nq"]:
        return self.joint.periodic_coordinates()

    def sizes(self, length: Float[Array, ""]) -> tuple[Float[Array, "nq"], Float[Array, "nv"]]:
        return self.joint.sizes(length)

    def retract(self, q: Float[Array, "nq"], dv: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return self.joint.retract(q, dv)

    def rates(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return self.joint.rates(q, v)

    def velocities(self, q: Float[Array, "nq"], q_dot: Float[Array, "nq"]) -> Float[Array, "nv"]:
        return self.joint.velocities(q, q_dot)

    def configuration(
        self, t: Float[Array, ""], q: Float[Array, "nq"], z: Float[Array, "nz"] | None = None
    ) -> JointConfiguration:
        return self.joint.configuration(t, q, z)

    def from_tree(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        elastic: Float[Array, "n_elastic"] | None = None,
    ) -> Float[Array, "nq"]:
        return self.joint.from_tree(values, elastic)

    def from_tree_rates(
        self,
        values: tuple[Float[Array, "_n _nq"], ...],
        rates: tuple[Float[Array, "_n _nv"], ...],
        elastic: Elastic | None = None,
    ) -> Float[Array, "nv"]:
        return self.joint.from_tree_rates(values, rates, elastic)

    def internal_potential(self, q: Float[Array, "nq"]) -> Float[Array, ""]:
        return jnp.zeros((), dtype=q.dtype)

    def intrinsic_constraint(self, c: JointConfiguration) -> Float[Array, "n_intrinsic"]:
        return self.joint.intrinsic_constraint(c)

    def intrinsic_names(self) -> list[str]:
        return self.joint.intrinsic_names()

    def position(self, q: Float[Array, "nq"]) -> Float[Array, "_nq_full"]:
        """The coordinates of `full` at q."""
        return self.full.from_tree(self._of_tree(self.joint.values(q)))

    def transformed(self, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "_nv_full"]:
        """u = B(q) v, eq. (6.1)."""
        rates = split(self.mechanism, self.layout, v)
        return self.full.from_tree_rates(self._of_tree(self.joint.values(q)), self._of_tree(rates))

    def _of_tree(self, values: tuple[Array, ...]) -> tuple[Array, ...]:
        groups = self.mechanism.joints
        return tuple(x for group, x in zip(groups, values, strict=True) if group.in_tree)

    def _transformation(self, q: Float[Array, "nq"]) -> Float[Array, "_nv_full nv"]:
        units = jnp.eye(self.nv, dtype=q.dtype)
        return jax.vmap(lambda v: self.transformed(q, v), out_axes=1)(units)

    def mass_at(self, c: JointConfiguration) -> Float[Array, "nv nv"]:
        B = self._transformation(c.q)
        return B.T @ self.full.mass(self.position(c.q)) @ B

    def solve_mass(self, c: JointConfiguration, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return solve_spd(self.mass_at(c), f)

    def bias_at(self, c: JointConfiguration, v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        q = c.q
        x = self.position(q)
        # Eq. (6.4): u̇ = Ḃ v at v̇ = 0 is the derivative of B(q) v along q̇, at constant v.
        u, u_dot = jax.jvp(lambda q: self.transformed(q, v), (q,), (self.rates(q, v),))
        full = self.full.mass(x) @ u_dot + self.full.bias(x, u)
        return self._transformation(q).T @ full

    def own_free_accelerations(self, t: Time, state: State) -> Float[Array, "nv"]:
        """M⁻¹ (f - b); in single precision NaN if the residual of `JointSystem` shows an error."""
        vdot = general_free_accelerations(self, t, state)
        if not is_checked(vdot.dtype):
            return vdot
        c = self.configuration(t, state.q, state.z)
        # Both systems have the same equations; the residual of `JointSystem` costs no Bᵀ M B.
        _, holds = correction(self.joint, c, state.v, vdot)
        return vdot * jnp.where(holds, 1.0, jnp.nan).astype(vdot.dtype)

    def own_jacobian(self, c: JointConfiguration) -> Float[Array, "ng nv"] | None:
        return self.joint.own_jacobian(c)

    def own_row_lengths(
        self, c: JointConfiguration, B: Float[Array, "nv ng"]
    ) -> Float[Array, "ng"]:
        return self.joint.own_row_lengths(c, B)

    def own_sizes_of_possible_zeros(
        self, c: JointConfiguration, size: Float[Array, ""]
    ) -> Float[Array, "ng"]:
        return self.joint.own_sizes_of_possible_zeros(c, size)

    def own_reactions_of(
        self, t: Time, state: State, solved: tuple[Array, Array]
    ) -> dict[str, Float[Array, "6"]]:
        plane = None if self.plane is None else normal_of(self.plane, self.mechanism.dtype)
        return reactions_of_motion(self, t, state, solved, plane)
