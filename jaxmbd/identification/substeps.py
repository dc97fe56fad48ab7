"""Numbers of steps within a sample interval, chosen from an estimate of the integration error.

Motions with n and 2n steps in each sample interval are compared at the sample times. For a method
of order p, the error of the first is r / (r - 1) times their difference with r = 2^p (Richardson's
extrapolation). If differences decrease more slowly, as with jumps of an input or with dry friction,
r is the observed ratio of differences.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import warn
from .experiment import Experiment

# Limit of the error, as a part of the standard deviation of a reading,
SHARE_OF_NOISE = 0.01
# or of the largest reading of a sensor if no deviation is known,
SHARE_OF_LARGEST = 1e-6
# and at least so many units of rounding of the largest reading, or of one.
ROUNDING = 1e3
# Before a fit the limit is smaller by this factor, since the parameters will change.
MARGIN = 4.0
# Largest number of substeps, and of steps of all records together.
MOST_SUBSTEPS = 256
MOST_STEPS = 500_000
# If all errors exceed the limit, errors up to this factor above the least are equally good.
AS_GOOD = 2.0
# Least factor by which differences of motions decrease if steps are halved.
SLOWEST = np.sqrt(2.0)

Readings = Sequence[Mapping[str, Any]]


class IntegrationWarning(UserWarning):
    """Steps between samples are too long; the message has sensor, error and a remedy."""


class Limits(NamedTuple):
    """Limits of integration errors.

    - `noise`: `{sensor: standard deviation}`, if known.
    - `residuals`: `{sensor: root mean square residual}`, after a fit.
    - `margin`: factor that divides the limits.
    """

    noise: Mapping[str, float]
    residuals: Mapping[str, float] = {}
    margin: float = 1.0

    def of(self, name: str, values: Sequence[np.ndarray]) -> float:
        """Largest permitted error of one sensor, in its own unit; `values` are its readings."""
        sizes = [float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))) for x in values]
        largest, eps = max(sizes), float(np.finfo(values[0].dtype).eps)
        known = self.noise.get(name)
        least = SHARE_OF_LARGEST * largest if known is None else SHARE_OF_NOISE * float(known)
        allowed = max(least, SHARE_OF_NOISE * self.residuals.get(name, 0.0))
        return max(allowed / self.margin, ROUNDING * eps * max(largest, 1.0))


class Integration(NamedTuple):
    """Estimated integration error of a number of substeps.

    - `errors`, `allowed`: `{sensor: largest error at sample times}` in all records, and its limit,
      in its own unit.
    - `difference`: the largest difference of motions in units of the limit.
    - `worst`: the record and the sensor of the largest error in these units.
    """

    substeps: int
    errors: dict[str, float]
    allowed: dict[str, float]
    difference: float
    worst: tuple[int, str]

    @property
    def excess(self) -> float:
        """Largest error in units of its limit."""
        return max((self.errors[name] / self.allowed[name] for name in self.errors), default=0.0)

    @property
    def is_met(self) -> bool:
        """True if all errors are within their limits."""
        return self.excess <= 1.0


class Motions(NamedTuple):
    """Motions of records for any number of substeps.

    - `run`: function from the number of substeps to readings of every record at its times.
    - `order`: order of the integrator.
    - `experiments`: the records.
    - `nearest`: function `(sensor, reading, other)` that returns the reading nearest to `other` of
      all readings equivalent to `reading`.
    """

    run: Callable[[int], Readings]
    order: int
    experiments: Sequence[Experiment]
    nearest: Callable[[str, Any, Any], Any] = lambda name, reading, other: reading

    @property
    def most(self) -> int:
        """The largest number of substeps that is tried, a power of two."""
        n = sum(e.ts.shape[0] - 1 for e in self.experiments)
        return 2 ** int(np.log2(np.clip(MOST_STEPS // n, 8, MOST_SUBSTEPS)))

    def measured(
        self, substeps: int, limits: Limits, coarser: Integration | None = None
    ) -> Integration:
        """Integration error of a number of substeps; `coarser`: that of half as many, if known."""
        coarse, fine = (
            [{name: np.asarray(x) for name, x in record.items()} for record in self.run(n)]
            for n in (substeps, 2 * substeps)
        )
        names = sorted({name for record in fine for name in record})
        allowed = {
            name: limits.of(name, [record[name] for record in fine if name in record])
            for name in names
        }
        differences = [
            {
                name: _largest_difference(np.asarray(self.nearest(name, a[name], b[name])), b[name])
                for name in a
            }
            for a, b in zip(coarse, fine, strict=True)
        ]
        shares = [
            (x / allowed[name], i, name)
            for i, record in enumerate(differences)
            for name, x in record.items()
        ]
        difference, i, name = max(shares, default=(0.0, 0, ""))  # There may be no motions.
        factor = self._factor(difference, coarser)
        errors = {
            name: factor * max(record[name] for record in differences if name in record)
            for name in names
        }
        return Integration(substeps, errors, allowed, difference, (i, name))

    def _factor(self, difference: float, coarser: Integration | None) -> float:
        """Error in units of the difference, from the ratio of differences."""
        rate = 2.0**self.order
        if coarser is not None and np.isfinite(coarser.difference) and difference > 0:
            rate = min(max(coarser.difference / difference, float(SLOWEST)), rate)
        return rate / (rate - 1.0)

    def chosen(self, limits: Limits, first: int = 1) -> Integration:
        """The least of `first`, 2 `first`, 4 `first`, … with errors within their limits.

        Up to `most`; if there is none, the least number with errors up to `AS_GOOD` times the
        smallest.
        """
        tried: list[Integration] = []
        substeps = first
        while not tried or (substeps <= self.most and not tried[-1].is_met):
            tried.append(self.measured(substeps, limits, tried[-1] if tried else None))
            substeps *= 2
        if tried[-1].is_met:
            return tried[-1]
        least = min(x.excess for x in tried)
        return next(x for x in tried if x.excess <= AS_GOOD * least)

    def warn(self, caller: str, integration: Integration, limits: Limits, given: bool) -> None:
        """Warn by `IntegrationWarning` of an error above its limit.

        **Arguments:** `caller`: name of the analysis; `given`: whether the number of substeps is
        the user's, so that a better one is searched.
        """
        i, name = integration.worst
        record = self.experiments[i]
        ts = np.asarray(record.ts)
        n = f"{integration.substeps} substep" + ("s" if integration.substeps > 1 else "")
        message = (
            f"{caller}: {n} in each sample interval leave an integration error of about "
            f"{integration.errors[name]:.2g} in {name!r} of {record.label.called(i)} "
            f"({ts[0]:g} s to {ts[-1]:g} s), where {integration.allowed[name]:.2g} is allowed; "
        )
        better = self.chosen(limits, 2 * integration.substeps) if given else integration
        if better.is_met:
            message += f"substeps={better.substeps} would do"
        else:
            message += (
                f"up to {max(self.most, better.substeps)} were tried. The motion may be chaotic, "
                "or forces not smooth: cut the record with `windows`, use another integrator, or "
                "pass substeps="
            )
        warn(message, IntegrationWarning)


def _largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest absolute difference; infinite if an entry of `a` or `b` is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    return float(np.max(np.where(np.isfinite(difference), difference, np.inf), initial=0.0))


def primal(tree: Any) -> Any:
    """The tree with `stop_gradient` of its arrays."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)


def warn_traced(caller: str) -> None:
    """Warn by `IntegrationWarning` that substeps of traced motions cannot be chosen."""
    warn(
        f"{caller}: the model or a record is traced, so that substeps cannot be chosen from the "
        "motion: the default is one step from sample to sample, of unknown error; pass substeps=",
        IntegrationWarning,
    )
