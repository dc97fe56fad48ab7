"""The ANCF cable: large bending, small vibrations, hanging at rest, and energy in motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import jaxmbd as mbd
from jaxmbd import Frame, bodies, forces, joints
from jaxmbd.mechanism.groups import rigid_part
from jaxmbd.viz.deformed import _cable


def cable(n_elements=4, planar=True, **options):
    given = {"length": 2.0, "EA": 1e4, "EI": 3.0, "mass_per_length": 0.5}
    return bodies.ANCFCable(**{**given, **options}, n_elements=n_elements, planar=planar)


def tip(body, eta):
    return body.frame_at_node(body.n_elements, body.node_pose(body.n_elements), eta)


@eqx.filter_jit
def rolled_up(body, moments):
    """Elastic coordinates at rest under moments about y at the tip, one after another."""

    def residual(eta, moment):
        def turn(rate):
            X, X_dot = jax.jvp(lambda eta: tip(body, eta).R, (eta,), (rate,))
            return (X_dot @ X.T)[0, 2]

        return jax.grad(body.elastic_energy)(eta) - moment * jax.grad(turn)(eta)

    def increment(eta, moment):
        def newton(_, eta):
            return eta - jnp.linalg.solve(jax.jacfwd(residual)(eta, moment), residual(eta, moment))

        eta = jax.lax.fori_loop(0, 12, newton, eta)
        return eta, (eta, jnp.linalg.norm(residual(eta, moment)))

    return jax.lax.scan(increment, jnp.zeros(body.n_elastic), moments)[1]


@pytest.mark.thorough
def test_end_moment_bends_a_cantilever_into_a_circle():
    """κ = M/EI: the tip comes back to the base, and a half circle ends at 2 L/π; with order 4."""
    errors = []
    for n in (4, 8):
        body = cable(n)
        full = 2.0 * np.pi * float(body.EI / body.length)
        etas, residuals = rolled_up(body, full * jnp.linspace(0.125, 1.0, 8))
        assert np.all(residuals < 1e-8)
        half, whole = (tip(body, etas[k]) for k in (3, 7))
        radius = float(body.length) / np.pi
        errors.append(
            [
                np.linalg.norm(half.p - np.array([0.0, 0.0, -2.0 * radius])),
                np.linalg.norm(whole.p),
                np.linalg.norm(whole.R - np.eye(3)),
            ]
        )
    coarse, fine = np.asarray(errors)
    assert np.all(fine < coarse / 10.0)
    assert np.all(fine < np.array([1e-3, 5e-3, 2e-2]))


@pytest.mark.long
def test_small_vibrations_are_those_of_euler_bernoulli():
    """Frequencies of a cantilever, in bending with order 4 and along its axis."""

    @eqx.filter_jit
    def matrices(body):
        zeros, rest = jnp.zeros(body.n_elastic), jnp.zeros(6)
        kinetic = jax.hessian(lambda rates: body.kinetic_energy(zeros, rest, rates))(zeros)
        return jax.hessian(body.elastic_energy)(zeros), kinetic

    errors = []
    for n in (3, 6):
        body = cable(n)
        K, M = matrices(body)
        found = np.sqrt(scipy.linalg.eigvalsh(K, M))
        roots = np.array([1.875104068711961, 4.694091132974174])
        EI, EA, rho, L = (float(x) for x in (body.EI, body.EA, body.mass_per_length, body.length))
        bending = (roots / L) ** 2 * np.sqrt(EI / rho)
        along = 0.5 * np.pi / L * np.sqrt(EA / rho)
        errors.append([np.abs(found / x - 1.0).min() for x in (*bending, along)])
    coarse, fine = np.asarray(errors)
    assert np.all(fine < coarse / 12.0)
    assert np.all(fine < 3e-4)


@pytest.mark.parametrize("planar", [True, False])
def test_straight_cable_has_the_inertia_of_a_rod(planar):
    body = cable(planar=planar)
    found = eqx.filter_jit(rigid_part)(body)
    mass, spin = 1.0, 2.0 * 1.0 * 3.0 / 1e4
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(found.com, [1.0, 0.0, 0.0], atol=1e-12)
    expected = np.diag([spin, mass * 4.0 / 12.0, mass * 4.0 / 12.0])
    np.testing.assert_allclose(found.inertia, expected, atol=1e-12)


@pytest.mark.long
def test_space_and_plane_agree_and_turn_with_the_bending_plane():
    """A bent cable in space has the energies and the tip of the planar one, turned about x."""
    small, rates = 0.05 * jax.random.normal(jax.random.key(1), (2, cable(3).n_elastic))

    def turned(x, angle):
        """Coordinates in space of planar ones, in a plane that is turned about x."""
        c, s = jnp.cos(angle), jnp.sin(angle)
        along, up = x[1:].reshape(3, 2, 2).transpose(2, 0, 1)
        return jnp.concatenate([x[:1], jnp.stack([along, -s * up, c * up], axis=-1).ravel()])

    @eqx.filter_jit
    def quantities(body, eta, eta_dot):
        X, power = tip(body, eta), body.damping_force(eta, eta_dot) @ eta_dot
        curvature = jnp.linalg.norm(body.strains(eta)[1], axis=2)
        return X.p, X.R, (body.elastic_energy(eta), power, curvature)

    flat, space = (cable(3, planar=x, damping=0.1) for x in (True, False))
    angle = 0.7
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    p, R, scalars = quantities(flat, small, rates)
    p_turned, R_turned, same = quantities(space, turned(small, angle), turned(rates, angle))
    for a, b in zip(scalars, same, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(p_turned, turn @ p, atol=1e-12)
    np.testing.assert_allclose(R_turned, turn @ R @ turn.T, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("planar", [True, False])
def test_internal_force_is_the_derivative_of_the_energies(planar):
    """At large strains and bends: of U, and of half of the power of damping by the rates."""
    body = cable(3, planar=planar, damping=0.1)
    rng = np.random.default_rng(0)
    eta, rates = jnp.asarray(0.2 * rng.normal(size=(2, body.n_elastic)))

    def half_power(rates):
        (_, curvature), (e_dot, k_dot) = jax.jvp(body.strains, (eta,), (rates,))
        if not planar:
            tangent, t_dot = jax.jvp(body._tangents, (eta,), (rates,))
            k_dot = k_dot - jnp.cross(jnp.cross(tangent, t_dot), curvature)
        axial, bending = body._stiffnesses(eta)
        energy = jnp.sum(axial * e_dot**2) + jnp.sum(bending[..., None] * k_dot**2)
        return 0.5 * body.damping * energy

    @jax.jit
    def forces_of(rates):
        damping = body.damping_force(eta, rates)
        both, elastic = body.internal_force(eta, rates), jax.grad(body.elastic_energy)(eta)
        return both, elastic + damping, damping, jax.grad(half_power)(rates)

    both, added, damping, expected = forces_of(rates)
    np.testing.assert_allclose(damping, expected, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(both, added, atol=1e-12 * np.abs(both).max())


@pytest.mark.long
def test_twist_of_a_node_is_the_derivative_of_its_frame():
    """A frame beside the node, at large bends."""
    body = cable(3, planar=True)
    eta, rates = jnp.asarray(0.2 * np.random.default_rng(1).normal(size=(2, body.n_elastic)))
    R = jax.scipy.linalg.expm(jnp.array([[0, -0.2, -0.5], [0.2, 0, -0.3], [0.5, 0.3, 0]]))
    offset = mbd.lie.Pose(jnp.array([1.5, 0.1, -0.2]), R)
    arguments = jnp.array(2), offset, eta, rates

    @jax.jit
    def twists(*arguments):
        expected = bodies.AbstractBody.twist_at_node(body, *arguments)
        return body.twist_at_node(*arguments), expected

    found, expected = twists(*arguments)
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.long
def test_damping_is_proportional_to_stiffness_at_the_straight_cable():
    body = cable(2, planar=False, damping=0.02)
    zeros = jnp.zeros(body.n_elastic)
    D = jax.jit(jax.jacfwd(lambda rates: body.damping_force(zeros, rates)))(zeros)
    K = jax.jit(jax.hessian(body.elastic_energy))(zeros)
    np.testing.assert_allclose(D, 0.02 * K, atol=1e-10 * np.abs(K).max())


SPAN = 1.2


def about_y(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def catenary(s):
    """Points and tangents of an inextensible chain between supports of equal height, by the arc
    length from its lowest point."""
    a = scipy.optimize.brentq(lambda a: 2.0 * a * np.sinh(SPAN / (2.0 * a)) - 2.0, 0.1, 10.0)
    x = a * np.arcsinh(s / a)
    tangents = np.stack([np.ones_like(s), 0.0 * s, s / a], axis=1)
    tangents /= np.sqrt(1.0 + (s[:, None] / a) ** 2)
    return np.stack([x, 0.0 * s, a * np.cosh(x / a)], axis=1), tangents


@eqx.filter_jit
def at_rest(body, start):
    """Angle of the base and elastic coordinates with the tip at (SPAN, 0, 0) under gravity.

    Newton's method on the stationary point of energies and λ · (tip - support).
    """

    def lagrangian(unknowns):
        theta, eta, pull = unknowns[0], unknowns[1:-2], unknowns[-2:]
        c, s, o, e = jnp.cos(theta), jnp.sin(theta), jnp.zeros(()), jnp.ones(())
        R = jnp.stack([jnp.stack([c, o, s]), jnp.stack([o, e, o]), jnp.stack([-s, o, c])])
        X = mbd.lie.Pose(jnp.zeros(3), R)
        energy = body.elastic_energy(eta)
        energy += forces.Gravity().potential_of_body(jnp.zeros(()), body, X, eta)
        apart = (R @ tip(body, eta).p)[jnp.array([0, 2])] - jnp.array([SPAN, 0.0])
        return energy + pull @ apart

    residual = jax.grad(lagrangian)

    def newton(_, x):
        return x - jnp.linalg.solve(jax.hessian(lagrangian)(x), residual(x))

    found = jax.lax.fori_loop(0, 30, newton, start)
    return found, jnp.linalg.norm(residual(found))


def distance_from_catenary(n):
    """Largest distance of nodes of n elements from an inextensible chain, with EA up to 1e5."""
    body = cable(n, EI=1e-4)
    points, tangents = catenary(np.linspace(-1.0, 1.0, n + 1))
    points = points - points[0]
    theta = np.arctan2(-tangents[0, 2], tangents[0, 0])
    nodal = np.stack([points, 2.0 / n * tangents], axis=1) @ about_y(theta)
    straight = np.asarray(body.nodal(jnp.zeros(body.n_elastic)))
    eta = (nodal - straight)[1:, :, [0, 2]].ravel()
    start = jnp.asarray(np.concatenate([[theta, 0.0], eta, np.zeros(2)]))
    for EA in (1e2, 1e3, 1e4, 1e5):
        start, residual = at_rest(cable(n, EA=EA, EI=1e-4), start)
    assert residual < 1e-9
    nodes = np.asarray(body.nodal(start[1:-2])[:, 0]) @ about_y(float(start[0])).T
    return np.abs(nodes - points).max()


@pytest.mark.long
def test_hanging_cable_is_a_catenary():
    assert distance_from_catenary(8) < 4e-3


@pytest.mark.thorough
def test_distance_from_a_catenary_falls_with_the_elements():
    assert distance_from_catenary(8) < 0.2 * distance_from_catenary(4)


@pytest.mark.long
@pytest.mark.parametrize("planar", [True, False])
def test_picture_is_a_tube_about_the_centre_line(planar):
    """The tube of a bent cable; rings at nodes lie in the frames of the nodes."""
    body = cable(2, planar=planar)
    eta = 0.1 * jax.random.normal(jax.random.key(2), (body.n_elastic,))
    (p, R), nodes, end = jax.jit(
        lambda eta: (body.centre_line(eta, 4), body.nodal(eta)[:, 0], tip(body, eta))
    )(eta)
    assert p.shape == (9, 3)
    np.testing.assert_allclose(p[::4], nodes, atol=1e-14)
    np.testing.assert_allclose(p[-1], end.p, atol=1e-14)
    np.testing.assert_allclose(R[-1, :, 0], end.R[:, 0], atol=1e-12)
    found = _cable(body, 0.01, np.asarray(eta)[None], 1)
    ring = found.points[0].reshape(9, 8, 3)
    np.testing.assert_allclose(ring.mean(axis=1), p, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(ring - np.asarray(p)[:, None], axis=2), 0.01)


@pytest.mark.thorough
def test_swinging_cable_keeps_its_energy_to_second_order():
    """A soft cable on a hinge, which swings and bends."""
    rope = cable(2, EA=300.0, EI=0.05)
    model = mbd.Model(
        {"rope": rope},
        {"hinge": joints.Revolute("ground", Frame("rope", node="base"), axis=[0, 1, 0])},
        {"gravity": forces.Gravity()},
        frames={"tip": Frame("rope", node="tip")},
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": 1.2})
    mbd.testing.check_system(system, state)
    energies = jax.jit(jax.vmap(lambda x: mbd.energy(system, 0.0, x).total))
    errors = []
    for n in (100, 200, 400):
        # The same program for all: steps after 0.4 s are left out.
        steps = mbd.rollout(system, state, 0.4 / n, 400, mbd.GeneralizedAlpha(1.0))
        values = energies(steps)[: n + 1]
        errors.append(float(jnp.abs(values - values[0]).max()))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.2)


@pytest.mark.thorough
def test_messages():
    for match, node in (("'base', 'tip' or a row from 0 to 4, got None", None), ("got 5", 5)):
        with pytest.raises(mbd.ModelError, match=match):
            cable().node_row(node)
    with pytest.raises(mbd.ModelError, match="n_elements must be positive"):
        cable(0)
    hinge = {"hinge": joints.Fixed("ground", Frame("rope", node="base"))}
    for match, options in (
        ("EI must be positive", {"EI": 0.0}),
        ("damping must not be", {"damping": -1.0}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            mbd.Model({"rope": cable(**options)}, hinge)
