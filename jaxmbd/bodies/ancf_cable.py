"""A cable that bends far, by the absolute nodal coordinate formulation (ANCF).

Sources: Berzeri & Shabana (2000) for the gradient-deficient element; Gerstmayr & Irschik (2008) for
the curvature θ' instead of the geometric one.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..lie import Pose
from ..model.values import all_concrete, as_leaf, batched, negative, not_positive
from .abstract import AbstractBody

# Gauss points of an element for elongation, of degree 9, and for curvature, of degree 5.
N_AXIAL, N_BENDING = 5, 3


def _hermite(xi: np.ndarray) -> np.ndarray:
    """Cubic functions of (r₀, r₀', r₁, r₁') with ' = d/dξ, and derivatives, shape `(3, n, 4)`."""
    one, zero = np.ones_like(xi), np.zeros_like(xi)
    powers = np.stack(
        [
            np.stack([one, xi, xi**2, xi**3], axis=-1),
            np.stack([zero, one, 2 * xi, 3 * xi**2], axis=-1),
            np.stack([zero, zero, 2 * one, 6 * xi], axis=-1),
        ]
    )
    return powers @ np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-3, -2, 3, -1], [2, 1, -2, 1.0]])


def _gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in [0, 1] and weights."""
    x, w = np.polynomial.legendre.leggauss(n)
    return 0.5 * (1.0 + x), 0.5 * w


class ANCFCable(AbstractBody):
    """A cable or slender rod that may bend and stretch far, along x of its frame if undeformed.

    Elements are cubic in space. Their nodes have positions r and slopes r' = dr/ds; the frame of
    the body is at the first node, with x along the slope there. Elastic coordinates [m] are the
    stretch of the first slope, and differences of positions and slopes of the other nodes from
    those of the straight cable, slopes times the length of an element. With ε = abs(r') - 1 and
    κ = r' × r'' / abs(r')², the elastic energy is

        U = ½ ∫ EA ε² + EI κ · κ ds

    The cable does not twist. Sections have no shear and no rotary inertia, but the cable as a whole
    has the spin inertia of its sections about x of its frame. The mass matrix of r and r' is
    constant. Loads stiffen the cable by its geometry. Nodes are named `"base"` and `"tip"`, or by
    their rows 0 … `n_elements`; frames turn with the slope, without twist from node to node.

    **Arguments:**

    - `length`: of the undeformed cable [m].
    - `EA`, `EI`: stiffness against elongation [N] and bending [N m²]. E I of a thin cable is
      small, not zero.
    - `mass_per_length` [kg/m].
    - `n_elements`: of equal length. An element should bend by less than half a radian.
    - `planar`: whether the cable bends only in the x-z plane of its frame, with 4 instead of 6
      elastic coordinates for each element.
    - `damping`: β [s] of stresses EA (ε + β dε/dt) and EI (κ + β dκ/dt).

    Use implicit integrators, such as `GeneralizedAlpha`: elongation has high frequencies.

    **Raises** `ModelError` for a number of elements below 1. `Model` raises it for other values
    that are not positive, and for negative damping.
    """

    length: Float[Array, ""]
    EA: Float[Array, ""]
    EI: Float[Array, ""]
    mass_per_length: Float[Array, ""]
    damping: Float[Array, ""]
    n_elements: int = eqx.field(static=True)
    planar: bool = eqx.field(static=True)

    def __init__(
        self,
        length: Any,
        EA: Any,
        EI: Any,
        mass_per_length: Any,
        n_elements: int = 8,
        planar: bool = False,
        damping: Any = 0.0,
    ):
        caller = "ANCFCable"
        self.length = as_leaf(length, (), f"{caller}: length")
        self.EA, self.EI = as_leaf(EA, (), f"{caller}: EA"), as_leaf(EI, (), f"{caller}: EI")
        self.mass_per_length = as_leaf(mass_per_length, (), f"{caller}: mass_per_length")
        self.damping = as_leaf(damping, (), f"{caller}: damping")
        if n_elements < 1:
            raise ModelError(f"{caller}: n_elements must be positive, got {n_elements}")
        self.n_elements, self.planar = int(n_elements), bool(planar)

    @property
    def n_elastic(self) -> int:
        return 1 + self.n_elements * (4 if self.planar else 6)

    def nodal(self, eta: Float[Array, "k"]) -> Float[Array, "n_nodes 2 3"]:
        """Positions, and slopes times the length of an element, of the nodes [m]."""
        straight = jnp.asarray(_straight(self.n_elements), eta.dtype)
        return self._element_length(eta) * straight + self._displacements(eta)

    def kinetic_energy(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, ""]:
        w = self._velocities(eta, V, eta_dot)
        return 0.5 * jnp.sum(w * self._weighted(w)) + 0.5 * self._spin(eta) * V[3] ** 2

    def inertial_force(
        self, eta: Float[Array, "k"], u: Float[Array, "6+k"], u_dot: Float[Array, "6+k"]
    ) -> Float[Array, "6+k"]:
        # d'Alembert: nodal coordinates are accelerated by ẇ + ω × w.
        def velocities(eta: Array, u: Array) -> Array:
            return self._velocities(eta, u[:6], u[6:])

        w, rates = jax.jvp(velocities, (eta, u), (u[6:], u_dot))
        F = self._weighted(rates + jnp.cross(u[None, None, 3:6], w))
        spin, axis = self._spin(eta), jnp.eye(1, 3, dtype=eta.dtype)[0]
        torque = jnp.sum(jnp.cross(self.nodal(eta), F), axis=(0, 1))
        torque = torque + spin * (u_dot[3] * axis + u[3] * jnp.cross(u[3:6], axis))
        (elastic,) = jax.linear_transpose(self._displacements, eta)(F)
        return jnp.concatenate([jnp.sum(F[:, 0], axis=0), torque, elastic])

    def _velocities(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "n_nodes 2 3"]:
        """Velocities of the nodal coordinates, along the axes of the body.

        They are interpolated as positions are: Hermite's functions have constants exactly.
        """
        w = jnp.cross(V[None, None, 3:], self.nodal(eta)) + self._displacements(eta_dot)
        of_positions = jnp.asarray(np.eye(1, 2).reshape(1, 2, 1), dtype=w.dtype)
        return w + of_positions * V[None, None, :3]

    def _weighted(self, w: Float[Array, "n_nodes 2 3"]) -> Float[Array, "n_nodes 2 3"]:
        """The mass matrix of the nodal coordinates times w, element by element."""
        unit = jnp.asarray(_unit_mass(), dtype=w.dtype)
        mass = self.mass_per_length.astype(w.dtype) * self._element_length(w)
        return mass * _of_nodes(jnp.einsum("ab,ebi->eai", unit, _ends(w)))

    def _spin(self, like: Array) -> Float[Array, ""]:
        """Spin inertia about x: I/A = EI/EA for a homogeneous section, and twice about the axis."""
        mass = self.mass_per_length.astype(like.dtype) * self.length.astype(like.dtype)
        return 2.0 * mass * (self.EI / self.EA).astype(like.dtype)

    def elastic_energy(self, eta: Float[Array, "k"]) -> Float[Array, ""]:
        axial, bending = self._stiffnesses(eta)
        elongation, curvature = self._strains(eta)
        squares = jnp.sum(curvature**2, axis=2)
        return 0.5 * (jnp.sum(axial * elongation**2) + jnp.sum(bending * squares))

    def damping_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        """Force of the stresses β EA dε/dt and β EI dκ/dt.

        dκ/dt is relative to an axis system that follows the slope without spin about it.
        """
        beta = self.damping.astype(eta.dtype)
        _, rates = self._strains_and_rates(eta, eta_dot)
        return self._force_of(eta, *(beta * x for x in rates))

    def internal_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        beta = self.damping.astype(eta.dtype)
        strains, rates = self._strains_and_rates(eta, eta_dot)
        return self._force_of(eta, *(x + beta * y for x, y in zip(strains, rates, strict=True)))

    def _strains_and_rates(
        self, eta: Float[Array, "k"], rates: Float[Array, "k"]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """ε and κ, and their rates, κ relative to an axis system that follows the slope."""
        strains, strain_rates = jax.jvp(self._strains, (eta,), (rates,))
        if self.planar:  # κ is normal to the plane, about which the axis system turns.
            return strains, strain_rates
        tangent, t_dot = jax.jvp(self._tangents, (eta,), (rates,))
        spin = jnp.cross(tangent, t_dot)
        return strains, (strain_rates[0], strain_rates[1] - jnp.cross(spin, strains[1]))

    def _force_of(
        self,
        eta: Float[Array, "k"],
        elongation: Float[Array, "n_elements a"],
        curvature: Float[Array, "n_elements b r"],
    ) -> Float[Array, "k"]:
        """Force of the stresses EA ε and EI κ: their power by rates of strains and curvatures.

        By hand, element by element: derivatives of the energy of the whole cable, and their
        derivatives, have several times the operations.
        """
        h = self._element_length(eta)
        axial, bending = self._stiffnesses(eta)
        (slope, _), (at, bend) = (self._derivatives(eta, n) for n in (N_AXIAL, N_BENDING))
        tension = axial * elongation / (h * jnp.linalg.norm(slope, axis=2))
        squares = jnp.sum(at**2, axis=2, keepdims=True)
        moment = bending[..., None] * curvature / (h * squares)
        own = _wedge(at, bend)
        # κ = at × bend / (h at²); the last term turns κ with the slope, zero for moments along κ.
        by_at = -_turned(moment, bend)
        by_at = by_at - 2.0 * at * jnp.sum(moment * own, axis=2, keepdims=True) / squares
        if not self.planar:
            by_at = by_at + jnp.cross(at, jnp.cross(own, moment)) / squares
        _, first, _ = (jnp.asarray(x, eta.dtype) for x in _hermite(_gauss(N_AXIAL)[0]))
        _, at_bend, second = (jnp.asarray(x, eta.dtype) for x in _hermite(_gauss(N_BENDING)[0]))
        F = jnp.einsum("ga,egi->eai", first, tension[..., None] * slope)
        F = F + jnp.einsum("ga,egi->eai", at_bend, by_at)
        F = F + jnp.einsum("ga,egi->eai", second, _turned(moment, at))
        nodal = _of_nodes(F)
        return jnp.concatenate([nodal[0, 1, :1], nodal[1:].ravel()])

    def strains(
        self, eta: Float[Array, "k"]
    ) -> tuple[Float[Array, "n_elements a"], Float[Array, "n_elements b 3"]]:
        """ε and κ [1/m], along the body's axes, each at its own Gauss points."""
        elongation, curvature = self._strains(eta)
        if self.planar:
            curvature = curvature * jnp.eye(1, 3, 1, dtype=eta.dtype)[None]
        return elongation, curvature

    def _strains(
        self, eta: Float[Array, "k"]
    ) -> tuple[Float[Array, "n_elements a"], Float[Array, "n_elements b r"]]:
        """The same as `strains`, but for planar cables κ has only its component along y."""
        h = self._element_length(eta)
        (slope, _), (at, bend) = (self._derivatives(eta, n) for n in (N_AXIAL, N_BENDING))
        elongation = jnp.linalg.norm(slope, axis=2) / h - 1.0
        squares = jnp.sum(at**2, axis=2, keepdims=True)
        return elongation, _wedge(at, bend) / (h * squares)

    def centre_line(
        self, eta: Float[Array, "k"], n: int
    ) -> tuple[Float[Array, "m 3"], Float[Array, "m 3 3"]]:
        """Positions and rotations, with x along the slope, at m = 1 + n `n_elements` points.

        The points divide each element into n equal parts; they are in the frame of the body.
        """
        nodal = self.nodal(eta)
        ends = jnp.concatenate([nodal[:-1], nodal[1:]], axis=1)
        values, first, _ = (jnp.asarray(x, eta.dtype) for x in _hermite(np.arange(n) / n))
        p = jnp.einsum("ga,eai->egi", values, ends).reshape(-1, 3)
        slopes = jnp.einsum("ga,eai->egi", first, ends).reshape(-1, 3)
        p, slopes = (jnp.concatenate([x, nodal[-1:, i]]) for i, x in enumerate((p, slopes)))
        return p, self._rotations(slopes)

    def node_row(self, node: str | int | None) -> int:
        names = {"base": 0, "tip": self.n_elements}
        if isinstance(node, str) and node in names:
            return names[node]
        if isinstance(node, int) and 0 <= node <= self.n_elements:
            return node
        raise ModelError(
            "a frame on a cable names its node: 'base', 'tip' or a row from 0 to "
            f"{self.n_elements}, got {node!r}"
        )

    def node_pose(self, row: int) -> Pose:
        p = self._element_length(self.length) * row * jnp.eye(1, 3, dtype=self.length.dtype)[0]
        return Pose(p, jnp.eye(3, dtype=p.dtype))

    def frame_at_node(self, row: Any, offset: Pose, eta: Float[Array, "k"]) -> Pose:
        nodal, arm = self.nodal(eta), self._arm(row, offset, eta)
        p = self._at_node(row, nodal[:, 0])
        if self.planar:
            R = self._rotation_in_plane(self._at_node(row, nodal[:, 1]))
        else:
            R = self._at_node(row, self._rotations(nodal[:, 1]))
        return Pose(p + R @ arm, R @ offset.R)

    def twist_at_node(
        self, row: Any, offset: Pose, eta: Float[Array, "k"], rates: Float[Array, "k"]
    ) -> Float[Array, "6"]:
        if not self.planar:
            return super().twist_at_node(row, offset, eta, rates)
        # By hand: configurations need it for many velocities, and its derivatives.
        velocity, rate = self._at_node(row, self._displacements(rates))
        slope = self._at_node(row, self.nodal(eta)[:, 1])
        omega = jnp.cross(slope, rate) / (slope @ slope)
        R = self._rotation_in_plane(slope)
        v = velocity + jnp.cross(omega, R @ self._arm(row, offset, eta))
        return jnp.concatenate([v @ R @ offset.R, omega @ R @ offset.R])

    def _at_node(self, row: Any, x: Float[Array, "n_nodes ..."]) -> Float[Array, "..."]:
        """The value of a node by a product: no code is generated for transposes of a gather.

        Row -1 is the frame of the body, to which a body without joints is free; as is row 0.
        """
        row = jnp.maximum(jnp.asarray(row), 0)
        rows = jnp.arange(self.n_elements + 1, dtype=row.dtype)
        return jnp.tensordot((rows == row).astype(x.dtype), x, 1)

    def _arm(self, row: Any, offset: Pose, eta: Float[Array, "k"]) -> Float[Array, "3"]:
        """Position of a frame relative to its node at η = 0."""
        along = self._element_length(eta) * jnp.maximum(jnp.asarray(row), 0).astype(eta.dtype)
        return offset.p - along * jnp.eye(1, 3, dtype=eta.dtype)[0]

    def _rotation_in_plane(self, slope: Float[Array, "3"]) -> Float[Array, "3 3"]:
        """The rotation about y with x along the slope."""
        tangent, across = slope / jnp.linalg.norm(slope), jnp.eye(3, dtype=slope.dtype)[1]
        return jnp.stack([tangent, across, jnp.cross(tangent, across)], axis=1)

    def _rotations(self, slopes: Float[Array, "m 3"]) -> Float[Array, "m 3 3"]:
        """Rotations with x along the slopes, without twist from one to the next."""
        if self.planar:
            return jax.vmap(self._rotation_in_plane)(slopes)
        tangents = slopes / jnp.linalg.norm(slopes, axis=1, keepdims=True)
        eye = jnp.eye(3, dtype=slopes.dtype)
        turns = jax.vmap(_shortest_turn)(tangents[:-1], tangents[1:])
        # From the base to the tip: the last turn is on the left.
        later = jax.lax.associative_scan(lambda a, b: b @ a, turns)
        return jnp.concatenate([eye[None], later])

    def is_concrete(self) -> bool:
        return all_concrete(self)

    def is_possible(self) -> Bool[Array, ""]:
        values = jnp.stack([self.length, self.EA, self.EI, self.mass_per_length])
        return jnp.all(values > 0) & (self.damping >= 0)

    def inequalities(self) -> dict[str, AbstractBody]:
        signs = {"length": ">", "EA": ">", "EI": ">", "mass_per_length": ">", "damping": ">="}
        return {
            f"{name} {sign} 0": self._coefficients(**{name: np.ones_like(getattr(self, name))})
            for name, sign in signs.items()
        }

    def validate(self) -> str | None:
        problem = batched(self, "length") or not_positive(
            self, "length", "EA", "EI", "mass_per_length"
        )
        return problem or negative(self, "damping")

    def _element_length(self, like: Array) -> Float[Array, ""]:
        return (self.length / self.n_elements).astype(like.dtype)

    def _displacements(self, eta: Float[Array, "k"]) -> Float[Array, "n_nodes 2 3"]:
        """The part of the nodal coordinates that is linear in η."""
        own = self._own_displacements(eta)
        if not self.planar:
            return own
        return jnp.concatenate([own[..., :1], jnp.zeros_like(own[..., :1]), own[..., 1:]], axis=2)

    def _own_displacements(self, eta: Float[Array, "k"]) -> Float[Array, "n_nodes 2 d"]:
        """The same, with the d = 2 components along x and z if planar."""
        d = 2 if self.planar else 3
        zeros = jnp.zeros(d, eta.dtype)
        return jnp.concatenate([zeros, eta[:1], zeros[1:], eta[1:]]).reshape(-1, 2, d)

    def _derivatives(
        self, eta: Float[Array, "k"], n: int
    ) -> tuple[Float[Array, "n_elements n d"], Float[Array, "n_elements n d"]]:
        """First and second derivatives of the centre line by ξ of the elements at n points.

        d = 2 components, along x and z, of planar cables.
        """
        axes = np.array([0, 2]) if self.planar else np.arange(3)
        straight = jnp.asarray(_straight(self.n_elements)[..., axes], eta.dtype)
        ends = _ends(self._element_length(eta) * straight + self._own_displacements(eta))
        _, first, second = (jnp.asarray(x, dtype=eta.dtype) for x in _hermite(_gauss(n)[0]))
        return jnp.einsum("ga,eai->egi", first, ends), jnp.einsum("ga,eai->egi", second, ends)

    def _tangents(self, eta: Float[Array, "k"]) -> Float[Array, "n_elements b 3"]:
        slope, _ = self._derivatives(eta, N_BENDING)
        return slope / jnp.linalg.norm(slope, axis=2, keepdims=True)

    def _stiffnesses(
        self, eta: Float[Array, "k"]
    ) -> tuple[Float[Array, "1 a"], Float[Array, "1 b"]]:
        """EA and EI times weights of Gauss points and the length of an element."""
        h = self._element_length(eta)
        weights = (jnp.asarray(_gauss(n)[1], dtype=eta.dtype)[None] for n in (N_AXIAL, N_BENDING))
        axial, bending = weights
        return self.EA.astype(eta.dtype) * h * axial, self.EI.astype(eta.dtype) * h * bending


