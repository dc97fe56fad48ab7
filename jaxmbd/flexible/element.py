"""Beam elements in space along x: shape functions, strains, and fields of first and second order.

A node has six degrees of freedom, displacement and rotation vector (u, θ). Shape functions of
bending are those of a Timoshenko beam without loads between its nodes (Friedman & Kosmatka 1993),
with Φ = 12 E I / (k G A L²); at Φ = 0 they are those of an Euler-Bernoulli beam.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

N_POINTS = 6  # Gauss points of an element: exact for displacements of second order, of degree 5.


class Material(eqx.Module):
    """Stiffness and inertia of a beam per unit length.

    - `stiffness`: E A, k G A along y and z, G J, E Iy, E Iz.
    - `inertia`: ρ A, ρ Iz (= ∫ρ y²), ρ Iy (= ∫ρ z²).
    - `phi`: Φ of bending along y and along z.
    """

    stiffness: Float[Array, "6"]
    inertia: Float[Array, "3"]
    phi: Float[Array, "2"]


class Fields(eqx.Module):
    """Fields of a beam at the Gauss points of its elements, for each of n shape functions.

    A point of the section with the coordinates y, z is at r + y D_y + z D_z.

    - `fields`: r, D_y, D_z, shape `(n_elements, N_POINTS, 3, n, 3)`.
    - `nodes`: r and rotation vector at the nodes, shape `(n_elements + 1, n, 6)`.
    - `end`: second order at the last node, or None.
    """

    fields: Float[Array, "n_elements n_points 3 n 3"]
    nodes: Float[Array, "n_nodes n 6"]
    end: "SecondOrder | None" = None


class SecondOrder(eqx.Module):
    """Displacements r₂, and rotations R₂ as matrices, of a node for each pair of mode shapes."""

    r: Float[Array, "n_pairs 3"]
    R: Float[Array, "n_pairs 3 3"]

    def turned(self, T: Float[Array, "3 3"]) -> "SecondOrder":
        """The same along other axes, given by T x."""
        return SecondOrder(self.r @ T.T, jnp.einsum("ij,pjk,lk->pil", T, self.R, T))


def gauss() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and weights on [0, 1], and the matrix of integrals from 0 to each point."""
    x, w = np.polynomial.legendre.leggauss(N_POINTS)
    x, w = 0.5 * (x + 1.0), 0.5 * w
    powers = np.arange(N_POINTS)
    monomials = x[:, None] ** powers
    integrals = x[:, None] ** (powers + 1) / (powers + 1)
    return x, w, integrals @ np.linalg.inv(monomials)


