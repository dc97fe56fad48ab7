"""Straight beams in space as flexible bodies."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import FlexibleBody
from ..errors import ModelError
from ..model.values import as_count, as_instance, as_leaf, as_mapping, as_names, is_concrete
from ..programs import stored
from .element import Material, assembled, beam_fields, gauss, matrices, strains_at_nodes
from .mode_shapes import damping_matrix, modes, projected, shapes_of
from .sections import AbstractSection
from .skins import beam_skin

# Speeds √(E/ρ) [m/s] of longitudinal waves: from soft foam and gels to beyond diamond.
THEORIES = ("timoshenko", "bernoulli")
WAVE_SPEEDS = (8.0, 5e4)


def beam(
    length: Any,
    E: Any,
    G: Any,
    density: Any,
    section: AbstractSection,
    n_elements: int = 10,
    n_modes: int = 6,
    theory: str = "timoshenko",
    interfaces: Sequence[str] = ("base",),
    method: str = "craig-bampton",
    frame: str = "clamped",
    basis: Any = "frozen",
    attachments: Sequence[str] = (),
    nodes: Mapping[str, int] | None = None,
    damping: Any = 0.0,
    stiffening: bool = True,
) -> FlexibleBody:
    """A straight beam from the origin along x, with elongation, torsion and bending in two planes.

    Rotary inertia is included. Named nodes are `"base"` and `"tip"`; all nodes can be referred to
    by their rows 0 … `n_elements` from the base: `Frame("rod", node="tip")`.

    **Arguments:**

    - `length` [m]; `E`, `G`: Young's and shear modulus [Pa]; `density` [kg/m³].
    - `section`: such as `Round(radius)`, with its principal axes along y and z.
    - `n_elements`: finite elements of equal length; their number affects accuracy and the time to
      build the body, not the cost of its motion.
    - `n_modes`: number of normal modes, the lowest of all kinds of motion. Elongation and torsion
      of a slender beam have high frequencies, √(E/ρ)/(4 length) [Hz] and √(G J/ρ(Iy + Iz))/(4
      length) [Hz] from `base` alone, so that few modes leave the beam rigid along and about its
      axis. `inspect` lists the kinds of the modes and those without a mode;
      `attachments=["tip"]` adds the static shapes of all kinds.
    - `theory`: `"timoshenko"`, or `"bernoulli"` without shear.
    - `interfaces`: names of nodes at which joints act.
    - `stiffening`: whether displacements are of second order in η, so that loads along the beam
      stiffen its bending or soften it, and a spinning beam does not lose stiffness. The cost of the
      kinetic energy grows with the fourth power of the number of elastic coordinates, otherwise
      with the second.
    - `method`, `frame`, `attachments`, `damping`: as in `reduce`.
    - `basis`: as in `reduce`; or a `FlexibleBody` of another beam, whose mode shapes are used.
    - `nodes`: `{name: row}` of further named nodes.

    **Raises** `ModelError` for values that are not positive, for moduli and density that no
    material has in SI units, for unknown nodes, and for a number of modes that parts a pair.

    For example:

        section = mbd.flexible.General(A=1e-4, Iy=1e-9, Iz=1e-9, J=2e-9)
        body = mbd.flexible.beam(1.0, 7e10, 2.6e10, 2700.0, section, 4, n_modes=2)
        tip = mbd.Frame("beam", node="tip")
    """
    caller = "flexible.beam"
    length, E, G, density = (
        positive(x, f"{caller}: {name}")
        for x, name in ((length, "length"), (E, "E"), (G, "G"), (density, "density"))
    )
    check_units(E, density, caller)
    n_elements = as_count(n_elements, f"{caller}: n_elements")
    as_section(section, f"{caller}: section")
    interfaces = as_names(interfaces, f"{caller}: interfaces")
    attachments = as_names(attachments, f"{caller}: attachments")
    nodes = as_mapping(nodes, f"{caller}: nodes", "{name: row}")
    if theory not in THEORIES:
        raise ModelError(f"{caller}: theory must be 'timoshenko' or 'bernoulli', got {theory!r}")
    known = {"base": 0, "tip": n_elements, **nodes}
    L = length / n_elements
    material, K, M, positions = _assembled(E, G, density, section, L, theory, n_elements)

    def computed() -> Float[Array, "n k"]:
        ends = {name: _row(known, name, caller) for name in interfaces}
        found = modes(K, M, positions, ends, n_modes, method, frame, attachments, known)
        return _uncoupled(found, length)

    given = _shapes_of_body(basis) if isinstance(basis, FlexibleBody) else basis
    shapes = shapes_of(given, computed, K.shape[0], caller)
    arrays = _body_arrays(K, M, shapes, L, material, damping, stiffening)
    axes = jnp.eye(3, dtype=positions.dtype)
    skin = beam_skin(np.arange(n_elements + 1), section.outline(), axes, arrays["strains"])
    return FlexibleBody(**arrays, positions=positions, nodes=known, skin=skin)


@stored
def _assembled(
    E: Array, G: Array, density: Array, section: AbstractSection, L: Array, theory: str, n: int
) -> tuple[Material, Array, Array, Array]:
    """Material, stiffness and mass matrix, and positions of the nodes."""
    material = material_of(E, G, density, section, L, theory)
    K, M = assembled(n, *matrices(L, material))
    x = L * jnp.arange(n + 1, dtype=L.dtype)
    return material, K, M, jnp.stack([x, jnp.zeros_like(x), jnp.zeros_like(x)], axis=1)


# Elongation, torsion, and bending along y and along z do not depend on one another.
UNCOUPLED = ((0,), (3,), (1, 5), (2, 4))
# Largest part of a mode shape that is a rounding error, relative to the shape: in double precision,
# and in units of the precision.
ROUNDING, ROUNDINGS = 1e-9, 1e3


@stored
def _uncoupled(shapes: Float[Array, "n k"], length: Array) -> Float[Array, "n k"]:
    """Mode shapes without the rounding errors by which one kind of motion has parts of another.

    Such parts would be constraints on in-plane motion in mechanisms that hold bodies in a plane.
    """
    by_node = shapes.reshape(-1, 6, shapes.shape[1])
    scale = jnp.where(jnp.arange(6) < 3, 1.0, length).astype(shapes.dtype)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(by_node * scale[None, :, None]), axis=0))
    sizes = jnp.zeros_like(largest)
    for kind in UNCOUPLED:
        sizes = sizes.at[np.array(kind)].set(jnp.max(largest[np.array(kind)], axis=0))
    limit = max(ROUNDING, ROUNDINGS * float(jnp.finfo(shapes.dtype).eps))
    is_part = sizes > limit * jnp.max(sizes, axis=0, keepdims=True)
    cleaned = jnp.where(is_part[None], by_node, 0.0)
    return cleaned.reshape(shapes.shape)


@stored
def _body_arrays(
    K: Array,
    M: Array,
    shapes: Array,
    L: Array,
    material: Material,
    damping: Any,
    stiffening: bool,
) -> dict[str, Any]:
    """Arrays of the body but for the positions of its nodes."""
    by_node = shapes.reshape(-1, 6, shapes.shape[1])
    fields = beam_fields(by_node, L, material.phi, stiffening)
    w = L * material.inertia[None] * jnp.asarray(gauss()[1], dtype=L.dtype)[:, None]
    stiffness = projected(K, shapes)
    return {
        "mass": material.inertia[0] * L * (by_node.shape[0] - 1),
        "first": jnp.einsum("egai,g->ai", fields.fields[:, :, 0], w[:, 0]),
        "second": jnp.einsum("egfai,gf,egfbj->aibj", fields.fields, w, fields.fields),
        "stiffness": stiffness,
        "damping": damping_matrix(damping, stiffness, projected(M, shapes)),
        "translations": fields.nodes[:, 1:, :3],
        "rotations": fields.nodes[:, 1:, 3:],
        "strains": strains_at_nodes(by_node, L, material.phi),
    }


def _row(known: Mapping[str, int], name: str, caller: str) -> int:
    if name not in known:
        listed = ", ".join(map(repr, known))
        raise ModelError(f"{caller}: unknown node {name!r}; known are {listed}")
    return known[name]


def _shapes_of_body(body: FlexibleBody) -> Float[Array, "n k"]:
    """Mode shapes of a beam, by the degrees of freedom of its nodes."""
    k = body.n_elastic
    both = jnp.concatenate([body.translations[:, :k], body.rotations[:, :k]], axis=2)
    return jnp.swapaxes(both, 1, 2).reshape(-1, k)


def as_section(value: Any, name: str) -> AbstractSection:
    """A section with valid dimensions; **raises** `ModelError` for anything else."""
    section = as_instance(value, AbstractSection, name, "a section such as flexible.Round(0.01)")
    section.validate()
    return section


def positive(value: Any, name: str) -> Float[Array, ""]:
    """The value as an array; **raises** `ModelError` if it is not positive."""
    leaf = as_leaf(value, (), name)
    if is_concrete(leaf) and not np.asarray(leaf) > 0:
        raise ModelError(f"{name} must be positive, got {leaf}")
    return leaf


def check_units(E: Float[Array, ""], density: Float[Array, ""], caller: str) -> None:
    """**Raises** `ModelError` for a speed of sound that no material has."""
    if not (is_concrete(E) and is_concrete(density)):
        return
    speed = float(np.sqrt(np.asarray(E) / np.asarray(density)))
    if not WAVE_SPEEDS[0] <= speed <= WAVE_SPEEDS[1]:
        raise ModelError(
            f"{caller}: E = {float(E):.3g} Pa and density = {float(density):.3g} kg/m³ give sound "
            f"a speed of {speed:.3g} m/s, which no material has; convert them to Pa and kg/m³ "
            "(steel: 2.1e11 and 7850)"
        )


def material_of(
    E: Array, G: Array, density: Array, section: AbstractSection, L: Array, theory: str
) -> Material:
    """Stiffness and inertia per unit length, for elements of length L."""
    s = section.properties()
    along_y, along_z = s.ky * G * s.A, s.kz * G * s.A
    phi = jnp.zeros(2, dtype=L.dtype)
    if theory == "timoshenko":
        phi = 12.0 / L**2 * jnp.stack([E * s.Iz / along_y, E * s.Iy / along_z])
    stiffness = jnp.stack([E * s.A, along_y, along_z, G * s.J, E * s.Iy, E * s.Iz])
    return Material(stiffness, density * jnp.stack([s.A, s.Iz, s.Iy]), phi)