def _straight(n_elements: int) -> np.ndarray:
    """Nodal coordinates of the straight cable in lengths of an element, `(n_nodes, 2, 3)`."""
    straight = np.zeros((n_elements + 1, 2, 3))
    straight[:, 0, 0], straight[:, 1, 0] = np.arange(n_elements + 1), 1.0
    return straight


def _unit_mass() -> np.ndarray:
    """∫ of products of the functions of an element, in lengths of an element, shape `(4, 4)`."""
    xi, weights = _gauss(4)
    values = _hermite(xi)[0]
    return np.einsum("g,ga,gb->ab", weights, values, values)


def _ends(nodal: Float[Array, "n_nodes 2 d"]) -> Float[Array, "n_elements 4 d"]:
    """Coordinates of the two nodes of each element."""
    return jnp.concatenate([nodal[:-1], nodal[1:]], axis=1)


def _of_nodes(F: Float[Array, "n_elements 4 d"]) -> Float[Array, "n_nodes 2 d"]:
    """Sums over the elements of each node; the transpose of `_ends`."""
    return jnp.pad(F[:, :2], ((0, 1), (0, 0), (0, 0))) + jnp.pad(F[:, 2:], ((1, 0), (0, 0), (0, 0)))


def _wedge(a: Float[Array, "... d"], b: Float[Array, "... d"]) -> Float[Array, "... r"]:
    """a × b; in the x-z plane its only component, which is along y."""
    if a.shape[-1] == 3:
        return jnp.cross(a, b)
    return a[..., 1:] * b[..., :1] - a[..., :1] * b[..., 1:]


def _turned(m: Float[Array, "... r"], a: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """m × a; in the x-z plane with m along y."""
    if a.shape[-1] == 3:
        return jnp.cross(m, a)
    return m * jnp.concatenate([a[..., 1:], -a[..., :1]], axis=-1)


def _shortest_turn(a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The rotation from one unit vector to another about their common normal."""
    w = jnp.cross(a, b)
    eye = jnp.eye(3, dtype=a.dtype)
    W = jnp.cross(w[None], eye).T
    return eye + W + W @ W / (1.0 + a @ b)