# Polynomials in ξ = x / L, lowest power first: deflection v by v1, L θ1, v2, L θ2 is
# (P + Φ Q) / (1 + Φ), and L θ is (S + Φ T) / (1 + Φ).
_P = np.array([[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1]], dtype=float)
_Q = np.array([[1, -1, 0, 0], [0, 0.5, -0.5, 0], [0, 1, 0, 0], [0, -0.5, 0.5, 0]])
_S = np.array([[0, -6, 6, 0], [1, -4, 3, 0], [0, 6, -6, 0], [0, -2, 3, 0]], dtype=float)
_T = np.array([[0, 0, 0, 0], [1, -1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=float)
_LINEAR = np.array([[1, -1, 0, 0], [0, 1, 0, 0]], dtype=float)
_OF_V, _OF_W = np.array([1, 5, 7, 11]), np.array([2, 4, 8, 10])
_SIGN = np.array([1.0, -1.0, 1.0, -1.0])  # w' = -θ_y.


def _tables(powers: np.ndarray) -> np.ndarray:
    """(u, L θ) by (u, L θ) of both ends: shape (5, n, 6, 12).

    The first is without bending, then P and Q along y, P and Q along z. `powers` are those of ξ or
    their derivatives, shape (n, 4).
    """
    tables = np.zeros((5, len(powers), 6, 12))
    for row in (0, 3):
        tables[0][:, row, [row, row + 6]] = powers @ _LINEAR.T
    for k, (deflection, rotation) in enumerate(((_P, _S), (_Q, _T))):
        tables[1 + k][:, 1, _OF_V] = powers @ deflection.T
        tables[1 + k][:, 5, _OF_V] = powers @ rotation.T
        tables[3 + k][:, 2, _OF_W] = _SIGN * (powers @ deflection.T)
        tables[3 + k][:, 4, _OF_W] = -_SIGN * (powers @ rotation.T)
    return tables


def interpolation(
    L: Float[Array, ""], phi: Float[Array, "2"], at: np.ndarray
) -> tuple[Float[Array, "n 6 12"], Float[Array, "n 6 12"]]:
    """(u, θ) and the strains (γ, κ) at ξ = `at` by the degrees of freedom (u1, θ1, u2, θ2).

    γ = u' - θ × e_x: elongation and shear; κ = θ': twist and curvatures.
    """
    powers = at[:, None] ** np.arange(4)
    slopes = np.arange(4) * at[:, None] ** np.maximum(np.arange(4) - 1, 0)
    mu = 1.0 / (1.0 + phi)
    weights = jnp.stack([jnp.ones_like(L), mu[0], mu[0] * phi[0], mu[1], mu[1] * phi[1]])
    lengths = jnp.concatenate([jnp.ones(3, dtype=L.dtype), L * jnp.ones(3, dtype=L.dtype)])
    scale = jnp.concatenate([lengths, lengths])[None] / lengths[:, None]
    N, slope = (
        jnp.tensordot(weights, jnp.asarray(_tables(x), dtype=L.dtype), 1) * scale[None]
        for x in (powers, slopes)
    )
    return N, slope / L - jnp.tensordot(N, jnp.asarray(_TURNED, dtype=L.dtype), ((1,), (1,))).mT


# θ × e_x in the rows of displacements: θ_z along y, -θ_y along z.
_TURNED = np.zeros((6, 6))
_TURNED[1, 5], _TURNED[2, 4] = 1.0, -1.0


def _inertia_fields(N: Float[Array, "*n 6 k"]) -> Float[Array, "*n 3 3 k"]:
    """First-order fields r, D_y = θ × e_y, D_z = θ × e_z from (u, θ)."""
    x, y, z = (N[..., 3 + i, :] for i in range(3))
    zero = jnp.zeros_like(x)
    of_y = jnp.stack([-z, zero, x], axis=-2)
    of_z = jnp.stack([y, -x, zero], axis=-2)
    return jnp.stack([N[..., :3, :], of_y, of_z], axis=-3)


def matrices(
    L: Float[Array, ""], material: Material
) -> tuple[Float[Array, "12 12"], Float[Array, "12 12"]]:
    """Stiffness and consistent mass matrix of an element of length L."""
    N, B = interpolation(L, material.phi, gauss()[0])
    w = L * jnp.asarray(gauss()[1], dtype=L.dtype)
    K = jnp.einsum("g,gsi,s,gsj->ij", w, B, material.stiffness, B)
    F = _inertia_fields(N)
    M = jnp.einsum("g,gfdi,f,gfdj->ij", w, F, material.inertia, F)
    return K, M


def assembled(
    n_elements: int, K: Float[Array, "12 12"], M: Float[Array, "12 12"]
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """Matrices of a straight beam of equal elements."""
    rows = 6 * np.arange(n_elements)[:, None] + np.arange(12)
    at = rows[:, :, None], rows[:, None, :]
    n = 6 * (n_elements + 1)

    def assemble(block: Array) -> Array:
        blocks = jnp.broadcast_to(block, (n_elements, 12, 12))
        return jnp.zeros((n, n), dtype=block.dtype).at[at].add(blocks)

    return assemble(K), assemble(M)


def _cumulative(
    rate: Float[Array, "n g *s"], L: Float[Array, ""]
) -> tuple[Float[Array, "n g *s"], Float[Array, "m *s"]]:
    """Integrals from the start of the beam to each Gauss point, and to each node."""
    _, w, integrals = (jnp.asarray(x, dtype=rate.dtype) for x in gauss())
    totals = L * jnp.tensordot(rate, w, axes=((1,), (0,)))
    starts = jnp.concatenate([jnp.zeros_like(totals[:1]), jnp.cumsum(totals, axis=0)])
    within = L * jnp.moveaxis(jnp.tensordot(integrals, rate, axes=((1,), (1,))), 0, 1)
    return starts[:-1, None] + within, starts


def _hat(w: Float[Array, "*n 3"]) -> Float[Array, "*n 3 3"]:
    x, y, z = w[..., 0], w[..., 1], w[..., 2]
    zero = jnp.zeros_like(x)
    rows = [[zero, -z, y], [z, zero, -x], [-y, x, zero]]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def _vee(W: Float[Array, "*n 3 3"]) -> Float[Array, "*n 3"]:
    parts = [W[..., i, j] - W[..., j, i] for i, j in ((2, 1), (0, 2), (1, 0))]
    return 0.5 * jnp.stack(parts, axis=-1)


def beam_fields(
    shapes: Float[Array, "n_nodes 6 k"],
    L: Float[Array, ""],
    phi: Float[Array, "2"],
    second_order: bool,
    start: SecondOrder | None = None,
) -> Fields:
    """Fields of a straight beam along x for ψ₀, k mode shapes and, if asked, their pairs.

    The strains (γ, κ) are linear in η. The position and the rotation R of a section follow from
    r' = R (e_x + γ) and R' = R κ̂, here to second order in η:

        R₂ = R₂₀ + ∫ θ̂ κ̂ dx,   r₂ = r₂₀ + ∫ (R₂ e_x + θ̂ γ) dx

    At the start of the beam r₂₀ and R₂₀ are those of `start`. Default: 0 and ½ θ̂₀².
    Elongation, shear, torsion and bending then have the elastic energy ½ ηᵀ K η to third order, and
    loads along the beam act on bending through r₂.
    """
    n_elements = shapes.shape[0] - 1
    N, B = interpolation(L, phi, gauss()[0])
    ends = jnp.concatenate([shapes[:-1], shapes[1:]], axis=1)
    points = jnp.einsum("gsi,eik->egsk", N, ends)
    first = jnp.moveaxis(_inertia_fields(points), -1, 3)  # (e, g, field, k, 3)
    dtype = shapes.dtype
    within = jnp.asarray(gauss()[0], dtype=dtype)
    x = L * (jnp.arange(n_elements, dtype=dtype)[:, None] + within[None])
    zeroth = jnp.zeros((*x.shape, 3, 1, 3), dtype=dtype)
    zeroth = zeroth.at[:, :, 0, 0, 0].set(x).at[:, :, 1, 0, 1].set(1.0).at[:, :, 2, 0, 2].set(1.0)
    at_nodes = jnp.moveaxis(shapes, -1, 1)
    positions = jnp.zeros((n_elements + 1, 1, 6), dtype=dtype)
    positions = positions.at[:, 0, 0].set(L * jnp.arange(n_elements + 1, dtype=dtype))
    fields, nodes, end = [zeroth, first], [positions, at_nodes], None
    if second_order:
        strains = jnp.einsum("gsi,eik->egsk", B, ends)
        pairs, of_nodes, end = _second_order(at_nodes, points, strains, L, start)
        fields.append(pairs)
        nodes.append(of_nodes)
    return Fields(jnp.concatenate(fields, axis=3), jnp.concatenate(nodes, axis=1), end)


def _second_order(
    at_nodes: Float[Array, "n_nodes k 6"],
    points: Float[Array, "e g 6 k"],
    strains: Float[Array, "e g 6 k"],
    L: Float[Array, ""],
    before: SecondOrder | None,
) -> tuple[Float[Array, "e g 3 n_pairs 3"], Float[Array, "n_nodes n_pairs 6"], SecondOrder]:
    """Fields of second order for the pairs a ≤ b, at Gauss points, at nodes and at the end."""
    a, b = np.triu_indices(at_nodes.shape[1])
    by_mode = [jnp.swapaxes(x, -1, -2) for x in (points[:, :, 3:], strains[:, :, :3])]
    theta, gamma = _hat(by_mode[0]), by_mode[1]
    kappa = _hat(jnp.swapaxes(strains[:, :, 3:], -1, -2))
    start = _hat(at_nodes[0, :, 3:])

    def products(x: Float[Array, "*n k 3 3"], y: Float[Array, "*n k 3 m"]) -> Array:
        """x_a y_b + x_b y_a for all pairs."""

        # Written as sums: XLA 0.10 aborts the process while it simplifies these batched products.
        def product(x: Array, y: Array) -> Array:
            return jnp.sum(x[..., None] * y[..., None, :, :], axis=-2)

        one = product(x[..., a, :, :], y[..., b, :, :])
        return one + product(x[..., b, :, :], y[..., a, :, :])

    R0 = 0.5 * products(start, start) if before is None else before.R
    R, R_nodes = _cumulative(products(theta, kappa), L)
    R, R_nodes = R + R0[None, None], R_nodes + R0[None]
    along = products(theta, gamma[..., None])[..., 0]
    r, r_nodes = _cumulative(R[..., 0] + along, L)
    if before is not None:
        r, r_nodes = r + before.r[None, None], r_nodes + before.r[None]
    fields = jnp.stack([r, R[..., 1], R[..., 2]], axis=2)
    of_nodes = jnp.concatenate([r_nodes, _vee(R_nodes)], axis=-1)
    return fields, of_nodes, SecondOrder(r_nodes[-1], R_nodes[-1])


def strains_at_nodes(
    shapes: Float[Array, "n_nodes 6 k"], L: Float[Array, ""], phi: Float[Array, "2"]
) -> Float[Array, "n_nodes k 6"]:
    """Strains (γ, κ) at the nodes: means of the two elements there, extrapolated to their ends."""

    _, B = interpolation(L, phi, np.array([0.0, 1.0]))
    ends = jnp.concatenate([shapes[:-1], shapes[1:]], axis=1)
    left, right = (jnp.einsum("si,eik->eks", of_end, ends) for of_end in B)
    inner = 0.5 * (right[:-1] + left[1:])
    return jnp.concatenate([left[:1], inner, right[-1:]])
