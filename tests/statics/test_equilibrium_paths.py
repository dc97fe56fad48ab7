"""Paths of equilibria against closed forms, long chains, and a catenary."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxmbd as mbd
from benchmarks import rest_table
from jaxmbd import Frame, forces, ground, joints
from jaxmbd.programs import storage
from tests.statics.test_equilibrium import Y, inverted, link

B, Y0, K = 1.0, 0.5, 100.0  # Half span and height of the truss [m], stiffness of a bar [N/m].


def truss():
    """A von Mises truss, half of it: a mass on a slider, a bar as a spring, a load downwards."""
    return mbd.Model(
        bodies={"top": mbd.inertia.box(1.0, (0.1, 0.1, 0.1))},
        joints={"slide": joints.Prismatic(ground, "top", axis=(0, 0, 1))},
        forces={
            "bar": forces.SpringDamper(
                Frame("ground", (B, 0, 0)), "top", K, rest_length=(B * B + Y0 * Y0) ** 0.5
            ),
            "load": forces.AppliedForce("top", (0.0, 0.0, -1.0)),
        },
    )


def whole_path():
    system = mbd.formulate(truss())
    state = mbd.assemble(system, {"slide": Y0})
    return mbd.load_path(system, state, "load", mbd.ArcLength(0.0, n_steps=60, step=0.04, size=8.0))


@pytest.fixture(scope="module")
def branch():
    return whole_path()


@pytest.mark.long
def test_a_second_arc_of_other_numbers_is_not_compiled(monkeypatch):
    def along(step, stiffness):
        system = mbd.formulate(truss().replace({"forces.bar.stiffness": stiffness}))
        path = mbd.ArcLength(0.0, n_steps=20, step=step, size=8.0)
        found = mbd.load_path(system, {"slide": Y0}, "load", path)
        return np.asarray(found.joints["slide"].q).ravel(), np.asarray(found.values)

    y, loads = along(0.02, K)
    monkeypatch.setattr(storage._Stored, "_made", lambda *_: pytest.fail("compiled again"))
    places, found = along(0.03, 2 * K)
    part = (places > y.min()) & (np.arange(21) > 0)  # Twice the stiffness, twice the load.
    np.testing.assert_allclose(found[part], 2 * np.interp(-places[part], -y, loads), rtol=0.01)
    assert part.sum() > 5


@pytest.mark.long
def test_an_arc_length_passes_the_limit_points_of_a_truss(branch):
    rest = np.hypot(B, Y0)
    y = np.asarray(branch.joints["slide"].q)
    length = np.hypot(B, y)
    load = K * y * (rest / length - 1.0)
    assert np.abs(np.asarray(branch.values) - load).max() < 1e-9
    assert y.max() == pytest.approx(Y0)
    assert y.min() < -0.55
    # dP/dy = 0 at (b² + y²)^(3/2) = b² L₀.
    at = np.sqrt((B * B * rest) ** (2 / 3) - B * B)
    limit = K * at * (rest / np.hypot(B, at) - 1.0)
    assert branch.limit_points == pytest.approx([limit, -limit], abs=2e-4 * limit)
    # The middle of the path is unstable.
    assert np.array_equal(np.asarray(branch.stable), np.abs(y) >= at)
    assert branch.bifurcations.size == 0


@pytest.mark.long
def test_a_path_in_single_precision(branch):
    """Corrections end at the precision of the numbers, which were said to have lost the path."""
    with jax.enable_x64(False):
        found = whole_path()
    assert found.values.dtype == jnp.float32
    assert found.converged.all()
    np.testing.assert_allclose(found.values, branch.values, atol=2e-4)
    np.testing.assert_allclose(found.limit_points, branch.limit_points, rtol=1e-5)


def _load(y, stiffness):
    """The load that holds the truss at height y."""
    rest = (B * B + Y0 * Y0) ** 0.5
    return stiffness * y * (rest / jnp.sqrt(B * B + y * y) - 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "path",
    [
        mbd.ArcLength(0.0, n_steps=20, step=0.04, size=8.0),
        pytest.param(np.linspace(0.0, 2.0, 3), marks=pytest.mark.thorough),
    ],
    ids=["arc length", "values"],
)
def test_points_of_a_branch_have_derivatives_by_the_model(path):
    """They stay on P(y, k): dP = ∂P/∂y dy + ∂P/∂k dk, through the limit point, in both modes."""

    def at(stiffness):
        model = eqx.tree_at(lambda m: m.forces["bar"].stiffness, truss(), stiffness)
        system = mbd.formulate(model)
        state = mbd.assemble(system, {"slide": Y0})
        branch = mbd.load_path(system, state, "load", path)
        return branch.values, branch.joints["slide"].q.ravel()

    stiffness = jnp.asarray(K)
    (_, y), slope = jax.linearize(jax.jit(at), stiffness)
    d_values, dy = slope(jnp.ones_like(stiffness))
    expected = jax.vmap(lambda y, dy: jax.jvp(_load, (y, stiffness), (dy, 1.0 + 0.0 * dy))[1])(
        y, dy
    )
    assert np.abs(d_values - expected).max() < 1e-10
    assert np.abs(dy).max() > 1e-3
    (back,) = jax.linear_transpose(slope, stiffness)((jnp.zeros_like(y), jnp.ones_like(y)))
    assert float(back) == pytest.approx(float(dy.sum()), rel=1e-9)


@pytest.mark.long
def test_values_below_the_limit_point_follow_the_path():
    system = mbd.formulate(truss())
    state = mbd.assemble(system, {"slide": Y0})
    rest = np.hypot(B, Y0)
    path = mbd.load_path(system, state, "load", jnp.linspace(0.0, 3.0, 4))
    y = np.asarray(path.joints["slide"].q)
    assert K * y * (rest / np.hypot(B, y) - 1.0) == pytest.approx(np.linspace(0, 3, 4), abs=1e-9)


@pytest.mark.long
def test_an_arc_of_a_function_is_that_of_the_load_which_it_sets():
    """Also the derivative by a number that the function refers to."""
    state = mbd.assemble(mbd.formulate(truss()), {"slide": Y0})
    arc = mbd.ArcLength(0.0, n_steps=4, step=0.08, size=8.0)

    def with_stiffness(k):
        return truss().replace({"forces.bar.stiffness": k})

    def named(k):
        return mbd.load_path(mbd.formulate(with_stiffness(k)), state, "load", arc).values

    def of_function(k):
        def system(p):
            force = jnp.array([0.0, 0.0, -1.0]) * p
            load = {"load": forces.AppliedForce("top", force)}
            return mbd.formulate(with_stiffness(k).with_(forces=load))

        return mbd.load_path(system(0.0), state, system, arc).values

    for derivative in (lambda f: f, jax.jacrev):
        expected = derivative(named)(K)
        np.testing.assert_allclose(derivative(of_function)(K), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_an_arc_of_a_tilted_loop_whose_hinges_are_redundant():
    """Rows of the loop across its plane are rounding errors, no equations."""
    model = rest_table.four_bar(jnp.asarray(rest_table.NUMBERS), redundant=True)
    system = mbd.formulate(model)
    state = mbd.assemble(system, {"left": 0.3})
    arc = mbd.load_path(system, state, "gravity", mbd.ArcLength(1.0, n_steps=4, step=0.1))
    last = jax.tree.map(lambda x: x[-1], arc.states)
    again = mbd.load_path(system, state, "gravity", arc.values[-1:])
    np.testing.assert_allclose(last.q, again.states.q[0], atol=1e-9)


@pytest.mark.long
def test_a_pitchfork_is_found_at_the_critical_load():
    stiffness = 2.0 * 9.81
    system = mbd.formulate(inverted(stiffness))
    path = mbd.load_path(system, mbd.assemble(system), "gravity", jnp.array([0.5, 0.9, 1.3]))
    assert path.bifurcations == pytest.approx([1.0], rel=1e-6)
    assert path.stable.tolist() == [True, True, False]


@pytest.mark.long
def test_a_branch_is_plotted(branch):
    pytest.importorskip("matplotlib")
    axis = branch.plot().axes[0]
    assert axis.get_xlabel() == "slide [rad or m]"
    with pytest.raises(KeyError, match="slider"):
        branch.plot("slider")


@pytest.mark.parametrize("options", [{"n_steps": 0}, {"step": 0.0}, {"direction": 0.5}])
def test_invalid_arcs_are_named(options):
    with pytest.raises(mbd.ModelError, match=next(iter(options))):
        mbd.ArcLength(**options)


def hung(n, span=2.0, total=2.5):
    """n links between two pins at one height; the last pin closes a loop."""
    names = [f"link{k:03d}" for k in range(n)]
    length = total / n
    tips = [ground, *[Frame(name, (length, 0, 0)) for name in names]]
    pins = {
        f"pin{k:03d}": joints.Revolute(tip, name, axis=Y)
        for k, (tip, name) in enumerate(zip(tips, names, strict=False))
    }
    last = joints.Revolute(Frame("ground", (span, 0, 0)), tips[-1], axis=Y)
    model = mbd.Model(
        dict.fromkeys(names, link(2.0 / n, length)),
        {**pins, "zlast": last},
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model)
    turn = 1.0
    guess = dict.fromkeys(pins, -2 * turn / (n - 1))
    guess["pin000"] = turn
    return system, mbd.assemble(system, guess)


def _sag_of_catenary(span=2.0, total=2.5):
    a = brentq(lambda a: 2 * a * np.sinh(span / (2 * a)) - total, 0.1, 10.0)
    return a * (np.cosh(span / (2 * a)) - 1.0)


@pytest.mark.thorough
def test_hung_chains_approach_the_catenary():
    errors = []
    for n in (8, 16):
        system, state = hung(n)
        found = mbd.equilibrium(system, state, method="newton")
        assert found.stable
        low = system.frames(0.0, found.state.q)[f"link{n // 2:03d}"].p[2]
        errors.append(-float(low) - _sag_of_catenary())
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)
