"""Cross-sections of beams. The beam is along x; y and z are principal axes of the section."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf, is_concrete, not_positive


class SectionProperties(eqx.Module):
    """Properties of a section that a beam needs.

    - `A`: area [m²].
    - `Iy`, `Iz`: ∫z² dA, for bending in the plane of x and z, and ∫y² dA [m⁴].
    - `J`: torsion constant [m⁴]. The polar moment of inertia of the mass is Iy + Iz.
    - `ky`, `kz`: shear correction factors along y and z [1].
    """

    A: Float[Array, ""]
    Iy: Float[Array, ""]
    Iz: Float[Array, ""]
    J: Float[Array, ""]
    ky: Float[Array, ""]
    kz: Float[Array, ""]


class AbstractSection(eqx.Module):
    """A cross-section."""

    @abstractmethod
    def properties(self) -> SectionProperties:
        """Area, moments and factors of the section."""

    def outline(self) -> Float[Array, "n 2"]:
        """y and z of a convex polygon with which beams are drawn [m], from y towards z.

        Default: an ellipse with the ratios Iy / A and Iz / A of the section.
        """
        s = self.properties()
        return _ellipse(2.0 * jnp.sqrt(s.Iz / s.A), 2.0 * jnp.sqrt(s.Iy / s.A))

    def validate(self) -> None:
        """**Raises** `ModelError` for dimensions that are not positive. Default: all leaves."""
        problem = not_positive(self, *(name for name in self.__dataclass_fields__))
        if problem is not None:
            raise ModelError(f"{type(self).__name__}: {problem}")


# Vertices of outlines: as many for all sections, so that beams share compiled programs.
N_OUTLINE = 16


def _ellipse(y: Float[Array, ""], z: Float[Array, ""]) -> Float[Array, "n 2"]:
    """Polygon on an ellipse with these half axes."""
    angle = 2.0 * np.pi * np.arange(N_OUTLINE) / N_OUTLINE
    unit = jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1), dtype=y.dtype)
    return unit * jnp.stack([y, z])[None]


class Round(AbstractSection):
    """A solid circle of `radius` [m].

    Shear factor 0.9; by Cowper (1966) it is 0.86 to 0.90 for Poisson ratios of 0 to 0.5.
    """

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        self.radius = as_leaf(radius, (), "Round: radius")
        self.validate()

    def properties(self) -> SectionProperties:
        r = self.radius
        A, I = jnp.pi * r**2, 0.25 * jnp.pi * r**4
        k = jnp.full_like(r, 0.9)
        return SectionProperties(A, I, I, 2.0 * I, k, k)


class Tube(AbstractSection):
    """A circular tube of outer `radius` and wall `thickness` [m].

    Shear factor by Cowper (1966) at a Poisson ratio of zero, 6 (1 + m²)² / (7 (1 + m²)² + 20 m²)
    with the ratio m of the radii.
    """

    radius: Float[Array, ""]
    thickness: Float[Array, ""]

    def __init__(self, radius: Any, thickness: Any):
        self.radius = as_leaf(radius, (), "Tube: radius")
        self.thickness = as_leaf(thickness, (), "Tube: thickness")
        self.validate()

    def validate(self) -> None:
        super().validate()
        inner = self.radius - self.thickness
        if is_concrete(inner) and not np.asarray(inner) > 0:
            raise ModelError("Tube: thickness must be less than the radius; use Round if solid")

    def properties(self) -> SectionProperties:
        outer, inner = self.radius, self.radius - self.thickness
        A = jnp.pi * (outer**2 - inner**2)
        I = 0.25 * jnp.pi * (outer**4 - inner**4)
        m = inner / outer
        k = 6.0 * (1.0 + m**2) ** 2 / (7.0 * (1.0 + m**2) ** 2 + 20.0 * m**2)
        return SectionProperties(A, I, I, 2.0 * I, k, k)

    def outline(self) -> Float[Array, "n 2"]:
        return _ellipse(self.radius, self.radius)


class Rectangle(AbstractSection):
    """A solid rectangle of `width` along y and `height` along z [m].

    Shear factor 5/6. The torsion constant is Saint-Venant's series, four terms.
    """

    width: Float[Array, ""]
    height: Float[Array, ""]

    def __init__(self, width: Any, height: Any):
        self.width = as_leaf(width, (), "Rectangle: width")
        self.height = as_leaf(height, (), "Rectangle: height")
        self.validate()

    def properties(self) -> SectionProperties:
        b, h = self.width, self.height
        k = jnp.full_like(b, 5.0 / 6.0)
        return SectionProperties(b * h, b * h**3 / 12.0, h * b**3 / 12.0, _torsion(b, h), k, k)

    def outline(self) -> Float[Array, "n 2"]:
        side = np.linspace(-0.5, 0.5, N_OUTLINE // 4, endpoint=False)
        half = np.full_like(side, 0.5)
        edges = [(side, -half), (half, side), (-side, half), (-half, -side)]
        unit = np.concatenate([np.stack(edge, axis=1) for edge in edges])
        size = jnp.stack([self.width, self.height])
        return jnp.asarray(unit, dtype=size.dtype) * size[None]


def _torsion(b: Float[Array, ""], h: Float[Array, ""]) -> Float[Array, ""]:
    """Torsion constant of a rectangle: a c³ (1/3 - 64/π⁵ c/a Σ tanh(n π a / 2c) / n⁵), c ≤ a."""
    a, c = jnp.maximum(b, h), jnp.minimum(b, h)
    n = jnp.asarray([1.0, 3.0, 5.0, 7.0], dtype=a.dtype)
    series = jnp.sum(jnp.tanh(0.5 * jnp.pi * n * a / c) / n**5)
    return a * c**3 * (1.0 / 3.0 - 64.0 / jnp.pi**5 * c / a * series)


class General(AbstractSection):
    """A section by its properties, as in `SectionProperties`; `ky` and `kz` default to 5/6."""

    A: Float[Array, ""]
    Iy: Float[Array, ""]
    Iz: Float[Array, ""]
    J: Float[Array, ""]
    ky: Float[Array, ""]
    kz: Float[Array, ""]

    def __init__(self, A: Any, Iy: Any, Iz: Any, J: Any, ky: Any = 5 / 6, kz: Any = 5 / 6):
        self.A, self.Iy, self.Iz, self.J, self.ky, self.kz = (
            as_leaf(x, (), f"General: {name}")
            for name, x in (("A", A), ("Iy", Iy), ("Iz", Iz), ("J", J), ("ky", ky), ("kz", kz))
        )
        self.validate()

    def properties(self) -> SectionProperties:
        return SectionProperties(self.A, self.Iy, self.Iz, self.J, self.ky, self.kz)
