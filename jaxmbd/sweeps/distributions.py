"""Distributions of uncertain numbers, and methods of sampling."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..model.values import as_count, is_count

# Sobol's indices of sensitivity: design of scenarios, estimates and bootstrap samples -------------
#
# Saltelli et al. (2010): two samples A and B of n scenarios with d numbers each, and for each
# number i the sample AB_i, which is A with column i of B.

BATCH = 64  # Bootstrap samples drawn at once, to bound memory.


def pages(A: Float[np.ndarray, "n d"], B: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "m d"]:
    """A, B, AB_1, …, AB_d below each other, n (d + 2) rows."""
    n, d = A.shape
    mixed = np.tile(A, (d, 1)).reshape(d, n, d)
    number = np.arange(d)
    mixed[number, :, number] = B.T
    return np.concatenate([A, B, mixed.reshape(d * n, d)])


class Design(NamedTuple):
    """Layout of the samples in the results of a sweep.

    - `n`: number of scenarios in a sample.
    - `labels`: labels of the numbers, in the order of their pages AB_i.
    """

    n: int
    labels: list[str]


def design_of(results: Any) -> Design:
    """The design, from the scenarios among the coordinates of results.

    **Raises** `ModelError` if scenarios are not such a design, or not all of it.
    """
    labels, columns = [], []
    for name, x in results.coords.items():
        if name != "scenario" and x.dims[:1] == ("scenario",):
            index = np.ndindex(x.shape[1:])
            labels += [f"{name}{list(i)}" if i else str(name) for i in index]
            columns.append(np.asarray(x).reshape(len(x), -1))
    d = len(labels)
    n, left = divmod(results.sizes["scenario"], d + 2)
    wrong = ModelError(
        f"sobol_indices: these {results.sizes['scenario']} scenarios of {d} numbers are not all "
        "scenarios of distributions.saltelli"
    )
    if d < 2 or n < 2 or left:
        raise wrong
    A, B, *mixed = np.concatenate(columns, axis=1).reshape(d + 2, n, d)
    # The number of a page is found from its values: files may reorder coordinates.
    changed = [np.flatnonzero(np.any(page != A, axis=0)) for page in mixed]
    order = [int(i) for columns in changed for i in columns]
    if sorted(order) != list(range(d)) or any(columns.size != 1 for columns in changed):
        raise wrong
    if any(np.any(page[:, i] != B[:, i]) for page, i in zip(mixed, order, strict=True)):
        raise wrong
    return Design(n, [labels[i] for i in order])


def indices(f: Float[np.ndarray, "pages n s"]) -> Float[np.ndarray, "2 d s"]:
    """First-order and total indices of results at A, B, AB_1, …, AB_d, by SciPy."""
    from scipy.stats import sobol_indices  # Takes a second to load.

    at = {"f_A": f[0].T, "f_B": f[1].T, "f_AB": np.swapaxes(f[2:], 1, 2)}
    result = sobol_indices(func=at, n=f.shape[1])
    both = result.first_order, result.total_order
    return np.stack([x.reshape(-1, len(f) - 2).T for x in both])


def resampled(
    f: Float[np.ndarray, "pages n s"], count: int, seed: int
) -> Float[np.ndarray, "2 d count s"]:
    """First-order and total indices of bootstrap samples, each n rows drawn with replacement.

    Means over drawn rows are products with the numbers of draws. SciPy's bootstrap calls the
    estimator for every sample, which takes 150 times as long for 200 results, and has no seed.
    """
    rng, n = np.random.default_rng(seed), f.shape[1]
    A, B, *mixed = f - np.mean(f[:2], axis=(0, 1))  # Reduces round-off.
    middle, square = 0.5 * (A + B), 0.5 * (A**2 + B**2)
    parts = []
    for start in range(0, count, BATCH):
        drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=min(BATCH, count - start)) / n
        centre = drawn @ middle
        variance = drawn @ square - centre**2
        # Saltelli et al. (2010), table 2 (b) and (f), as in SciPy.
        first = [drawn @ (B * (AB - A)) - centre * (drawn @ (AB - A)) for AB in mixed]
        total = [0.5 * drawn @ (AB - A) ** 2 for AB in mixed]
        parts.append(np.stack([first, total]) / variance)
    return np.concatenate(parts, axis=2)


# Distributions of uncertain numbers, and methods of sampling --------------------------------------

# Quasi-random points may be 0 or 1, where quantiles of a normal distribution are infinite.
SMALLEST = 2.0**-54
LARGEST = 1.0 - 2.0**-53


class AbstractDistribution(eqx.Module):
    """A distribution of independent numbers; replaces an array of values in `scenarios`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the values of one scenario."""

    @abstractmethod
    def at(self, share: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n *shape"]:
        """Quantiles at probabilities `share`, between 0 and 1."""


class Uniform(AbstractDistribution):
    """The uniform distribution between two numbers, or arrays of one shape."""

    lower: np.ndarray
    upper: np.ndarray

    def __init__(self, lower: Any, upper: Any):
        self.lower, self.upper = _parameters(self, lower=lower, upper=upper)
        _require(self.lower < self.upper, "Uniform: lower must be below upper", lower, upper)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what one scenario gets."""
        return self.lower.shape

    def at(self, share: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n *shape"]:
        """Values below which a share of all values lies."""
        return self.lower + (self.upper - self.lower) * share


class Normal(AbstractDistribution):
    """The normal distribution with a mean and a standard deviation: numbers, or arrays."""

    mean: np.ndarray
    deviation: np.ndarray

    def __init__(self, mean: Any, deviation: Any):
        self.mean, self.deviation = _parameters(self, mean=mean, deviation=deviation)
        _require(self.deviation > 0, "Normal: the deviation must be positive", deviation)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what one scenario gets."""
        return self.mean.shape

    def at(self, share: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n *shape"]:
        """Values below which a share of all values lies."""
        return self.mean + self.deviation * _normal(share)


class LogNormal(AbstractDistribution):
    """The log-normal distribution, of positive numbers.

    **Arguments:** `median`; `spread`: standard deviation of the logarithm, approximately the
    relative standard deviation of the number if it is small. Numbers, or arrays of one shape.
    """

    median: np.ndarray
    spread: np.ndarray

    def __init__(self, median: Any, spread: Any):
        self.median, self.spread = _parameters(self, median=median, spread=spread)
        _require(self.median > 0, "LogNormal: the median must be positive", median)
        _require(self.spread > 0, "LogNormal: the spread must be positive", spread)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what one scenario gets."""
        return self.median.shape

    def at(self, share: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n *shape"]:
        """Values below which a share of all values lies."""
        return self.median * np.exp(self.spread * _normal(share))


class AbstractSampling(eqx.Module):
    """A method of sampling the unit cube."""

    @abstractmethod
    def points(self, n: int, d: int, seed: int) -> Float[np.ndarray, "{n} {d}"]:
        """n points of d numbers between 0 and 1, determined by the seed."""


class Independent(AbstractSampling):
    """Independent scenarios; standard errors of reducers are valid for them."""

    def points(self, n: int, d: int, seed: int) -> Float[np.ndarray, "{n} {d}"]:
        """Pseudo-random points."""
        return np.random.default_rng(seed).random((n, d))


class LatinHypercube(AbstractSampling):
    """One value of every number in each of n equally likely intervals.

    Means and quantiles scatter less than for independent scenarios, and computed standard errors
    are too large.
    """

    def points(self, n: int, d: int, seed: int) -> Float[np.ndarray, "{n} {d}"]:
        """Points of `scipy.stats.qmc.LatinHypercube`."""
        from scipy.stats import qmc  # Takes a second to load.

        return qmc.LatinHypercube(d, rng=np.random.default_rng(seed)).random(n)


class Sobol(AbstractSampling):
    """Scrambled points of Sobol's sequence, which fill the cube evenly.

    They are balanced if n is a power of two; SciPy warns of other numbers.
    """

    def points(self, n: int, d: int, seed: int) -> Float[np.ndarray, "{n} {d}"]:
        """Points of `scipy.stats.qmc.Sobol`."""
        from scipy.stats import qmc

        return qmc.Sobol(d, rng=np.random.default_rng(seed)).random(n)


def sample(scenarios: Any, n: int, *, seed: int = 0, sampling: Any = None) -> Any:
    """Draw from distributions.

    **Arguments:**

    - `scenarios`: a dict, or any other pytree, whose leaves are distributions, or arrays with a
      leading axis of length n, which do not change.
    - `n`: number of scenarios.
    - `seed`: equal seeds draw equal scenarios.
    - `sampling`: `Independent()`, `LatinHypercube()` or `Sobol()`. Default: `Independent()`.

    **Returns** the same pytree of arrays, shape `(n, ...)`.

    **Raises** `ModelError` if n is not positive.
    """
    n = as_count(n, "sweep: n")
    leaves, structure = jax.tree.flatten(scenarios, is_leaf=is_law)
    sizes = [int(np.prod(x.shape)) for x in leaves if is_law(x)]
    sampling = Independent() if sampling is None else sampling
    if not isinstance(sampling, AbstractSampling):
        raise ModelError(f"sweep: sampling must be LatinHypercube() or the like, got {sampling!r}")
    points = sampling.points(n, sum(sizes), seed)
    columns = iter(np.split(points, np.cumsum(sizes)[:-1], axis=1)) if sizes else iter(())
    drawn = [x.at(next(columns).reshape(n, *x.shape)) if is_law(x) else x for x in leaves]
    return jax.tree.unflatten(structure, drawn)


def saltelli(scenarios: Any, n: int, *, seed: int = 0) -> Any:
    """Scenarios for `mbd.reducers.sobol_indices`.

    Two samples A and B from `Sobol()`, and for each of the d numbers the sample A with this number
    from B (Saltelli et al. 2010), below each other.

    **Arguments:**

    - `scenarios`: a dict, or any other pytree, of distributions, with two numbers or more in all.
    - `n`: number of scenarios in a sample, a power of two.
    - `seed`: equal seeds draw equal scenarios.

    **Returns** the same pytree of arrays, shape `(n (d + 2), ...)`, for `mbd.sweep`.

    **Raises** `ModelError` if n is not a power of two, a leaf is not a distribution, or there are
    fewer than two numbers.
    """
    if not is_count(n, least=2) or n & (n - 1):
        raise ModelError(f"saltelli: n must be a power of two, from 2 on, got {n}")
    leaves, structure = jax.tree.flatten(scenarios, is_leaf=is_law)
    if not all(map(is_law, leaves)):
        raise ModelError("saltelli: every leaf of scenarios must be a distribution")
    sizes = [int(np.prod(x.shape)) for x in leaves]
    if sum(sizes) < 2:
        raise ModelError(f"saltelli: two uncertain numbers or more are compared, got {sum(sizes)}")
    cuts = np.cumsum(sizes)[:-1]

    def drawn(points: np.ndarray) -> np.ndarray:
        columns = zip(leaves, np.split(points, cuts, axis=1), strict=True)
        return np.concatenate(
            [x.at(share.reshape(n, *x.shape)).reshape(n, -1) for x, share in columns], axis=1
        )

    rows = pages(*map(drawn, np.split(Sobol().points(n, 2 * sum(sizes), seed), 2, axis=1)))
    columns = zip(leaves, np.split(rows, cuts, axis=1), strict=True)
    return jax.tree.unflatten(structure, [x.reshape(-1, *law.shape) for law, x in columns])


def is_law(x: Any) -> bool:
    """True if something is a distribution."""
    return isinstance(x, AbstractDistribution)


def _normal(share: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri

    return ndtri(np.clip(share, SMALLEST, LARGEST))


def _parameters(law: AbstractDistribution, **given: Any) -> list[np.ndarray]:
    """The parameters as arrays of one shape."""
    caller = type(law).__name__
    arrays = {}
    for name, value in given.items():
        try:
            if isinstance(value, str | bytes):  # NumPy converts the text of a number.
                raise TypeError
            arrays[name] = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{caller}: {name} must be numeric, got {value!r}") from error
        if arrays[name].size == 0:
            raise ModelError(f"{caller}: {name} must be one or more numbers, got none")
        if not np.all(np.isfinite(arrays[name])):
            raise ModelError(f"{caller}: {name} must be finite, got {value!r}")
    try:
        return [x.copy() for x in np.broadcast_arrays(*arrays.values())]
    except ValueError as error:
        shapes = ", ".join(f"{name} {x.shape}" for name, x in arrays.items())
        raise ModelError(f"{caller}: shapes do not fit together: {shapes}") from error


def _require(holds: Any, message: str, *values: Any) -> None:
    if not np.all(holds):
        raise ModelError(f"{message}, got {' and '.join(map(str, values))}")
