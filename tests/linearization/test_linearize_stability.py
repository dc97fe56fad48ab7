"""Buckling, flutter and whirl against closed forms, derivatives against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, ModelError, forces, joints
from jaxmbd.linear import eig
from tests.linearization import linearized_models as models
from tests.linearization.test_linearize import REGULAR
from tests.marks import thorough_but
from tests.models import name_of


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(REGULAR[:1], models.FORMULATIONS), ids=name_of)
def test_euler_column_of_links(formulation):
    """μ_k = 2 (k/L) (1 - cos((2k - 1) π / (2n + 1))) of a cantilever of n sprung links."""
    n, load, length, stiffness = 4, 2.0, 0.25, 30.0
    system = mbd.formulate(models.column(n, load, length, stiffness, False), formulation)
    result = mbd.buckling(system, mbd.assemble(system), "load")
    angles = (2 * np.arange(1, n + 1) - 1) * np.pi / (2 * n + 1)
    expected = 2 * stiffness / length * (1 - np.cos(angles)) / load
    np.testing.assert_allclose(result.factors, expected, rtol=1e-10)
    np.testing.assert_allclose(result.critical, expected[0], rtol=1e-10)
    singular = result.stiffness + result.critical * result.geometric
    scale = np.abs(result.stiffness).max()
    assert np.abs(singular @ result.shapes[:, 0]).max() < 1e-9 * scale


@pytest.mark.thorough
def test_a_following_load_does_not_buckle():
    """Beck's column of links: no load factor, and flutter where two frequencies meet."""
    n, length, stiffness = 3, 0.25, 30.0
    names = [f"hinge{k}" for k in range(n)]

    def at(load):
        system = mbd.formulate(models.column(n, load, length, stiffness, True))
        return mbd.linearize(system, 0.0, mbd.assemble(system), coordinates=names)

    system = mbd.formulate(models.column(n, 1.0, length, stiffness, True))
    assert np.isinf(mbd.buckling(system, mbd.assemble(system), "load").critical)

    def growth(load):
        M, K = models.column_matrices(n, load, length, stiffness, True)
        return np.emath.sqrt(-np.linalg.eigvals(np.linalg.solve(M, K)).astype(complex)).real.max()

    low, high = 0.0, 2000.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if growth(middle) > 1e-5 else (middle, high)
    loads = np.linspace(0.0, 2 * high, 41)
    locus = mbd.root_locus(at, loads)
    for load, values in zip(loads, locus.eigenvalues, strict=True):
        M, K = models.column_matrices(n, load, length, stiffness, True)
        squares = np.linalg.eigvals(-np.linalg.solve(M, K)).astype(complex)
        expected = np.repeat(squares, 2)
        for value in values**2:
            nearest = np.argmin(np.abs(expected - value))
            np.testing.assert_allclose(value, expected[nearest], rtol=1e-6, atol=1e-6)
            expected = np.delete(expected, nearest)
    assert abs(locus.crossings()[0] - high) <= loads[1]
    assert locus.growth[-1] > 1.0


def ziegler(load: object) -> mbd.Model:
    """Ziegler's pendulum: masses 2 and 1 at the ends of two massless links, a following load."""
    z, links, parts = np.array([0.0, 0.0, 1.0]), {}, {}
    bodies = {
        name: mbd.inertia.principal(mass, [1e-10] * 3, com=z)
        for name, mass in (("lower", 2.0), ("upper", 1.0))
    }
    links["base"] = joints.Revolute(mbd.ground, "lower", axis=[0, 1, 0])
    links["knee"] = joints.Revolute(Frame("lower", z), "upper", axis=[0, 1, 0])
    for joint in links:
        parts[f"spring {joint}"] = forces.TorsionalSpringDamper(joint, 1.0)
    parts["load"] = forces.AppliedForce(Frame("upper", z), -load * jnp.asarray(z), follower=True)
    return mbd.Model(bodies, links, parts)


