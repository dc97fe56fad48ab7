"""Fits of measured forces by the regressor: least squares, and the nearest possible bodies."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..bodies import RigidBody
from ..errors import DataError, ModelError
from ..inertia import from_inertial_parameters
from ..model import Model
from ..model.paths import follow
from ..model.values import as_instance, as_leaf, as_positive, require_concrete
from .base_parameters import BaseParameters, base_parameters
from .regressor import INERTIAL, Regressor

REWEIGHTINGS = 20  # Deviations change by less than a thousandth after a few of them.
MAX_STEPS = 1000
# Gradients of half the sum of squares by unknowns that are scaled to unit curvature at the start:
# steps end at the first one, and may end at the second one if rounding hides smaller ones.
TOLERANCE, ROUNDING = 1e-6, 1e-4


class LinearFit(eqx.Module):
    """Parameters fitted to forces, the result of `identify_linear`; `print` a table.

    - `base`: the base parameters; `values`, `standard_errors`: of them, by weighted least squares,
      shape `(r,)`. The errors hold for residuals that are not correlated over time.
    - `names`, `parameters`: all parameters, shape `(p,)`, of bodies that can exist.
    - `deviations`: standard deviations of the forces by which residuals were divided, shape `(n,)`.
    - `rms`, `rms_possible`: root mean square residuals of both, shape `(n,)`.
    - `condition`: condition number of the reduced regressor.
    - `converged`: whether the search for possible bodies ended at a minimum.
    """

    base: BaseParameters
    values: Float[np.ndarray, "r"]
    standard_errors: Float[np.ndarray, "r"]
    names: tuple[str, ...] = eqx.field(static=True)
    parameters: Float[np.ndarray, "p"]
    deviations: Float[np.ndarray, "n"]
    rms: Float[np.ndarray, "n"]
    rms_possible: Float[np.ndarray, "n"]
    condition: float
    converged: bool

    @property
    def relative_errors(self) -> Float[np.ndarray, "r"]:
        """Standard errors of the base parameters in percent of their values."""
        return 100.0 * self.standard_errors / np.abs(self.values)

    @property
    def bodies(self) -> dict[str, RigidBody]:
        """The bodies, all of them possible."""
        return {
            name: from_inertial_parameters(self.parameters[rows])
            for name, rows in _rows_of_bodies(self.names).items()
        }

    def model(self, model: Model) -> Model:
        """A model with the fitted parameters; columns of `with_columns` are left aside."""
        return with_parameters(model, self.names, self.parameters)

    def __str__(self) -> str:
        width = max(len(name) for name in self.base.names)
        width = min(width, 60)
        lines = [f"{'base parameter':<{width}}      estimate    std. error"]
        rows = zip(
            self.base.names, self.values, self.standard_errors, self.relative_errors, strict=True
        )
        for name, value, error, relative in rows:
            shown = name if len(name) <= width else f"{name[: width - 1]}…"
            lines.append(f"{shown:<{width}}  {value:12.5g}  {error:12.2g}  {relative:6.3g} %")
        both = self.rms, self.rms_possible
        texts = (" ".join(f"{x:.4g}" for x in each) for each in both)
        lines += ["rms residuals: {}; with possible bodies: {}".format(*texts)]
        lines.append(f"condition number {self.condition:.4g}")
        if not self.converged:
            lines.append("the search for possible bodies did not converge")
        return "\n".join(lines)


def identify_linear(
    Y: Regressor,
    forces: Any,
    deviations: Any = None,
    prior: float = 1.0,
    base: BaseParameters | None = None,
) -> LinearFit:
    """Fit the parameters of a regressor to measured forces.

    Base parameters follow by weighted least squares. All parameters, with bodies that can exist,
    follow from a search that starts from the values of the model. It minimizes the same sum of
    squares and the squared distances of the bodies from the model: each body has a pseudo-inertia
    `P = U E Eᵀ Uᵀ`, P₀ = U Uᵀ that of the model, with an upper triangular E. Its nonzero entries,
    logarithms on the diagonal, are divided by `prior`. These distances do not depend on units, and
    decide on what the forces do not show. Inertias of rotors, and parameters of friction, springs
    and dampers stay positive. The values of the model do not matter for these parameters.

    **Arguments:**

    - `Y`: regressor at many states; `forces`: measured forces, shape `(..., n)`; NaN is missing.
    - `deviations`: standard deviations of the forces, shape `(n,)`. Default: estimated from the
      residuals.
    - `prior`: standard deviation of the bodies from those of the model: 0.1 for reliable drawings,
      1 for rough guesses, 10 for no knowledge.
    - `base`: base parameters, for example of a motion that excites more. Default: those of `Y`.

    Errors in positions and their derivatives are errors of `Y`, which bias the result: smooth the
    positions first (`smooth_motion`), or continue with `identify`, which needs no derivatives.

    Source: Rucker & Wensing (2022), "Smooth parameterization of rigid-body inertia", for the
    triangular factors.

    **Raises** `DataError` for forces of another shape, and if there are too few of them.

    For example:

        rng = np.random.default_rng(0)
        Y = mbd.regressor(system, 0.0, *rng.normal(size=(3, 50, system.nv)))
        torques = Y.forces() + 0.01 * rng.normal(size=(50, system.nv))
        fit = mbd.identify_linear(Y, torques)
        fit.values, fit.relative_errors, fit.bodies["rod"].mass
    """
    Y = as_instance(Y, Regressor, "identify_linear: Y", "a Regressor")
    require_concrete("identify_linear", (Y, forces))
    prior = as_positive(prior, "identify_linear: prior")
    base = base_parameters(Y) if base is None else base
    as_instance(base, BaseParameters, "identify_linear: base", "BaseParameters")
    matrix, b = _stacked(Y, forces)
    by_row = [_triangle(matrix[:, i], b[:, i]) for i in range(b.shape[1])]
    given = _given_deviations(deviations, len(by_row))
    reduced = [_reduced(x, base.columns) for x in by_row]
    sigma, (values, covariance) = _reweighted(reduced, given)
    start = _start(Y, by_row, sigma, base, values)
    theta, converged = _possible(_stack_triangles(by_row, sigma), Y.names, start, prior)
    rms = [x.rms(values) for x in reduced]
    return LinearFit(
        base,
        values,
        np.sqrt(np.diagonal(covariance)),
        Y.names,
        theta,
        sigma,
        np.array(rms),
        np.array([x.rms(theta) for x in by_row]),
        base.condition(Y),
        converged,
    )


class _Triangle(NamedTuple):
    """‖A x - b‖² = ‖R x - c‖² + rest² of the `n_rows` rows of one force."""

    R: np.ndarray
    c: np.ndarray
    rest: float
    n_rows: int

    def sum(self, x: np.ndarray) -> float:
        return float(np.sum((self.R @ x - self.c) ** 2) + self.rest**2)

    def rms(self, x: np.ndarray) -> float:
        return float(np.sqrt(self.sum(x) / self.n_rows))


def _stacked(Y: Regressor, forces: Any) -> tuple[np.ndarray, np.ndarray]:
    tau = np.asarray(as_leaf(forces, None, "identify_linear: forces"), dtype=float)
    if tau.shape != Y.rest.shape:
        raise DataError(
            f"identify_linear: forces have shape {tau.shape}, those of Y {Y.rest.shape}"
        )
    n = tau.shape[-1]
    matrix = np.asarray(Y.matrix, dtype=float).reshape(-1, n, len(Y.names))
    if not np.all(np.isfinite(matrix)):
        raise DataError("identify_linear: Y has values that are not finite")
    return matrix, (tau - np.asarray(Y.rest)).reshape(-1, n)


def _triangle(A: np.ndarray, b: np.ndarray) -> _Triangle:
    measured = np.isfinite(b)
    if measured.sum() < 2:
        raise DataError("identify_linear: a force has fewer than two measured values")
    A, b = A[measured], b[measured]
    p = A.shape[1]
    R: Any = np.linalg.qr(np.column_stack([A, b]), mode="r")
    R = np.concatenate([R, np.zeros((max(0, p + 1 - len(R)), p + 1))])
    return _Triangle(R[:p, :p], R[:p, p], abs(R[p, p]), len(b))


def _reduced(x: _Triangle, columns: tuple[int, ...]) -> _Triangle:
    """The rows with the columns of base parameters only."""
    A = np.column_stack([x.R[:, list(columns)], x.c])
    r = len(columns)
    R: Any = np.linalg.qr(A, mode="r")
    R = np.concatenate([R, np.zeros((max(0, r + 1 - len(R)), r + 1))])
    return _Triangle(R[:r, :r], R[:r, r], float(np.hypot(R[r, r], x.rest)), x.n_rows)


def _stack_triangles(parts: list[_Triangle], sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and c of all forces, divided by their deviations."""
    A = np.concatenate([x.R / s for x, s in zip(parts, sigma, strict=True)])
    c = np.concatenate([x.c / s for x, s in zip(parts, sigma, strict=True)])
    R: Any = np.linalg.qr(np.column_stack([A, c]), mode="r")
    return R[:, :-1], R[:, -1]


