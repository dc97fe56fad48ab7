"""Derivatives of an oscillator's motion, what follows from them, and Sobol's indices."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd import distributions as laws
from jaxmbd import reducers
from jaxmbd.identification.transforms import Entries, PhysicalBody, Positive, Scaled
from jaxmbd.sweeps import distributions

START, DT, N = 0.1, 0.02, 50
TIMES = DT * np.arange(1, N + 1)
# In an order that is not the alphabet's.
VALUES = {"stiffness": 40.0, "mass": 1.2, "damping": 0.8}
SELECT = {
    "stiffness": mbd.Parameter("forces.spring.stiffness", Positive()),
    "mass": "bodies.cart.mass",
    "damping": lambda m: m.forces["spring"].damping,
}
ONE_PERCENT = {name: 0.01 * value for name, value in VALUES.items()}


def oscillator(stiffness=40.0, mass=1.2, damping=0.8):
    spring = mbd.forces.TorsionalSpringDamper("slide", stiffness, damping)
    return mbd.Model(
        bodies={"cart": mbd.RigidBody(mass, [0.2, 0.3, 0.4], com=[0.1, 0.0, 0.0])},
        joints={"slide": mbd.joints.Prismatic(mbd.ground, "cart", axis=[1, 0, 0])},
        forces={"spring": spring},
    )


def motion(model):
    system = mbd.formulate(model, mbd.JointCoordinates())
    states = mbd.rollout(system, mbd.assemble(system, {"slide": START}), DT, N)
    return {"x": states.q[:, 0], "end": {"speed": states.v[-1, 0]}}


def closed_form(p):
    """Damped oscillation from rest, and the speed at its end; p as in VALUES."""
    k, m, c = p
    decay = 0.5 * c / m
    w = jnp.sqrt(k / m - decay**2)

    def x(t):
        return START * jnp.exp(-decay * t) * (jnp.cos(w * t) + decay / w * jnp.sin(w * t))

    return jax.vmap(x)(jnp.asarray(TIMES)), jax.grad(x)(TIMES[-1])


@functools.cache
def found(mode="forward"):
    return mbd.sensitivities(motion, oscillator(), SELECT, mode=mode)


@functools.cache
def swept():
    """One sweep: six models for central differences, and 4090 drawn with deviations of 0.5 %."""
    names, values = list(VALUES), np.array([*VALUES.values()])
    off = 1e-4 * np.diag(values)
    drawn = values * (1 + 0.005 * np.random.default_rng(1).normal(size=(4090, 3)))
    rows = np.concatenate([values + off, values - off, drawn])

    def fn(scenario):
        changed = eqx.tree_at(
            lambda m: (m.forces["spring"].stiffness, m.bodies["cart"].mass, SELECT["damping"](m)),
            oscillator(),
            tuple(scenario[name] for name in names),
        )
        return motion(changed)

    scenarios = dict(zip(names, rows.T, strict=True))
    return mbd.sweep(fn, scenarios, chunk=4096, dims={"x": ("time",)}, progress=False)


@pytest.mark.thorough
def test_slopes_of_a_trajectory():
    """Against the formula, and against central differences."""
    slopes = found().slopes
    assert found().labels == tuple(VALUES)
    np.testing.assert_allclose(found().values, [*VALUES.values()], rtol=1e-14)
    p = jnp.array([*VALUES.values()])
    (path, _), (x, speed) = jax.jit(lambda p: (closed_form(p), jax.jacfwd(closed_form)(p)))(p)
    np.testing.assert_allclose(found().outputs["x"], path, atol=1e-8 * START)
    x, largest = np.asarray(x), np.abs(x).max(axis=0)[None]
    assert slopes["x"].shape == (3, N)
    np.testing.assert_array_less(
        np.abs(slopes["x"].T - x), 1e-6 * np.broadcast_to(largest, x.shape)
    )
    np.testing.assert_allclose(slopes["end.speed"], speed, rtol=1e-5)
    data, steps = swept(), 2e-4 * np.array([*VALUES.values()])
    for name in ("x", "end.speed"):
        up, down = data[name].values[:3], data[name].values[3:6]
        differences = ((up - down).T / steps).T
        np.testing.assert_allclose(slopes[name], differences, atol=1e-6 * np.abs(differences).max())
    np.testing.assert_array_equal(found().slope("end.speed", "mass"), slopes["end.speed"][1])


@pytest.mark.thorough
def test_both_modes_agree_through_a_rollout():
    forward, reverse = found(), found("reverse")
    assert (forward.mode, reverse.mode) == ("forward", "reverse")
    for name, slopes in forward.slopes.items():
        scale = np.abs(slopes).max()
        np.testing.assert_allclose(reverse.slopes[name], slopes, rtol=1e-9, atol=1e-11 * scale)
        np.testing.assert_allclose(reverse.outputs[name], forward.outputs[name], rtol=1e-12)


@pytest.mark.long
@pytest.mark.smoke
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_derivatives_are_by_what_is_reported(mode):
    def fn(model):
        body = model.bodies["cart"]
        return {"y": body.mass * body.com[0] + body.inertia[0, 1] + 3 * body.inertia[2, 2]}

    by_body = mbd.sensitivities(
        fn, oscillator(), {"cart": mbd.Parameter("bodies.cart", PhysicalBody())}, mode=mode
    )
    wanted = dict.fromkeys(by_body.labels, 0.0)
    wanted |= {"cart mass": 0.1, "cart com x": 1.2, "cart Jxy": 1.0, "cart Jzz": 3.0}
    np.testing.assert_allclose(by_body.slopes["y"], [*wanted.values()], atol=1e-12)
    factor = mbd.Parameter("bodies.cart.inertia", Scaled())
    by_factor = mbd.sensitivities(fn, oscillator(), {"J": factor}, mode=mode)
    assert by_factor.slope("y", "J (factor)") == pytest.approx(1.2)
    apart = {
        "Jxy": mbd.Parameter("bodies.cart.inertia", Entries((0, 1), (1, 0))),
        "Jzz": mbd.Parameter("bodies.cart.inertia", Entries((2, 2), inner=Positive())),
    }
    by_entry = mbd.sensitivities(fn, oscillator(), apart, mode=mode)
    np.testing.assert_allclose(by_entry.slopes["y"], [1.0, 3.0], rtol=1e-12)


def test_sizes_choose_the_mode():
    def fn(model):
        return {"y": jnp.sum(model.bodies["cart"].inertia)}

    nine, twelve = ["bodies.cart.inertia"], ["bodies.cart.inertia", "bodies.cart.com"]
    assert mbd.sensitivities(fn, oscillator(), nine).mode == "forward"
    assert mbd.sensitivities(fn, oscillator(), twelve).mode == "reverse"


@pytest.mark.long
def test_scaled_and_relative():
    p, y = np.array([*VALUES.values()]), found().outputs["x"]
    slopes = found().slopes["x"]
    np.testing.assert_allclose(found().scaled()["x"], p[:, None] * slopes)
    np.testing.assert_allclose(found().scaled(ONE_PERCENT)["x"], 0.01 * p[:, None] * slopes)
    np.testing.assert_allclose(found().relative()["x"], p[:, None] * slopes / y)

    def at_zero(model):
        return {"y": model.bodies["cart"].mass - 1.2, "b": model.forces["spring"].rest + 1.0}

    select = {"mass": "bodies.cart.mass", "rest": "forces.spring.rest"}
    zero = mbd.sensitivities(at_zero, oscillator(), select)
    assert np.isnan(zero.relative()["y"]).all()
    np.testing.assert_array_equal(zero.relative()["b"], [0.0, 0.0])
    with pytest.raises(mbd.ModelError, match="rest is zero; give sizes"):
        zero.scaled()


@pytest.mark.long
def test_linear_propagation_beside_monte_carlo():
    """Deviations of 0.5 %: both agree within four standard errors of a deviation, 1/√(2n)."""
    deviations = {name: 0.005 * value for name, value in VALUES.items()}
    linear, data = found().propagate(deviations), swept()
    assert linear.shares is not None
    n = 4090
    for name in ("x", "end.speed"):
        ours, drawn = linear.deviations[name], data[name].values[6:].std(axis=0, ddof=1)
        seen = ours > 0.2 * ours.max()  # Where slopes vanish, curvature is what is left.
        assert np.mean(seen) > 0.6
        assert np.abs(drawn / ours - 1)[seen].max() < 4 / np.sqrt(2 * n)
        shares = linear.shares[name]
        np.testing.assert_allclose(shares.sum(axis=0), 1.0, rtol=1e-12)
    share = (deviations["mass"] * found().slopes["x"][1] / linear.deviations["x"]) ** 2
    np.testing.assert_allclose(linear.shares["x"][1], share, rtol=1e-12)


def a_fit(**changes):
    """A fit with given numbers; its other fields are not used."""
    numbers = {
        "labels": [*VALUES, "bias"],
        "values": np.array([*VALUES.values(), 0.3]),
        "standard_errors": np.array([2.0, 0.05, 0.1, 0.2]),
        "correlation": np.array(
            [[1, 0.6, 0, 0.1], [0.6, 1, -0.2, 0], [0, -0.2, 1, 0], [0.1, 0, 0, 1]]
        ),
    }
    fit = object.__new__(mbd.Fit)
    for name, value in (numbers | changes).items():
        object.__setattr__(fit, name, value)
    return fit


@pytest.mark.long
def test_a_fit_brings_its_covariance():
    fit = a_fit()
    uncertain = found().propagate(fit, ignore=["bias"])
    C = fit.covariance[:3, :3]
    wanted = [[4.0, 0.06, 0.0], [0.06, 0.0025, -0.001], [0.0, -0.001, 0.01]]
    np.testing.assert_allclose(C, wanted, rtol=1e-12)
    np.testing.assert_allclose(uncertain.covariance, C)
    S = found().slopes["end.speed"]
    assert float(uncertain.deviations["end.speed"]) == pytest.approx(np.sqrt(S @ C @ S))
    assert uncertain.shares is None
    unseen = a_fit(standard_errors=np.array([2.0, 0.05, 0.1, np.inf])).covariance
    assert np.isinf(unseen[3, 3])
    assert np.isnan(unseen[3, 2])
    np.testing.assert_allclose(unseen[:3, :3], C)
    by_matrix = found().propagate(C)
    np.testing.assert_array_equal(by_matrix.deviations["x"], uncertain.deviations["x"])


@pytest.mark.thorough
def test_a_fit_of_its_own():
    """Deviations of the fitted path are small, and those of the noise over √n in size."""
    rng, noise = np.random.default_rng(0), 1e-3
    readings = np.asarray(closed_form(jnp.array([*VALUES.values()]))[0])
    record = mbd.Experiment(
        np.concatenate([[0.0], TIMES]),
        {"slide": np.concatenate([[START], readings]) + noise * rng.normal(size=N + 1)},
        guess={"slide": START},
    )
    select = {name: SELECT[name] for name in ("stiffness", "damping")}
    fit = mbd.identify(oscillator(30.0, 1.2, 0.5), record, select, noise={"slide": noise})
    path = mbd.sensitivities(motion, fit.model, select)
    deviations = path.propagate(fit).deviations["x"]
    # Of n fitted values, the sum of the variances is that of the noise by each parameter.
    assert np.sqrt(np.sum(deviations**2)) == pytest.approx(np.sqrt(2) * noise, rel=0.3)
    with pytest.raises(mbd.ModelError, match=r"'stiffness' is 30 here and 40.*take sensitivities"):
        mbd.sensitivities(motion, oscillator(30.0, 1.2, 0.5), select).propagate(fit)


def test_tables_show_numbers():
    lines = str(found()).splitlines()
    assert lines[0].split() == ["result", "y", "parameter", "p", "p", "dy/dp", "p/y", "dy/dp"]
    assert [line.split()[:2] for line in lines[1:4]] == [["end.speed", name] for name in VALUES]
    assert float(lines[2].split()[3]) == pytest.approx(found().slope("end.speed", "mass"), rel=1e-5)
    assert lines[4] == "in slopes only, by stiffness, mass, damping: x (50,)"
    lines = str(found().propagate(ONE_PERCENT)).splitlines()
    assert lines[0].split() == ["result", "value", "std.", "dev.", *VALUES]
    shares = [float(cell.rstrip("%")) for cell in lines[1].split()[3:]]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert lines[2] == "in deviations only: x (50,)"


def test_labelled_arrays(tmp_path):
    data = found().to_xarray({"x": ("time",)}, {"time": TIMES})
    assert data["d_x"].dims == ("parameter", "time")
    np.testing.assert_array_equal(data["d_x"].sel(parameter="mass"), found().slope("x", "mass"))
    np.testing.assert_array_equal(data["value"], found().values)
    data.to_netcdf(tmp_path / "slopes.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "slopes.nc", engine="h5netcdf") as read:
        xr.testing.assert_identical(read.load(), data)


def test_plot_shows_a_curve_for_each_parameter():
    (axes,) = found().plot(TIMES).axes
    assert [line.get_label() for line in axes.get_lines()] == list(VALUES)
    np.testing.assert_allclose(axes.get_lines()[1].get_ydata(), found().scaled()["x"][1])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time [s]", "p ∂x/∂p")
    (axes,) = found().plot(outputs="x", sizes=ONE_PERCENT).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("row", "change of x")

    def columns(model):
        return {"y": model.bodies["cart"].inertia}

    both = mbd.sensitivities(columns, oscillator(), ["bodies.cart.mass"]).plot()
    assert [axes.get_ylabel() for axes in both.axes] == [f"p ∂y[{j}]/∂p" for j in range(3)]


class HalfReported(Positive):
    """Reports every number twice."""

    def report(self, value, reference):
        return jnp.concatenate([value.ravel(), value.ravel()])

    def labels(self, name, reference):
        return [name, f"{name} again"]


def ask(fn=motion, select=("bodies.cart.mass",), **options):
    return mbd.sensitivities(fn, oscillator(), select, **options)


def not_smooth(model):
    rest = model.forces["spring"].rest
    return {"y": model.bodies["cart"].mass * jnp.ones(3), "root": jnp.sqrt(rest)}


@jax.custom_vjp
def only_reverse(x):
    return x


only_reverse.defvjp(lambda x: (x, None), lambda _, pulled: (pulled,))


def only_forward(model):
    return {"y": jax.lax.while_loop(lambda x: x < 2, lambda x: 2 * x, model.bodies["cart"].mass)}


BOTH = {"m": "bodies.cart.mass", "rest": "forces.spring.rest"}
TWICE = {"m": "bodies.cart.mass", "cart": mbd.Parameter("bodies.cart", PhysicalBody())}
BLIND = {"standard_errors": np.array([2.0, np.inf, np.inf, 0.2])}
OTHER = {"values": np.array([40.0, 1.3, 0.8, 0.3])}
SIGNS = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ask(mode="both"), "mode must be 'forward' or 'reverse', got 'both'"),
        (lambda: ask(select=[]), "sensitivities: select at least one"),
        (lambda: ask(select=["bodies.car.mass"]), "path 'bodies.car.mass': no 'car'.*cart"),
        (lambda: ask(lambda m: m.bodies["cart"].mass), "must return a dict of named arrays"),
        (lambda: ask(lambda m: {}), "must return a dict of named arrays"),
        (lambda: ask(lambda m: {"n": jnp.arange(3)}), "result 'n' is int.*, not floats"),
        (lambda: ask(lambda m: {"a/b": jnp.ones(1), "a": {"b": jnp.ones(1)}}), "the same name"),
        (lambda: ask(lambda m: {"y": jnp.ones(2) / jnp.zeros(2)}), r"'y' is not finite, first at"),
        (lambda: ask(not_smooth, BOTH, mode="reverse"), "of 'root' by 'rest' is not finite"),
        (lambda: ask(not_smooth, BOTH, mode="forward"), "of 'root' by 'm', 'rest' is not finite"),
        (lambda: ask(lambda m: {"y": only_reverse(m.bodies["cart"].mass)}), "mode='forward'; give"),
        (lambda: ask(only_forward, mode="reverse"), "mode='reverse'; give the other"),
        (lambda: ask(select=TWICE), "'cart' would change the reported numbers of 'm'"),
        (lambda: ask(select={"m": mbd.Parameter(BOTH["m"], HalfReported())}), "1 free.*reports 2"),
        (
            lambda: jax.jit(lambda m: mbd.sensitivities(motion, m, BOTH))(oscillator()),
            "outside jit",
        ),
        (lambda: found().scaled({"mass": 1.0, "mas": 1.0}), "no damping, stiffness; unknown mas"),
        (lambda: found().propagate(ONE_PERCENT | {"mass": -1.0}), "not be negative: mass"),
        (lambda: found().propagate(ONE_PERCENT | {"mass": np.inf}), "must be finite: mass"),
        (lambda: found().propagate(np.ones(3)), r"has shape \(3, 3\), got \(3,\); give deviations"),
        (lambda: found().propagate(SIGNS), "no combination of the parameters"),
        (lambda: found().propagate(np.diag([1.0, np.nan, 1.0])), "must be finite: mass"),
        (lambda: found().propagate(np.diag([1.0, -1.0, 1.0])), "negative: mass"),
        (lambda: found().propagate(ONE_PERCENT, ignore=["mass"]), "ignore is for labels of a Fit"),
        (lambda: found().propagate(a_fit()), "the fit also has bias"),
        (lambda: found().propagate(a_fit(labels=["a", *"bcd"])), "the fit has no stiffness, mass"),
        (lambda: found().propagate(a_fit(**OTHER), ignore=["bias"]), "'mass' is 1.2 here and 1.3"),
        (lambda: found().to_xarray({"y": ("time",)}), "dims for 'y', which is not among"),
        (lambda: found().to_xarray({"x": ("a", "b")}), r"dims of 'x', shape \(50,\)"),
        (lambda: found().to_xarray({"x": ("time",)}, {"time": TIMES[:3]}), "to_xarray: "),
        (lambda: found().plot(TIMES[:3]), "x has 50 rows"),
        (lambda: found().plot(outputs=["end.speed"]), "'end.speed' is not a trajectory"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(mbd.ModelError, match=message):
        call()


def test_other_errors():
    with pytest.raises(mbd.DataError, match="cannot distinguish mass, damping from others"):
        found().propagate(a_fit(**BLIND), ignore=["bias"])
    for call in (lambda: found().slope("y", "mass"), lambda: found().plot(outputs=["y"])):
        with pytest.raises(KeyError, match=r"unknown result 'y'.*end.speed"):
            call()
    with pytest.raises(KeyError, match=r"unknown parameter 'm'.*stiffness"):
        found().slope("x", "m")


ISHIGAMI = {"a": laws.Uniform(-np.pi, np.pi), "bc": laws.Uniform([-np.pi] * 2, [np.pi] * 2)}


def ishigami(scenario):
    """Ishigami & Homma (1990), as the last of a path that begins with what does not vary."""
    a, (b, c) = scenario["a"], scenario["bc"]
    sine = jnp.sin(a)
    y = sine + 7.0 * jnp.sin(b) ** 2 + 0.1 * c**4 * sine
    return {"y": y, "path": jnp.stack([jnp.full_like(y, 0.1), sine, 1e6 + y])}


@functools.cache
def uncertain():
    scenarios = laws.saltelli(ISHIGAMI, 1024, seed=3)
    return mbd.sweep(ishigami, scenarios, chunk=1024, progress=False)


def test_sobol_indices_of_ishigami_s_function():
    """Its closed form: see for example Saltelli et al. (2008), Global Sensitivity Analysis."""
    b = 0.1 * np.pi**4
    parts = np.array([0.5 * (1 + b / 5) ** 2, 7**2 / 8, 0.0])
    both = 8 * b**2 / 225
    variance = parts.sum() + both
    first, total = parts / variance, (parts + np.array([both, 0.0, both])) / variance
    found = reducers.sobol_indices(uncertain(), "y")
    assert list(found["parameter"].values) == ["a", "bc[0]", "bc[1]"]
    for name, wanted in (("first_order", first), ("total", total)):
        np.testing.assert_allclose(found[name], wanted, atol=0.03)
        assert np.all((found[f"{name}_lower"] < wanted) & (wanted < found[f"{name}_upper"]))
    path = reducers.sobol_indices(uncertain(), "path", level=0.5, resamples=10)
    assert path["total"].dims == ("parameter", "path_axis0")
    assert np.isnan(path.to_array()[:, :, 0]).all()
    np.testing.assert_allclose(path["first_order"][:, 1], [1.0, 0.0, 0.0], atol=0.05)
    np.testing.assert_allclose(path["total"][:, 2], found["total"], rtol=1e-6)


@pytest.mark.long
def test_the_design_is_known_by_its_numbers(tmp_path):
    """Also of a sweep from files, and with coordinates in another order."""
    options = {"chunk": 1024, "progress": False, "folder": tmp_path / "sweep"}
    scenarios = laws.saltelli(ISHIGAMI, 1024, seed=3)
    mbd.sweep(ishigami, scenarios, part=(1, 2), **options)
    read = mbd.sweep(ishigami, scenarios, **options)
    indices = reducers.sobol_indices(uncertain(), "y", resamples=5)
    xr.testing.assert_identical(reducers.sobol_indices(read, "y", resamples=5), indices)
    turned = uncertain().reset_coords("a").set_coords("a")
    xr.testing.assert_identical(reducers.sobol_indices(turned, "y", resamples=5), indices)


def test_bootstrap_samples_are_estimated_alike():
    f = uncertain()["path"].values.reshape(5, 1024, 3)[:, :, 1:]
    ours = distributions.resampled(f, 2, seed=7)
    counts = np.random.default_rng(7).multinomial(1024, np.full(1024, 1 / 1024), size=2)
    for k, times in enumerate(counts):
        rows = np.repeat(np.arange(1024), times)
        np.testing.assert_allclose(
            ours[:, :, k], distributions.indices(f[:, rows]), rtol=1e-7, atol=1e-9
        )


def with_failures():
    data = uncertain().copy(deep=True)
    data["failed"][[5, 9]] = True
    data["reason"] = data["reason"].astype(object)
    data["reason"][5] = "the spring breaks"
    return data


def drawn():
    scenarios = laws.sample(ISHIGAMI, 20)
    return mbd.sweep(ishigami, scenarios, progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: laws.saltelli(ISHIGAMI, 100), "power of two, from 2 on, got 100"),
        (lambda: laws.saltelli(ISHIGAMI, 1), "power of two, from 2 on, got 1"),
        (lambda: laws.saltelli({"a": np.zeros(4)}, 4), "must be a distribution"),
        (lambda: laws.saltelli({"a": laws.Normal(0.0, 1.0)}, 4), "two uncertain numbers.*got 1"),
        (lambda: reducers.sobol_indices(uncertain(), "z"), "unknown result 'z'"),
        (
            lambda: reducers.sobol_indices(uncertain(), "y", level=95.0),
            "level must be between 0 and 1",
        ),
        (lambda: reducers.sobol_indices(uncertain(), "y", resamples=0), "one or more"),
        (lambda: reducers.sobol_indices(with_failures(), "y"), "2 of 5120.*5: the spring breaks"),
        (lambda: reducers.sobol_indices(drawn(), "y"), "20 scenarios of 3 numbers are not all"),
        (
            lambda: reducers.sobol_indices(uncertain().isel(scenario=slice(0, 2560)), "y"),
            "2560 scenarios of 3 numbers are not all",
        ),
    ],
)
def test_other_designs_are_refused(call, message):
    with pytest.raises(mbd.ModelError, match=message):
        call()


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_results_that_are_plain_numbers(mode):
    """Such as a length that no parameter changes: the slope is zero."""

    def fn(model):
        return {"length": 2.5, "mass": model.bodies["cart"].mass, "none": np.ones(2)}

    found = mbd.sensitivities(fn, oscillator(), {"m": "bodies.cart.mass"}, mode=mode)
    assert {name: np.shape(y) for name, y in found.outputs.items()} == {
        "length": (),
        "mass": (),
        "none": (2,),
    }
    assert found.outputs["length"] == 2.5
    np.testing.assert_array_equal(found.slopes["length"], [0.0])
    np.testing.assert_allclose(found.slopes["mass"], [1.0])
    np.testing.assert_array_equal(found.slopes["none"], [[0.0, 0.0]])