@pytest.mark.long
def test_flutter_of_ziegler_pendulum():
    """P = (7/2 - √2) k/l without damping (Ziegler 1952)."""

    @jax.jit
    def discriminant(load):
        system = mbd.formulate(ziegler(load))
        linear = mbd.linearize(system, 0.0, mbd.assemble(system), coordinates=["base", "knee"])
        S = linear.A[2:, :2]
        return jnp.trace(S) ** 2 - 4 * jnp.linalg.det(S)

    below, above = (discriminant((3.5 - np.sqrt(2.0)) * (1.0 + x)) for x in (-1e-9, 1e-9))
    assert below * above < 0


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(REGULAR[:1], REGULAR), ids=name_of)
def test_whirl_of_an_overhung_disc(formulation):
    """ω = ±I_p Ω / (2 I_t) + √((I_p Ω / (2 I_t))² + k/I_t) of tilting with stiffness k.

    Critical speeds (ω = Ω): √(k / (I_t ± I_p)), forward with the lower sign.
    """
    I_t, I_p, k = 0.3, 0.2, 500.0
    model = mbd.Model(
        {
            "hub": mbd.inertia.principal(1.0, [I_t / 2, I_t / 2, 0.02]),
            "disc": mbd.inertia.principal(1.0, [I_t / 2, I_t / 2, I_p]),
        },
        {
            "tilt": joints.Universal(mbd.ground, "hub", axis1=[1, 0, 0], axis2=[0, 1, 0]),
            "spin": joints.Revolute("hub", "disc", axis=[0, 0, 1]),
        },
        {"shaft": forces.TorsionalSpringDamper("tilt", k)},
    )
    speeds = np.linspace(0.0, 120.0, 61)
    diagram = mbd.campbell(mbd.formulate(model, formulation), speeds, "spin")
    half = I_p * speeds / (2 * I_t)
    root = np.sqrt(half**2 + k / I_t)
    omega = 2 * np.pi * diagram.frequencies
    np.testing.assert_allclose(omega, np.stack([root - half, root + half], axis=1), rtol=1e-9)
    np.testing.assert_allclose(diagram.damping_ratios, 0.0, atol=1e-9)
    backward, forward = diagram.critical_speeds()
    np.testing.assert_allclose(backward, [np.sqrt(k / (I_t + I_p))], rtol=1e-3)
    np.testing.assert_allclose(forward, [np.sqrt(k / (I_t - I_p))], rtol=1e-3)


def of_length(x):
    return models.four_bar(length=0.7 + x), models.GUESS


def of_stiffness(x):
    return models.four_bar(stiffness=4.0 + x), models.GUESS


def of_axes(x):
    return models.four_bar(tilt=x), models.GUESS


def of_door(x):
    return models.door(stiffness=3.0 + x, distance=1.5 * (1 + 0.1 * x)), {
        "lower": 0.2,
        "upper": 0.2,
    }


def of_column(x):
    return models.column(2, 1.0 + x, 0.25 * (1 + 0.2 * x), 30.0 + x, True), {}


CHANGES = {
    "length": (of_length, ["left"]),
    "stiffness": (of_stiffness, ["left"]),
    "axes": (of_axes, ["left"]),
    "redundant loop": (of_door, ["lower"]),
    "open chain": (of_column, ["hinge0", "hinge1"]),
}
CASES = list(zip(CHANGES, (REGULAR[k % 2] for k in range(5)), strict=True))
QUICK = CASES[-1:]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "formulation"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.thorough) for case in CASES],
    ids=lambda x: x if isinstance(x, str) else name_of(x),
)
def test_derivatives_of_eigenvalues(change, formulation):
    """The state moves with the parameter; forward and reverse mode equal differences."""
    model_at, names = CHANGES[change]

    def values(x):
        model, guess = model_at(x)
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, guess, hold=tuple(guess)[:1])
        linear = mbd.linearize(system, 0.0, state, coordinates=names)
        found = eig(linear.A).values
        return jnp.concatenate([found.real, found.imag])

    values = jax.jit(values)
    h = 2e-5
    difference = (values(h) - values(-h)) / (2 * h)
    scale = np.abs(difference).max()
    forward = jax.jit(jax.jacfwd(values))(0.0)
    np.testing.assert_allclose(forward, difference, atol=1e-7 * max(scale, 1.0))
    if change == "redundant loop":
        reverse = jax.jit(jax.jacrev(values))(0.0)
        np.testing.assert_allclose(reverse, forward, rtol=1e-10, atol=1e-10)


@pytest.mark.thorough
def test_misuse_of_buckling():
    system = mbd.formulate(models.column(2, 1.0, 0.25, 30.0, False))
    state = mbd.assemble(system)
    with pytest.raises(ModelError, match="unknown force 'lod'"):
        mbd.buckling(system, state, "lod")
    with pytest.raises(ModelError, match="not an equilibrium without the load 'load'"):
        mbd.buckling(system, mbd.State(state.q + 0.1, state.v), "load")
    with pytest.raises(ModelError, match="campbell: unknown joint 'spin'"):
        mbd.campbell(system, [0.0, 1.0], "spin")
    with pytest.raises(ModelError, match="speeds must be finite"):
        mbd.campbell(system, [0.0, np.nan], "hinge0")