def _given_deviations(deviations: Any, n: int) -> np.ndarray | None:
    if deviations is None:
        return None
    sigma = np.asarray(as_leaf(deviations, None, "identify_linear: deviations"), dtype=float)
    if sigma.shape != (n,) or not np.all((sigma > 0) & np.isfinite(sigma)):
        raise DataError(f"identify_linear: deviations must be {n} positive numbers, got {sigma}")
    return sigma


def _reweighted(
    parts: list[_Triangle], given: np.ndarray | None
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Deviations, and values with covariance of the weighted least squares."""
    count = sum(x.n_rows for x in parts)
    if count <= parts[0].R.shape[1]:
        raise DataError(
            f"identify_linear: {count} measured forces for {parts[0].R.shape[1]} base parameters"
        )
    sigma = np.ones(len(parts)) if given is None else given
    values = covariance = np.zeros(0)
    for _ in range(REWEIGHTINGS):
        R, c = _stack_triangles(parts, sigma)
        values = np.linalg.lstsq(R, c, rcond=None)[0]
        inverse = np.linalg.pinv(R)
        covariance = inverse @ inverse.T
        if given is not None:
            break
        # Degrees of freedom of each force: its rows without its share of the parameters.
        own = [
            x.n_rows - np.trace(covariance @ (x.R.T @ x.R)) / s**2
            for x, s in zip(parts, sigma, strict=True)
        ]
        least = 1e-12 * max(np.linalg.norm(x.c) for x in parts) / np.sqrt(count)
        new = np.array(
            [np.sqrt(x.sum(values) / max(k, 1.0)) for x, k in zip(parts, own, strict=True)]
        )
        new = np.maximum(new, max(least, 1e-300))
        settled = np.all(np.abs(new / sigma - 1) < 1e-3)
        sigma = new
        if settled:
            break
    return sigma, (values, covariance)


# Possible bodies ----------------------------------------------------------------------------------


def _rows_of_bodies(names: tuple[str, ...]) -> dict[str, list[int]]:
    """The ten rows of each body among all parameters."""
    known = {name: k for k, name in enumerate(names)}
    bodies = [name.removesuffix(".Izz") for name in names if name.endswith(".Izz")]
    return {body: [known[f"{body}.{part}"] for part in INERTIAL] for body in bodies}


def _is_positive(name: str) -> bool:
    fields = "inertia", "coefficient", "torque", "coulomb", "static", "viscous"
    fields = *fields, "stiffness", "damping"
    return name.rpartition(".")[2].partition("[")[0] in fields


def _start(
    Y: Regressor,
    parts: list[_Triangle],
    sigma: np.ndarray,
    base: BaseParameters,
    values: np.ndarray,
) -> np.ndarray:
    """Parameters from which the search starts: bodies of the model, others by least squares."""
    theta = np.array(Y.parameters, dtype=float)
    own = {k for rows in _rows_of_bodies(Y.names).values() for k in rows}
    others = [k for k in range(len(Y.names)) if k not in own]
    if not others:
        return theta
    R, c = _stack_triangles(parts, sigma)
    A, rest = R[:, others], c - R[:, sorted(own)] @ theta[sorted(own)]
    sizes = np.linalg.norm(A, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    found = np.linalg.lstsq(A / sizes, rest, rcond=1e-10)[0] / sizes
    for k, x, size in zip(others, found, sizes, strict=True):
        # A positive start whose effect is one deviation of one force, where that is impossible.
        theta[k] = max(x, 1.0 / size) if _is_positive(Y.names[k]) else x
    return theta


class _Search(NamedTuple):
    """Half the sum of squares of residuals in deviations and of distances of bodies.

    Unknowns are E of each body, then roots or steps of the others. A body has the pseudo-inertia
    U L Lᵀ Uᵀ, L upper triangular with exp(E[:4]) on its diagonal and E[4:] above it. These ten
    entries are y, and the parameters of the body are the quadratic forms yᵀ F y.
    """

    # In NumPy: JAX compiles these functions for longer than whole fits take.
    R: np.ndarray
    c: np.ndarray
    forms: np.ndarray  # F of each body and parameter, shape `(bodies, 10, 10, 10)`.
    of_bodies: np.ndarray
    start: np.ndarray
    others: np.ndarray
    positive: np.ndarray
    sizes: np.ndarray
    prior: float

    def _bodies(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y of each body, its derivative by E, and half the derivative of its parameters by y."""
        y = x[: self.of_bodies.size].reshape(-1, 10).copy()
        y[:, :4] = np.exp(y[:, :4])
        rate = np.concatenate([y[:, :4], np.ones((len(y), 6))], axis=1)
        return y, rate, (self.forms @ y[:, None, :, None])[..., 0]

    def parameters(self, x: np.ndarray) -> np.ndarray:
        """All parameters."""
        y, _, half = self._bodies(x)
        o, theta, first = x[self.of_bodies.size :], self.start.copy(), self.start[self.others]
        theta[self.of_bodies] = (half @ y[:, :, None])[..., 0]
        theta[self.others] = np.where(self.positive, first * (1 + o) ** 2, first + o / self.sizes)
        return theta

    def distances(self, x: np.ndarray) -> np.ndarray:
        """Distances of the bodies from the model, divided by `prior`."""
        return x[: self.of_bodies.size] / self.prior

    def columns(self, x: np.ndarray) -> np.ndarray:
        """Derivatives of the residuals."""
        _, rate, half = self._bodies(x)
        of_bodies = self.R[:, self.of_bodies].transpose(1, 0, 2) @ (2 * half * rate[:, None])
        o, first = x[self.of_bodies.size :], self.start[self.others]
        slope = np.where(self.positive, 2 * first * (1 + o), 1 / self.sizes)
        others = self.R[:, self.others] * slope
        return np.concatenate([*of_bodies, others], axis=1)

    def cost(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The cost and its gradient."""
        r, distances = self.R @ self.parameters(x) - self.c, self.distances(x)
        gradient = self.columns(x).T @ r
        gradient[: len(distances)] += distances / self.prior
        return 0.5 * float(r @ r + distances @ distances), gradient

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """Second derivatives of the cost, also those that Gauss and Newton neglect."""
        y, rate, _ = self._bodies(x)
        columns = self.columns(x)
        H = columns.T @ columns
        by_theta = self.R.T @ (self.R @ self.parameters(x) - self.c)
        bent = 2 * np.einsum("bk,bkij->bij", by_theta[self.of_bodies], self.forms)
        own = bent * rate[:, :, None] * rate[:, None]
        own[:, range(4), range(4)] += (bent @ y[:, :, None])[:, :4, 0] * rate[:, :4]
        for k, block in enumerate(own):
            H[10 * k : 10 * k + 10, 10 * k : 10 * k + 10] += block
        of_others = np.where(self.positive, 2 * self.start[self.others], 0.0)
        of_prior = np.full(self.of_bodies.size, self.prior**-2.0)
        H[np.diag_indices(len(x))] += np.append(of_prior, of_others * by_theta[self.others])
        return H

    def minimum(self) -> tuple[np.ndarray, bool]:
        """All parameters at the minimum, and whether it was reached.

        Newton's method in a trust region: at the edge of what is possible, where fits to measured
        forces often end, curvatures that Gauss and Newton neglect are ten times as large as others.
        """
        x = np.zeros(self.of_bodies.size + len(self.others))
        # The first deviations are so large that residuals at the start are no larger than they.
        worst = float(np.linalg.norm(self.R @ self.parameters(x) - self.c))
        steps = 1 + max(0, int(np.ceil(np.log10(worst + 1e-300))))
        converged = False
        for factor in np.geomspace(max(worst, 1.0), 1.0, steps):
            x, converged = _newton(x, self._replace(R=self.R / factor, c=self.c / factor))
        return self.parameters(x), converged


def _newton(x: np.ndarray, search: _Search) -> tuple[np.ndarray, bool]:
    """The minimum from x, and whether it was reached."""
    from scipy.optimize import minimize

    influence = np.sqrt(np.abs(np.diagonal(search.hessian(x))))
    scale = np.where(influence > 0, influence, 1.0)

    def cost(y: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = search.cost(y / scale)
        return value, gradient / scale

    def hessian(y: np.ndarray) -> np.ndarray:
        return search.hessian(y / scale) / np.outer(scale, scale)

    options = {"gtol": TOLERANCE, "maxiter": MAX_STEPS, "initial_trust_radius": 1.0}
    options |= {"max_trust_radius": 1e6}
    found = minimize(cost, x * scale, method="trust-exact", jac=True, hess=hessian, options=options)
    # Rounding of the cost ends steps: the gradient that is then left is of no importance.
    left = float(np.linalg.norm(found.jac))
    return found.x / scale, bool(found.success or left < ROUNDING * np.sqrt(1.0 + found.fun))


def _possible(
    triangle: tuple[np.ndarray, np.ndarray], names: tuple[str, ...], start: np.ndarray, prior: float
) -> tuple[np.ndarray, bool]:
    """Parameters of possible bodies that fit best."""
    bodies = _rows_of_bodies(names)
    of_bodies = np.array(list(bodies.values()), dtype=int).reshape(-1, 10)
    others = np.setdiff1d(np.arange(len(names)), of_bodies)
    positive = np.array([_is_positive(names[k]) for k in others], dtype=bool)
    forms = np.zeros((len(bodies), 10, 10, 10))
    for k, (name, rows) in enumerate(bodies.items()):
        try:
            forms[k] = _forms(_upper_factor(_pseudo_inertia_of(start[rows])))
        except np.linalg.LinAlgError as error:
            problem = from_inertial_parameters(start[rows]).validate() or "its mass is on a plane"
            raise ModelError(f"identify_linear: body {name!r} of the model: {problem}") from error
    R, c = triangle
    sizes = np.linalg.norm(R[:, others], axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    return _Search(R, c, forms, of_bodies, start, others, positive, sizes, prior).minimum()


def _pseudo_inertia_of(theta: np.ndarray) -> np.ndarray:
    """P = [[Σ, h], [hᵀ, m]] with the second moments Σ = ½ tr(I) 1 - I."""
    m, h = theta[0], theta[1:4]
    xx, xy, yy, xz, yz, zz = theta[4:]
    I = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return np.block([[0.5 * np.trace(I) * np.eye(3) - I, h[:, None]], [h[None], np.array([[m]])]])


def _upper_factor(P: np.ndarray) -> np.ndarray:
    """U of P = U Uᵀ, a lower Cholesky factor in reversed order."""
    return np.linalg.cholesky(P[::-1, ::-1])[::-1, ::-1]


def _forms(U: np.ndarray) -> np.ndarray:
    """The inertial parameters of U L Lᵀ Uᵀ as quadratic forms in the entries of L.

    L is upper triangular; its entries are those on the diagonal, then those above it.
    """
    rows, columns = np.triu_indices(4, 1)
    units = np.zeros((10, 4, 4))
    rows, columns = np.append(np.arange(4), rows), np.append(np.arange(4), columns)
    units[np.arange(10), rows, columns] = 1.0
    factors = U @ units
    P = np.einsum("iab,jcb->ijac", factors, factors)
    P = 0.5 * (P + P.swapaxes(0, 1))
    second = P[..., :3, :3]
    I = np.trace(second, axis1=2, axis2=3)[..., None, None] * np.eye(3) - second
    xx, xy, yy, xz, yz, zz = (I[..., i, j] for j in range(3) for i in range(j + 1))
    return np.stack([P[..., 3, 3], *(P[..., k, 3] for k in range(3)), xx, xy, yy, xz, yz, zz])


# Models -------------------------------------------------------------------------------------------


def with_parameters(model: Model, names: tuple[str, ...], values: Any) -> Model:
    """A model with the parameters of a regressor; names that the model does not have are ignored.

    **Raises** `ModelError` for inertial parameters that no body has.
    """
    theta = np.asarray(values, dtype=float)
    model = as_instance(model, Model, "model: model", "a Model")
    bodies: dict[str, Any] = {}
    for name, rows in _rows_of_bodies(names).items():
        if name in model.bodies:
            bodies[name] = from_inertial_parameters(theta[rows])
    changes: dict[str, Any] = {}
    for name, value in zip(names, theta, strict=True):
        name, _, entry = name.partition("[")
        path = _path(model, name)
        if path is None:
            continue
        if entry:
            whole = changes.setdefault(path, np.array(follow(model, path)))
            whole.flat[int(entry.rstrip("]"))] = value
        else:
            changes[path] = value
    return model.with_(bodies=bodies).replace(changes)


def _path(model: Model, name: str) -> str | None:
    """The path of a leaf of a rotor or a force, or None."""
    for kind, components in (("rotors", model.rotors), ("forces", model.forces)):
        for component in components:
            field = name.removeprefix(f"{component}.")
            if field != name:
                return f"{kind}.{component}.{'signal.value' if field == 'value' else field}"
    return None
