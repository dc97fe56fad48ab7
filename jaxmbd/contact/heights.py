"""Heights of terrain as functions of two coordinates: slopes, washboards, roads, steps, grids."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..errors import ModelError
from ..model.values import as_count, as_leaf, as_positive, described, is_concrete

Scalar = Float[Array, ""]

# Displacement spectral density at 0.1 cycles/m [m³], ISO 8608:2016, table C.1, geometric means.
ISO_8608 = {name: 16e-6 * 4.0**k for k, name in enumerate("ABCDEFGH")}
REFERENCE = 0.1  # [cycles/m]


class Jet(NamedTuple):
    """A height z [m], its slope `(2,)`, and its second derivatives xx, xy, yy, `(3,)` [1/m]."""

    z: Scalar
    slope: Float[Array, "2"]
    curvature: Float[Array, "3"]


class AbstractHeight(eqx.Module):
    """A height z(x, y), with two continuous derivatives almost everywhere. Heights add up by +."""

    @abstractmethod
    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        """Height [m] at x, y [m]."""

    def covers(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        """True if the terrain has a height here. Default: everywhere."""
        return jnp.array(True)

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        """Height, slope and second derivatives at x, y. Default: by differentiation."""

        def law(at: Float[Array, "2"]) -> Scalar:
            return self(at[0], at[1])

        at = jnp.stack([x, y])
        z, slope = jax.value_and_grad(law)(at)
        units = jnp.asarray(np.eye(2), at.dtype)
        rows = jax.vmap(lambda unit: jax.jvp(jax.grad(law), (at,), (unit,))[1])(units)
        return Jet(z, slope, jnp.stack([rows[0, 0], rows[0, 1], rows[1, 1]]))

    def near(self, x: Scalar, y: Scalar) -> "AbstractHeight":
        """A height that equals this one around a place, and takes less time there.

        Default: the height itself.
        """
        return self

    def without_border(self) -> "AbstractHeight":
        """A result of `near` that does not end at the border of the terrain, and takes less time.

        Default: the height itself.
        """
        return self

    def equals_whole(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        """True if a result of `near` or `without_border` equals the whole height at x, y.

        Default: everywhere.
        """
        return jnp.array(True)

    def __add__(self, other: "AbstractHeight") -> "AbstractHeight":
        return SumOfHeights((self, other))


class SumOfHeights(AbstractHeight):
    """The sum of several heights."""

    parts: tuple[AbstractHeight, ...]

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return sum((part(x, y) for part in self.parts[1:]), start=self.parts[0](x, y))

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        first, *others = (part.jet(x, y) for part in self.parts)
        for other in others:
            first = Jet(*(a + b for a, b in zip(first, other, strict=True)))
        return first

    def covers(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        return jnp.all(jnp.stack([part.covers(x, y) for part in self.parts]))

    def near(self, x: Scalar, y: Scalar) -> AbstractHeight:
        return SumOfHeights(tuple(part.near(x, y) for part in self.parts))

    def without_border(self) -> AbstractHeight:
        return SumOfHeights(tuple(part.without_border() for part in self.parts))

    def equals_whole(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        return jnp.all(jnp.stack([part.equals_whole(x, y) for part in self.parts]))


class FunctionOfPlace(AbstractHeight):
    """A plain function of x and y, or a module that is one, as a height.

    A plain function is static: another function object compiles again.
    """

    module: Any
    function: Callable[..., Any] | None = eqx.field(static=True)

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        law = self.module if self.function is None else self.function
        return jnp.asarray(law(x, y)).astype(x.dtype)


class Slope(AbstractHeight):
    """A plane, z = s_x x + s_y y + z₀, with `gradient` (s_x, s_y) and `offset` z₀ [m].

    For example:

        slope = contact.Slope([-0.1, 0.0])
    """

    gradient: Float[Array, "2"]
    offset: Scalar

    def __init__(self, gradient: Any, offset: Any = 0.0):
        self.gradient = as_leaf(gradient, (2,), "Slope: gradient")
        self.offset = as_leaf(offset, (), "Slope: offset")

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.gradient[0] * x + self.gradient[1] * y + self.offset

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        return Jet(self(x, y), self.gradient, jnp.zeros(3, self.gradient.dtype))


class Washboard(AbstractHeight):
    """Waves along x, z = A cos(2π x / L + φ), with `amplitude` A and `wavelength` L [m], `phase` φ.

    A ball of radius r touches its valleys at one point only if r < (L / 2π)² / A.

    For example:

        bumps = contact.Washboard(amplitude=0.01, wavelength=0.5) + contact.Slope([-0.1, 0.0])
    """

    amplitude: Scalar
    wavelength: Scalar
    phase: Scalar

    def __init__(self, amplitude: Any, wavelength: Any, phase: Any = 0.0):
        self.amplitude = as_leaf(amplitude, (), "Washboard: amplitude")
        self.wavelength = as_leaf(wavelength, (), "Washboard: wavelength")
        self.phase = as_leaf(phase, (), "Washboard: phase")
        if is_concrete(self.wavelength) and not np.asarray(self.wavelength) > 0:
            raise ModelError(f"Washboard: wavelength must be positive, got {wavelength}")

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.amplitude * jnp.cos(2.0 * np.pi * x / self.wavelength + self.phase)

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        kappa = 2.0 * np.pi / self.wavelength
        angle = kappa * x + self.phase
        return _along_x(
            self.amplitude * jnp.cos(angle),
            -self.amplitude * kappa * jnp.sin(angle),
            -self.amplitude * kappa**2 * jnp.cos(angle),
        )


class Road(AbstractHeight):
    """A sum of waves along x, z = Σ Aᵢ cos(2π nᵢ x + φᵢ).

    **Arguments:** `amplitudes` A [m], `frequencies` n [cycles/m] and `phases` φ, of shape `(k,)`.
    """

    amplitudes: Float[Array, "k"]
    frequencies: Float[Array, "k"]
    phases: Float[Array, "k"]

    def __init__(self, amplitudes: Any, frequencies: Any, phases: Any):
        self.amplitudes = as_leaf(amplitudes, None, "Road: amplitudes")
        self.frequencies = as_leaf(frequencies, self.amplitudes.shape, "Road: frequencies")
        self.phases = as_leaf(phases, self.amplitudes.shape, "Road: phases")

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.amplitudes @ jnp.cos(2.0 * np.pi * self.frequencies * x + self.phases)

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        kappa = 2.0 * np.pi * self.frequencies
        c = self.amplitudes * jnp.cos(kappa * x + self.phases)
        s = self.amplitudes * jnp.sin(kappa * x + self.phases)
        return _along_x(jnp.sum(c), -(kappa @ s), -(kappa**2 @ c))


def iso_8608(
    road: str, key: PRNGKeyArray, *, n_waves: int = 64, band: tuple[float, float] = (0.02, 2.0)
) -> Road:
    """A random road of a class of ISO 8608, with the spectral density

        G(n) = G(n₀) (n / n₀)⁻²,   n₀ = 0.1 cycles/m,   G(n₀) = 16, 64, … 10⁻⁶ m³ for A, B, …

    Each of `n_waves` waves has the variance of its part of the band: its variance over a long road
    is ∫ G dn over the band. The profile repeats itself after about n_waves / (band width) m.

    **Arguments:**

    - `road`: class, "A" (very good) to "H".
    - `key`: a key of `jax.random`, for the phases.
    - `n_waves`: number of waves, equally spaced in log n. Default: 64.
    - `band`: lowest and highest frequency [cycles/m]. The slopes of the highest frequency must be
      resolved by steps, and its valleys must be wider than wheels. Default: 0.02 to 2.

    **Raises** `ModelError` for an unknown class or an empty band.

    For example:

        rough = contact.iso_8608("C", jax.random.key(0))
    """
    if not isinstance(road, str) or road not in ISO_8608:
        raise ModelError(f"iso_8608: the classes are {', '.join(ISO_8608)}, got {road!r}")
    _check_key(key)
    n_waves = as_count(n_waves, "iso_8608: n_waves")
    if not isinstance(band, Sequence) or len(band) != 2:
        raise ModelError(f"iso_8608: band must be two frequencies, got {described(band)}")
    low, high = (as_positive(x, "iso_8608: band") for x in band)
    if not 0 < low < high:
        raise ModelError(f"iso_8608: no waves in the band {band} with n_waves={n_waves}")
    edges = np.geomspace(low, high, n_waves + 1)
    variance = ISO_8608[road] * REFERENCE**2 * (1.0 / edges[:-1] - 1.0 / edges[1:])
    phases = jax.random.uniform(key, (n_waves,), maxval=2.0 * np.pi)
    return Road(np.sqrt(2.0 * variance), np.sqrt(edges[:-1] * edges[1:]), phases)


def _check_key(key: Any) -> None:
    try:
        jax.random.key_data(key)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"iso_8608: key must be a key such as jax.random.key(0), got {described(key)}"
        ) from error


class Steps(AbstractHeight):
    """Steps along x: at `positions` xᵢ the height rises by `rises` hᵢ over the length `width` w.

        z = Σ hᵢ s((x - xᵢ) / w + 1/2),   s(u) = u³ (10 - 15 u + 6 u²) from 0 at u = 0 to 1 at u = 1

    **Arguments:** `positions` and `rises`, shape `(k,)` [m]; `width` [m], positive.

    For example:

        stairs = contact.Steps(positions=[1.0, 1.3], rises=[0.17, 0.17], width=0.05)
    """

    positions: Float[Array, "k"]
    rises: Float[Array, "k"]
    width: Scalar

    def __init__(self, positions: Any, rises: Any, width: Any):
        self.positions = as_leaf(positions, None, "Steps: positions")
        self.rises = as_leaf(rises, self.positions.shape, "Steps: rises")
        self.width = as_leaf(width, (), "Steps: width")
        if is_concrete(self.width) and not np.asarray(self.width) > 0:
            raise ModelError(f"Steps: width must be positive, got {width}")

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        u = jnp.clip((x - self.positions) / self.width + 0.5, 0.0, 1.0)
        return self.rises @ (u**3 * (10.0 - 15.0 * u + 6.0 * u**2))


class HeightGrid(AbstractHeight):
    """Heights on a regular grid, by bicubic convolution.

    Between samples the height is a cubic in x and in y, with continuous slopes, and exact for
    quadratics. Terrain ends where the grid ends: a body that gets off it has a motion of NaN, which
    `simulate` reports. The call itself continues the value at the border.

    Source: Keys (1981), Cubic convolution interpolation for digital image processing.

    **Arguments:**

    - `heights`: shape `(n_x, n_y)`, each at least 4 [m].
    - `spacing`: Δx, Δy, one number or two [m].
    - `corner`: x, y of `heights[0, 0]` [m]. Default: the origin.

    **Raises** `ModelError` for heights that are not finite, other shapes and spacings that are not
    positive.

    For example:

        field = contact.HeightGrid(np.zeros((8, 8)), spacing=0.5)
    """

    heights: Float[Array, "nx ny"]
    spacing: Float[Array, "2"]
    corner: Float[Array, "2"]

    def __init__(self, heights: Any, spacing: Any, corner: Any = (0.0, 0.0)):
        self.heights = as_leaf(heights, None, "HeightGrid: heights")
        both = as_leaf(spacing, None, "HeightGrid: spacing")
        if both.shape not in ((), (2,)):
            raise ModelError(f"HeightGrid: spacing must be one number or two, got {both.shape}")
        self.spacing = jnp.broadcast_to(both, (2,))
        self.corner = as_leaf(corner, (2,), "HeightGrid: corner")
        shape = self.heights.shape
        if len(shape) != 2 or min(shape) < 4:
            raise ModelError(f"HeightGrid: heights must be at least 4 × 4, got shape {shape}")
        if is_concrete(self.heights) and not np.all(np.isfinite(np.asarray(self.heights))):
            bad = np.argwhere(~np.isfinite(np.asarray(self.heights)))[0].tolist()
            raise ModelError(f"HeightGrid: heights must be finite; the one at index {bad} is not")
        if is_concrete(self.spacing) and not np.all(np.asarray(self.spacing) > 0):
            raise ModelError(f"HeightGrid: spacing must be positive, got {spacing}")

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.jet(x, y).z

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        return self.near(x, y).jet(x, y)

    def near(self, x: Scalar, y: Scalar) -> "Cell":
        at = jax.lax.stop_gradient(self._in_spacings(x, y))
        last = jnp.array(self.heights.shape, at.dtype) - 1.0
        cell = jnp.clip(jnp.floor(at), 0.0, last - 1.0)
        origin = jnp.clip(cell, 1.0, last - 2.0)
        first = origin.astype(jnp.int32) - 1
        values = jax.lax.dynamic_slice(self.heights, (first[0], first[1]), (4, 4))
        side = cell - origin
        powers = _powers(_powers(values.T, side[1]).T, side[0])
        return Cell(powers, cell, origin, last, 1.0 / self.spacing, self.corner)

    def covers(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        at = self._in_spacings(x, y)
        last = jnp.array(self.heights.shape, at.dtype) - 1.0
        return jnp.all((at >= 0.0) & (at <= _with_rounding(last)))

    def _in_spacings(self, x: Scalar, y: Scalar) -> Float[Array, "2"]:
        """Coordinates from the corner of the grid, divided by its spacing."""
        return (jnp.stack([x, y]) - self.corner) * (1.0 / self.spacing)


def _with_rounding(last: Float[Array, "2"]) -> Float[Array, "2"]:
    """The last sample, which is not beyond the border by a rounding error."""
    return last * (1.0 + 4.0 * jnp.finfo(last.dtype).eps)


class Cell(AbstractHeight):
    """The cubic of one cell of a `HeightGrid`, beyond the cell up to the border of the grid.

    - `powers`: coefficients of powers of x and y, in numbers of spacings from `origin`, shape
      `(4, 4)`.
    - `cell`, `last`: number of the cell and of the last sample along x and y, shape `(2,)`.
    - `origin`: number of the cell with a sample more on either side, next to `cell` or itself.
    - `per`: samples by length [1/m]; `corner`: of the grid.
    """

    powers: Float[Array, "4 4"]
    cell: Float[Array, "2"]
    origin: Float[Array, "2"]
    last: Float[Array, "2"]
    per: Float[Array, "2"]
    corner: Float[Array, "2"]

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.jet(x, y).z

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        at = self.in_spacings(x, y)
        limited = jax.lax.stop_gradient(jnp.clip(at, 0.0, _with_rounding(self.last)))
        off = limited != at
        z, slope, curvature = self.cubic(jnp.where(off, limited, at))
        # Beyond the border of the grid, its value continues without a slope.
        slope = jnp.where(off, 0.0, slope)
        curvature = jnp.where(jnp.stack([off[0], off[0] | off[1], off[1]]), 0.0, curvature)
        return Jet(z, slope, curvature)

    def cubic(self, at: Float[Array, "2"]) -> Jet:
        """The jet of the cubic at a place in numbers of spacings."""
        u, v = at - self.origin
        # Cubics in x, and their derivatives, as coefficients of powers of y.
        value, first, second = _cubic(self.powers, u)
        z, by_y, twice_by_y = _cubic(value, v)
        by_x, mixed, _ = _cubic(first, v)
        twice_by_x, _, _ = _cubic(second, v)
        per = self.per
        slope = jnp.stack([by_x, by_y]) * per
        curvature = jnp.stack([twice_by_x, mixed, twice_by_y])
        curvature = curvature * jnp.stack([per[0] * per[0], per[0] * per[1], per[1] * per[1]])
        return Jet(z, slope, curvature)

    def without_border(self) -> "WithoutBorder":
        return WithoutBorder(self)

    def equals_whole(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        at = self.in_spacings(x, y)
        before = (at < self.cell) & (self.cell > 0.0)
        after = (at > self.cell + 1.0) & (self.cell < self.last - 1.0)
        return ~jnp.any(before | after)

    def in_spacings(self, x: Scalar, y: Scalar) -> Float[Array, "2"]:
        """Coordinates from the corner of the grid, divided by its spacing."""
        return (jnp.stack([x, y]) - self.corner) * self.per


class WithoutBorder(AbstractHeight):
    """The cubic of a `Cell`, also beyond the border of the grid."""

    of: Cell

    def __call__(self, x: Scalar, y: Scalar) -> Scalar:
        return self.jet(x, y).z

    def jet(self, x: Scalar, y: Scalar) -> Jet:
        return self.of.cubic(self.of.in_spacings(x, y))

    def equals_whole(self, x: Scalar, y: Scalar) -> Bool[Array, ""]:
        at, cell = self.of.in_spacings(x, y), self.of.cell
        return jnp.all((at >= cell) & (at <= cell + 1.0))


def _powers(rows: Float[Array, "4 4"], side: Scalar) -> Float[Array, "4 4"]:
    """Coefficients of powers of the distance from the second of four samples.

    Between the second and the third one they are those of the cubic (`side` 0). Next to the border,
    where Keys extrapolates a sample by a quadratic, the height is a quadratic of three samples: of
    the first three between the first two (`side` -1), and of the last three between the last two
    (`side` 1).
    """
    a, b, c, d = rows
    before, after = 0.5 * (a + c) - b, 0.5 * (b + d) - c
    third = jnp.where(side == 0.0, after - before, 0.0)
    bend = jnp.where(side > 0.0, after, before)
    return jnp.stack([b, (c - b) - bend, bend - third, third])


def _cubic(
    powers: Float[Array, "4 *k"], t: Scalar
) -> tuple[Float[Array, "*k"], Float[Array, "*k"], Float[Array, "*k"]]:
    """A cubic, and its first two derivatives."""
    a, b, c, d = powers
    value = a + t * (b + t * (c + t * d))
    return value, b + t * (2.0 * c + t * (3.0 * d)), 2.0 * c + t * (6.0 * d)


def _along_x(z: Scalar, slope: Scalar, second: Scalar) -> Jet:
    """The jet of a height that depends on x alone."""
    zero = jnp.zeros_like(z)
    return Jet(z, jnp.stack([slope, zero]), jnp.stack([second, zero, zero]))


def as_height(value: Any) -> AbstractHeight:
    """A height from a function of x and y; a height remains as it is.

    **Raises** `ModelError` if the function does not return one number, or not a finite one at the
    origin.
    """
    if isinstance(value, AbstractHeight):
        return value
    if isinstance(value, type) or not callable(value):
        raise ModelError(f"Terrain: height must be a function of x and y, got {value!r}")
    is_module = isinstance(value, eqx.Module)
    function = None if is_module else cast(Callable[..., Any], value)
    height = FunctionOfPlace(value if is_module else None, function)
    place = jax.ShapeDtypeStruct((), jnp.result_type(float))
    with jax.numpy_dtype_promotion("standard"):  # `formulate` unifies float types later.
        shape = jax.eval_shape(lambda x, y: jnp.asarray(value(x, y)), place, place).shape
    if shape != ():
        raise ModelError(f"Terrain: the height function returns shape {shape}, not one number")
    return height
