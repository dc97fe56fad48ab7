"""Frames of welded beams: closed forms, one beam in two parts, stiffening, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible import Member

from .beams import spinning_frequencies

E, G, DENSITY = 7e10, 2.6e10, 2700.0
SECTION = flexible.Rectangle(0.04, 0.02)
# Slender: elongation does not matter, and the planes differ.
FLAT = flexible.General(A=1e-3, Iy=1e-9, Iz=2e-9, J=2e-9)


def straight(**options):
    """Two collinear beams of half the length, the second one given from its end."""
    nodes = {"tip": [1.0, 0, 0], "middle": [0.5, 0, 0], "base": [0.0, 0, 0]}
    members = {
        "b": Member("tip", "middle", FLAT, 1e9, 4e8, 1000.0, 4, theory="bernoulli"),
        "a": Member("base", "middle", FLAT, 1e9, 4e8, 1000.0, 4, theory="bernoulli"),
    }
    return flexible.frame(nodes, members, ("base",), 4, **options)


@pytest.mark.long
def test_two_collinear_beams_are_one():
    """With displacements of second order: also in frequencies of a spinning body."""
    two = straight()
    one = flexible.beam(1.0, 1e9, 4e8, 1000.0, FLAT, 8, 4, "bernoulli")
    np.testing.assert_allclose(two.frequencies(), one.frequencies(), rtol=1e-9)
    own, expected = (spinning_frequencies(x, [0.0, 0.3, 4.0]) for x in (two, one))
    np.testing.assert_allclose(own, expected, rtol=1e-9)
    rows = dict(two.nodes)
    by_node = [
        rows["base"],
        *(rows[f"a[{i}]"] for i in range(1, 5)),
        *(rows[f"b[{i}]"] for i in (3, 2, 1, 0)),
    ]
    at = np.asarray(by_node)
    np.testing.assert_allclose(two.positions[at], one.positions, atol=1e-12)
    k = two.n_elastic
    # Shapes agree but for their signs.
    shapes, signs = np.asarray(two.translations[at, :k]), []
    for a in range(k):
        other = np.asarray(one.translations[:, a])
        signs.append(np.sign(np.sum(shapes[:, a] * other)))
        np.testing.assert_allclose(signs[-1] * shapes[:, a], other, atol=1e-9)
    a, b = np.triu_indices(k)
    both = np.asarray(signs)[a] * np.asarray(signs)[b]
    pairs = both[None, :, None] * np.asarray(two.translations[at, k:])
    np.testing.assert_allclose(pairs, one.translations[:, k:], atol=1e-8)
    # In the middle, strains of one beam are means of both sides. "b" has its axes turned.
    own = np.asarray(two.strains)[at] * np.asarray(signs)[None, :, None]
    own[5:, :, [2, 5]] *= -1.0
    away = np.array([0, 1, 2, 3, 5, 6, 7, 8])
    expected = np.asarray(one.strains)[away]
    np.testing.assert_allclose(own[away], expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.long
def test_deflection_of_a_bent_cantilever():
    """An L of lengths a along x and b along z, with a load along x and across on its tip."""
    a, b = 0.6, 0.4
    body = flexible.frame(
        {"base": [0, 0, 0], "corner": [a, 0, 0], "tip": [a, 0, b]},
        {
            "arm": Member("base", "corner", SECTION, E, G, DENSITY, 1, theory="bernoulli"),
            "post": Member(
                "corner", "tip", SECTION, E, G, DENSITY, 1, up=[1, 0, 0], theory="bernoulli"
            ),
        },
        ("base", "tip"),
        0,
        attachments=("corner",),
        stiffening=False,
    )
    s = SECTION.properties()
    at_tip = np.asarray(body.translations[dict(body.nodes)["tip"]])
    flexibility = at_tip.T @ np.linalg.solve(body.stiffness, at_tip)
    # Both sections have their height in the plane of x and z.
    along = b**3 / (3 * E * s.Iy) + b**2 * a / (E * s.Iy) + a / (E * s.A)
    np.testing.assert_allclose(flexibility[0, 0], along, rtol=1e-9)
    # Across: bending of both, and torsion of the arm.
    across = (a**3 + b**3) / (3 * E * s.Iz) + a * b**2 / (G * s.J)
    np.testing.assert_allclose(flexibility[1, 1], across, rtol=1e-9)
    np.testing.assert_allclose(body.mass, DENSITY * 0.04 * 0.02 * (a + b), rtol=1e-12)


def portal(beam_ratio, n_elements, n_modes=0, interfaces=("left", "right"), stiffening=False):
    """A portal of unit height and width, of slender columns with E I = 1; I of its beam times
    `beam_ratio`."""
    column = flexible.General(A=1e-3, Iy=1e-9, Iz=1e-6, J=1e-6)
    top = flexible.General(A=1e-3, Iy=beam_ratio * 1e-9, Iz=1e-6, J=1e-6)
    given = {"theory": "bernoulli", "n_elements": n_elements}

    def member(start, end, section, up):
        return Member(start, end, section, 1e9, 4e8, 1000.0, up=up, **given)

    return flexible.frame(
        {"left": [0, 0, 0], "a": [0, 0, 1], "b": [1, 0, 1], "right": [1, 0, 0]},
        {
            "one": member("left", "a", column, [1, 0, 0]),
            "beam": member("a", "b", top, [0, 0, 1]),
            "two": member("right", "b", column, [1, 0, 0]),
        },
        interfaces,
        n_modes,
        attachments=("a", "b") if "right" in interfaces else ("a", "b", "right"),
        stiffening=stiffening,
    )


def held(body):
    """Displacements with the right foot held: a basis of them, shape (k, m)."""
    row, k = dict(body.nodes)["right"], body.n_elastic
    foot = np.concatenate([body.translations[row, :k], body.rotations[row, :k]], axis=1).T
    return foot, np.linalg.svd(foot)[2][6:].T


@pytest.mark.long
@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_lateral_stiffness_of_a_portal(ratio):
    """24 E I / h³ (1 + 6 κ) / (4 + 6 κ), κ = ratio of E I / length of the beam and a column."""
    body = portal(ratio, 1)
    basis = held(body)[1]
    corner = np.asarray(body.translations[dict(body.nodes)["a"], :, 0]) @ basis
    compliance = corner @ np.linalg.solve(basis.T @ body.stiffness @ basis, corner)
    lateral = 24.0 * (1 + 6 * ratio) / (4 + 6 * ratio)
    # The load is on one corner: elongation of the beam, 1e-6, adds half of itself or less.
    np.testing.assert_allclose(1.0 / compliance, lateral, rtol=1e-4)


@pytest.mark.thorough
def test_a_portal_buckles_sideways():
    """With a stiff beam each column buckles under π² E I / h². The reaction of the right foot acts
    through displacements of second order along all members."""
    body = portal(1e4, 4, 4, ("left",), True)
    k, rows = body.n_elastic, dict(body.nodes)
    J, basis = held(body)

    def shift(eta, node, axes):
        c = body.coefficients(eta)[1:]
        return jnp.concatenate([c @ body.translations[rows[node]], c @ body.rotations[rows[node]]])[
            jnp.asarray(axes)
        ]

    zeros = jnp.zeros(k)
    load = jax.jacfwd(lambda x: shift(x, "a", [2]) + shift(x, "b", [2]))(zeros)[0]
    # Equilibrium at unit load: K η + load + Jᵀ λ = 0 with J η = 0.
    system = np.block([[np.asarray(body.stiffness), J.T], [J, np.zeros((6, 6))]])
    reaction = np.linalg.solve(system, -np.concatenate([load, np.zeros(6)]))[k:]

    def potential(eta):
        pushed = shift(eta, "a", [2]) + shift(eta, "b", [2])
        return pushed[0] + shift(eta, "right", range(6)) @ reaction

    geometric = basis.T @ np.asarray(jax.hessian(potential)(zeros)) @ basis
    stiffness = basis.T @ np.asarray(body.stiffness) @ basis
    values = np.linalg.eigvals(np.linalg.solve(stiffness, -geometric)).real
    np.testing.assert_allclose(1.0 / values.max(), np.pi**2, rtol=5e-3)


THETA = np.array([0.6, 0.4, 7e10, 2700.0, 0.04])


def angle(theta, basis="frozen"):
    a, b, E, density, width = theta
    section = flexible.Rectangle(width, 0.02)
    members = {
        "arm": Member("base", "corner", section, E, 0.4 * E, density, 2),
        "post": Member("corner", "tip", section, E, 0.4 * E, density, 2, up=[1, 0, 0]),
    }
    zero = 0.0 * a
    nodes = {
        "base": jnp.stack([zero, zero, zero]),
        "corner": jnp.stack([a, zero, zero]),
        "tip": jnp.stack([a, zero, b]),
    }
    return flexible.frame(nodes, members, ("base",), 2, basis=basis)


@pytest.mark.thorough
def test_derivatives_by_dimensions_and_material():
    """With a frozen basis, differences have the same mode shapes."""
    fixed = angle(jnp.asarray(THETA))

    def measures(theta, basis):
        body = angle(theta, basis)
        return jnp.concatenate([body.frequencies(), jnp.sum(body.second**2)[None]])

    J = jax.jit(jax.jacfwd(lambda x: measures(x, "frozen")))(jnp.asarray(THETA))
    function = jax.jit(lambda x: measures(x, fixed))
    for i, value in enumerate(THETA):
        step = np.zeros(5)
        step[i] = 3e-5 * value
        difference = (function(THETA + step) - function(THETA - step)) / 6e-5
        np.testing.assert_allclose(
            J[:, i] * value, difference, rtol=1e-6, atol=5e-8 * np.abs(function(THETA)).max()
        )


@pytest.mark.thorough
def test_strains_at_a_corner_need_a_member():
    body = angle(jnp.asarray(THETA))
    hinge = mbd.joints.Revolute("ground", mbd.Frame("angle", node="base"), [0, 1, 0])
    system = mbd.formulate(mbd.Model({"angle": body}, {"hinge": hinge}), mbd.JointCoordinates())
    state = mbd.State(jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(mbd.ModelError, match="beams with axes of their own meet at node 'corner'"):
        mbd.sensors.Strain("angle", "corner")(system, jnp.zeros(()), state)
    rows = dict(body.nodes)
    arm, post = (np.asarray(body.strains[rows[node]]) for node in ("arm[2]", "post[0]"))
    assert np.abs(arm - post).max() > 1e-3 * np.abs(arm).max()


@pytest.mark.thorough
def test_messages():
    nodes = {"a": [0, 0, 0], "b": [1, 0, 0], "c": [1, 0, 1]}
    rod = Member("a", "b", SECTION, E, G, DENSITY, 1)
    post = Member("b", "c", SECTION, E, G, DENSITY, 1, up=[0, 1, 0])
    brace = Member("c", "a", SECTION, E, G, DENSITY, 1)

    def build(members, interfaces=("a",), **options):
        return flexible.frame(nodes, members, interfaces, 1, **options)

    for match, call in (
        ("no members connect 'a' with 'c'", lambda: build({"rod": rod})),
        ("unknown node 'd'; known are 'a', 'b', 'c'", lambda: build({"rod": rod}, ("d",))),
        ("members form a loop", lambda: build({"rod": rod, "post": post, "brace": brace})),
        (
            "'post' is parallel to its direction up",
            lambda: build({"rod": rod, "post": Member("b", "c", SECTION, E, G, DENSITY)}),
        ),
        ("the ends must be two nodes", lambda: Member("a", "a", SECTION, E, G, DENSITY)),
        ("which no material has", lambda: Member("a", "b", SECTION, 7e4, G, DENSITY)),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            call()
    closed = build({"rod": rod, "post": post, "brace": brace}, stiffening=False)
    assert closed.first.shape[0] == 1 + closed.n_elastic
