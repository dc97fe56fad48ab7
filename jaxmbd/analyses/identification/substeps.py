"""Numbers of steps within a sample interval, chosen from an estimate of the integration error.

A motion of n steps a sample interval is compared at the sample times with that of 2n steps. For a
method of order p the error of the former is 2^p / (2^p - 1) of their difference (Richardson's
extrapolation); if differences have been seen to fall more slowly, as with jumps of an input or with
dry friction, by the factor that they fall by.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .experiment import Experiment

# Allowed error: so much of the standard deviation of a reading,
SHARE_OF_NOISE = 0.01
# of the largest reading of a sensor where no deviation is known,
SHARE_OF_LARGEST = 1e-6
# and at least so many units of rounding, of the largest reading or of one.
ROUNDING = 1e3
# Before a fit the error is to be smaller by this factor: the parameters will move.
MARGIN = 4.0
# No more substeps than this are tried, and no more than make so many steps of all records.
MOST_SUBSTEPS = 256
MOST_STEPS = 500_000
# Of errors that are all too large, one up to this factor above the least is as good.
AS_GOOD = 2.0
# Differences of motions are taken to fall by at least this factor as steps are halved.
SLOWEST = np.sqrt(2.0)

Readings = Sequence[Mapping[str, Any]]


class IntegrationWarning(UserWarning):
    """Steps between samples are too long; says where, by how much, and how many would do."""


class Limits(NamedTuple):
    """What an integration error is compared with.

    - `noise`: `{sensor: standard deviation}`, of those that are known.
    - `residuals`: `{sensor: root mean square residual}`, where there has been a fit.
    - `margin`: the factor by which errors are to be smaller than what is allowed.
    """

    noise: Mapping[str, float]
    residuals: Mapping[str, float] = {}
    margin: float = 1.0

    def of(self, name: str, values: Sequence[np.ndarray]) -> float:
        """Allowed error of one sensor, in its own unit, by its readings in all records."""
        sizes = [float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))) for x in values]
        largest, eps = max(sizes), float(np.finfo(values[0].dtype).eps)
        known = self.noise.get(name)
        least = SHARE_OF_LARGEST * largest if known is None else SHARE_OF_NOISE * float(known)
        allowed = max(least, SHARE_OF_NOISE * self.residuals.get(name, 0.0))
        return max(allowed / self.margin, ROUNDING * eps * max(largest, 1.0))


class Integration(NamedTuple):
    """Estimated integration error of a number of substeps.

    - `errors`, `allowed`: `{sensor: largest error at sample times}` in all records, and what is
      allowed of it, in its own unit.
    - `difference`: the largest difference of motions in units of what is allowed.
    - `worst`: the record and the sensor of the largest error in these units.
    """

    substeps: int
    errors: dict[str, float]
    allowed: dict[str, float]
    difference: float
    worst: tuple[int, str]

    @property
    def excess(self) -> float:
        """Largest error in units of what is allowed."""
        return max(self.errors[name] / self.allowed[name] for name in self.errors)

    @property
    def is_met(self) -> bool:
        """Whether all errors are allowed."""
        return self.excess <= 1.0


class Motions(NamedTuple):
    """Motions of records by any number of substeps.

    - `run`: readings of every record at its times, by the number of substeps.
    - `order`: of the integrator.
    - `experiments`: the records.
    - `nearest`: of all readings of a sensor, by name, that mean the same as one, the nearest to
      another.
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
        """Integration error of one number; `coarser` is that of half as many, if it is known."""
        coarse, fine = (
            [{name: np.asarray(x) for name, x in record.items()} for record in self.run(n)]
            for n in (substeps, 2 * substeps)
        )
        names = sorted({name for record in fine for name in record})
        allowed = {
            name: limits.of(name, [record[name] for record in fine if name in record])
            for name in names
        }
        found = [
            {
                name: _largest_difference(np.asarray(self.nearest(name, a[name], b[name])), b[name])
                for name in a
            }
            for a, b in zip(coarse, fine, strict=True)
        ]
        shares = [
            (x / allowed[name], i, name)
            for i, record in enumerate(found)
            for name, x in record.items()
        ]
        difference, i, name = max(shares)
        factor = self._factor(difference, coarser)
        errors = {
            name: factor * max(record[name] for record in found if name in record) for name in names
        }
        return Integration(substeps, errors, allowed, difference, (i, name))

    def _factor(self, difference: float, coarser: Integration | None) -> float:
        """Error in units of the difference, from how much differences fall."""
        rate = 2.0**self.order
        if coarser is not None and np.isfinite(coarser.difference) and difference > 0:
            rate = min(max(coarser.difference / difference, float(SLOWEST)), rate)
        return rate / (rate - 1.0)

    def chosen(self, limits: Limits, first: int = 1) -> Integration:
        """The least of `first`, 2 `first`, 4 `first`, … whose errors are allowed.

        Up to `most`; if none is, the least of those whose errors are about as small as any.
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

    def warn(self, who: str, found: Integration, limits: Limits, given: bool, level: int) -> None:
        """`IntegrationWarning` of an error that is not allowed.

        **Arguments:** `who` warns; `given`, whether the number is the user's, so that another one
        is looked for; `level`, that of the user's code above the caller.
        """
        i, name = found.worst
        ts = np.asarray(self.experiments[i].ts)
        n = f"{found.substeps} substep" + ("s" if found.substeps > 1 else "")
        message = (
            f"{who}: {n} in each sample interval leave an integration error of about "
            f"{found.errors[name]:.2g} in {name!r} of experiment {i} ({ts[0]:g} s to {ts[-1]:g} "
            f"s), where {found.allowed[name]:.2g} is allowed; "
        )
        better = self.chosen(limits, 2 * found.substeps) if given else found
        if better.is_met:
            message += f"substeps={better.substeps} would do"
        else:
            message += (
                f"up to {max(self.most, better.substeps)} were tried. The motion may be chaotic, "
                "or forces not smooth: cut the record with `windows`, use another integrator, or "
                "pass substeps="
            )
        warnings.warn(message, IntegrationWarning, stacklevel=level + 1)


def _largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Infinite where one of both is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    return float(np.max(np.where(np.isfinite(difference), difference, np.inf), initial=0.0))


def primal(tree: Any) -> Any:
    """The numbers of a tree, without their derivatives where those are being taken."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)


def warn_traced(who: str, level: int) -> None:
    """`IntegrationWarning` of numbers that cannot be looked at, so that nothing can be chosen."""
    warnings.warn(
        f"{who}: the model or a record is traced, so that substeps cannot be chosen from the "
        "motion: it takes one step from sample to sample, whose error is unknown; pass substeps=",
        IntegrationWarning,
        stacklevel=level + 1,
    )


__all__ = ["Integration", "IntegrationWarning", "Limits", "Motions", "primal", "warn_traced"]
