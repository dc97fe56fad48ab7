"""Derivatives by name: scaled, relative, and for propagation of uncertainty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..identification.fit import Fit
from ..model.model import unknown
from .uncertainty import Uncertainty, by_label, covariance_of, propagated


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Derivatives, the result of `sensitivities`; `print` it for a table of scalar results.

    - `labels`: labels of the k parameters.
    - `values`: values of the parameters, shape `(k,)`.
    - `outputs`: `{name: array}`, the results.
    - `slopes`: `{name: array}`, the derivatives of a result, with a leading axis of length k.
    - `mode`: `"forward"` or `"reverse"`.
    """

    labels: tuple[str, ...]
    values: np.ndarray
    outputs: dict[str, np.ndarray]
    slopes: dict[str, np.ndarray]
    mode: str

    def slope(self, name: str, label: str) -> np.ndarray:
        """Derivative of one result by one parameter, shaped like the result.

        **Raises** `KeyError`, with the known names, for an unknown name.
        """
        if name not in self.slopes:
            raise KeyError(unknown("unknown result", name, self.slopes))
        if label not in self.labels:
            raise KeyError(unknown("unknown parameter", label, dict.fromkeys(self.labels)))
        return np.asarray(self.slopes[name][self.labels.index(label)])

    def scaled(self, sizes: Mapping[str, float] | None = None) -> dict[str, np.ndarray]:
        """Linear changes of results for a change of each parameter: slopes times `sizes`.

        All are in the unit of the result, and can be compared with each other.

        **Arguments:** `sizes`: change of every parameter by label, such as its tolerance. Default:
        its value p, for p ∂y/∂p.

        **Raises** `ModelError`, with labels, for sizes that are missing, unknown or not finite, and
        without `sizes` for a parameter that is zero.
        """
        if sizes is None:
            zero = [n for n, p in zip(self.labels, self.values, strict=True) if p == 0]
            if zero:
                raise ModelError(f"sensitivities: {', '.join(zero)} is zero; give sizes of changes")
            factors = self.values
        else:
            factors = by_label(sizes, self.labels, "sizes")
        return {
            name: dy * factors.reshape(-1, *[1] * (dy.ndim - 1)).astype(dy.dtype)
            for name, dy in self.slopes.items()
        }

    def relative(self) -> dict[str, np.ndarray]:
        """(p / y) ∂y/∂p: change of the result in percent for one percent of the parameter.

        NaN if the result is zero.
        """
        relative = {}
        for name, dy in self.slopes.items():
            y = self.outputs[name]
            p = self.values.reshape(-1, *[1] * y.ndim).astype(dy.dtype)
            relative[name] = np.where(y != 0, p * dy / np.where(y != 0, y, 1), np.nan)
        return relative

    def propagate(
        self,
        uncertainty: Fit | Mapping[str, float] | np.ndarray,
        *,
        ignore: Sequence[str] = (),
    ) -> Uncertainty:
        """Linear uncertainty of the results: variances diag(S C Sᵀ).

        The result is accurate if slopes are nearly constant over the uncertainties, which
        `mbd.sweep` over the same distributions shows.

        **Arguments:**

        - `uncertainty`: a `Fit` of these parameters, if `sensitivities` was evaluated at its
          model; standard deviations of independent parameters by label; or a covariance, shape
          `(k, k)`.
        - `ignore`: labels of the fit on which no result depends, such as biases of sensors.

        **Raises** `ModelError`, with labels, if a deviation is missing, negative or not finite, a
        matrix is not a covariance, or the fit has other parameters or other values of them; and
        `DataError` if the fit's data do not distinguish a parameter from others.
        """
        C = covariance_of(uncertainty, self.labels, self.values, tuple(ignore))
        return propagated(self.labels, C, self.outputs, self.slopes)

    def to_xarray(
        self,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Any] | None = None,
    ) -> Any:
        """An `xarray.Dataset`: every result, and as `d_<result>` its derivatives over `parameter`,
        with the parameters' values as the coordinate `value`. Needs the extra `io`.

        **Arguments:** `dims`, `{result: dimensions}`; `coords`, `{dimension: values}`.
        """
        from ..io.dataset import sensitivities_to_dataset

        return sensitivities_to_dataset(self, dims or {}, coords or {})

    def plot(
        self,
        ts: Any = None,
        outputs: Sequence[str] | None = None,
        sizes: Mapping[str, float] | None = None,
    ) -> Any:
        """Derivatives of trajectories over time, `scaled(sizes)`; needs the extra `viz`.

        **Arguments:** `ts`: times [s]. Default: row numbers. `outputs`: names of results of shape
        `(n,)` or `(n, m)` to show. Default: all. `sizes`: as for `scaled`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from ..viz.sensitivities import plot_sensitivities

        return plot_sensitivities(self, ts, outputs, sizes)

    def __str__(self) -> str:
        numbers = [name for name, y in self.outputs.items() if y.ndim == 0]
        arrays = [f"{name} {y.shape}" for name, y in self.outputs.items() if y.ndim]
        lines, relative = [], self.relative()
        wide, width = (max(map(len, [*of, "parameter p"])) for of in (numbers, self.labels))
        if numbers:
            head = f"{'result y':<{wide}}  {'parameter p':<{width}}  {'p':>12}"
            lines.append(f"{head}  {'dy/dp':>12}  {'p/y dy/dp':>12}")
        for name in numbers:
            rows = zip(self.labels, self.values, self.slopes[name], relative[name], strict=True)
            lines += [
                f"{name:<{wide}}  {label:<{width}}  {p:12.6g}  {dy:12.6g}  {share:12.4g}"
                for label, p, dy, share in rows
            ]
        lines += [f"in slopes only, by {', '.join(self.labels)}: {', '.join(arrays)}"] * bool(
            arrays
        )
        return "\n".join(lines)
