"""Beams: frequencies, deflections, inertia, geometric stiffening and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible.element import beam_fields
from jaxmbd.mechanism.groups import rigid_part

from .beams import ROUND, spinning_frequencies, thick_beam, unit_beam

# Roots of cos x cosh x = -1 (clamped and free) and of cos x cosh x = 1 (free ends).
CANTILEVER = np.array([1.8751040687119611, 4.694091132974174, 7.854757438237613]) ** 2
FREE = np.array([4.730040744862704, 7.853204624095838, 10.995607838001671]) ** 2
# Flap frequencies at Ω = 1 … 5, of the differential equation.
FLAP = {1: 3.6816, 2: 4.1373, 3: 4.7973, 4: 5.5850, 5: 6.4495}


def frequencies(body):
    return np.asarray(body.frequencies())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("exact", "options"),
    [
        (CANTILEVER, {}),
        (FREE, {"method": "free", "frame": "mean-axis"}),
    ],
)
def test_frequencies_converge_with_order_four(exact, options):
    found = []
    for n in (10, 20, 40):
        own = frequencies(unit_beam(n, 4, stiffening=False, **options))
        np.testing.assert_allclose(own[0::2], own[1::2], rtol=1e-6)  # Both planes.
        found.append(own[2])
    # Rotary inertia of the slender section changes frequencies by some 1e-5.
    np.testing.assert_allclose(found[-1], exact[1], rtol=1e-4)
    differences = -np.diff(found)
    assert np.log2(differences[0] / differences[1]) == pytest.approx(4.0, abs=0.2)


@pytest.mark.thorough
@pytest.mark.parametrize("frame", ["clamped", "chord", "mean-axis"])
def test_frames_of_reference_span_the_same_motions(frame):
    """A free body has the same frequencies in all frames of reference."""
    body = thick_beam(frame=frame, stiffening=False)
    k = body.n_elastic
    zeros = jnp.zeros(k)
    M = body.mass_matrix(zeros)
    K = np.zeros((6 + k, 6 + k))
    K[6:, 6:] = body.stiffness
    L = np.linalg.cholesky(M)
    own = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, K).T))
    reference = thick_beam(stiffening=False)
    M = reference.mass_matrix(zeros)
    K[6:, 6:] = reference.stiffness
    L = np.linalg.cholesky(M)
    expected = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, K).T))
    np.testing.assert_allclose(own[6:], expected[6:], rtol=1e-7)
    assert np.abs(own[:6]).max() < 1e-9 * own[6]
    if frame == "mean-axis":
        assert np.abs(M_coupling(body)).max() < 1e-10


def M_coupling(body):
    k = body.n_elastic
    M = body.mass_matrix(jnp.zeros(k))
    return M[:6, 6:]


@pytest.mark.long
@pytest.mark.parametrize(("theory", "n_elements"), [("bernoulli", 3), ("timoshenko", 1)])
def test_tip_deflection_by_loads_at_an_interface_is_exact(theory, n_elements):
    E, G, L = 7e10, 2.6e10, 0.5
    section = flexible.Rectangle(0.04, 0.02)
    body = flexible.beam(
        L, E, G, 2700.0, section, n_elements, 0, theory, ("base", "tip"), stiffening=False
    )
    s = section.properties()
    shear = 0.0 if theory == "bernoulli" else L / (s.kz * G * s.A)
    at_tip = np.concatenate([body.translations[-1], body.rotations[-1]], axis=1)
    flexibility = at_tip.T @ np.linalg.solve(body.stiffness, at_tip)
    bending = L**3 / (3.0 * E * s.Iy) + shear
    np.testing.assert_allclose(flexibility[2, 2], bending, rtol=1e-9)
    np.testing.assert_allclose(flexibility[4, 2], -(L**2) / (2.0 * E * s.Iy), rtol=1e-9)
    np.testing.assert_allclose(flexibility[0, 0], L / (E * s.A), rtol=1e-9)
    np.testing.assert_allclose(flexibility[3, 3], L / (G * s.J), rtol=1e-9)


@pytest.mark.long
def test_attachment_modes_give_the_static_deflection():
    held = thick_beam(interfaces=("base", "tip"), stiffening=False)
    attached = thick_beam(interfaces=("base",), attachments=("tip",), stiffening=False)
    deflections = []
    for body in (held, attached):
        at_tip = np.concatenate([body.translations[-1], body.rotations[-1]], axis=1)
        deflections.append(at_tip.T @ np.linalg.solve(body.stiffness, at_tip))
    np.testing.assert_allclose(*deflections, rtol=1e-8, atol=1e-15)


@pytest.mark.thorough
def test_integrals_agree_with_a_dense_quadrature_over_the_volume():
    """S and s of fields of first and second order, at points of the volume."""
    body = thick_beam(n_elements=2, n_modes=2, interfaces=("base",))
    k, width, height, density = body.n_elastic, 0.04, 0.02, 2700.0
    shapes = np.concatenate([body.translations[:, :k], body.rotations[:, :k]], axis=2)
    section = flexible.Rectangle(width, height).properties()
    phi = 12.0 / 0.25**2 * 7e10 / 2.6e10 * np.array([section.Iz, section.Iy]) / (5 / 6 * section.A)
    by_node = jnp.asarray(np.swapaxes(shapes, 1, 2))
    fields = beam_fields(by_node, jnp.asarray(0.25), jnp.asarray(phi), True)
    x, w = leggauss(3)
    second, first = np.zeros(body.second.shape), np.zeros(body.first.shape)
    lengths = 0.25 * 0.5 * leggauss(6)[1]
    for y, wy in zip(0.5 * width * x, 0.5 * width * w, strict=True):
        for z, wz in zip(0.5 * height * x, 0.5 * height * w, strict=True):
            r, Dy, Dz = (fields.fields[:, :, i] for i in range(3))
            p = r + y * Dy + z * Dz
            dm = density * wy * wz * lengths
            second += np.einsum("egai,g,egbj->aibj", p, dm, p)
            first += np.einsum("egai,g->ai", p, dm)
    np.testing.assert_allclose(body.second, second, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(body.first, first, rtol=1e-10, atol=1e-15)


@pytest.mark.long
def test_undeformed_body_is_the_rigid_one():
    body = flexible.beam(0.8, 2.1e11, 8e10, 7850.0, ROUND, 5, 2)
    mass = 7850.0 * np.pi * 0.05**2 * 0.8
    expected = mbd.inertia.cylinder(mass, 0.05, 0.8, [1, 0, 0])
    found = rigid_part(body)
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(found.com, [0.4, 0.0, 0.0], atol=1e-14)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-11, atol=1e-12)


@pytest.mark.thorough
def test_fields_of_second_order_are_those_of_a_bent_rod():
    """Bent and twisted with constant strains, a rod is a helix, to second order."""
    n, L, kappa = 6, 1.0, np.array([0.3, -0.4, 0.5])
    x = np.linspace(0.0, L, n + 1)
    # θ' = κ and u' = θ × e_x, from the base.
    theta = x[:, None] * kappa
    u = 0.5 * x[:, None] ** 2 * np.cross(kappa, [1.0, 0.0, 0.0])
    shapes = np.concatenate([u, theta], axis=1)[:, :, None]
    fields = beam_fields(jnp.asarray(shapes), jnp.asarray(L / n), jnp.zeros(2), True)

    def helix(eta, s):
        """Position and rotation at s of a rod with the constant strains η κ."""
        X = mbd.lie.se3.exp(jnp.concatenate([jnp.asarray([s, 0.0, 0.0]), eta * s * kappa]))
        return X.p, X.R

    for row in (2, n):
        second = jax.jacfwd(jax.jacfwd(lambda eta, s=x[row]: helix(eta, s)[0]))(0.0)
        np.testing.assert_allclose(fields.nodes[row, 2, :3], second, atol=1e-12)
        rotated = jax.jacfwd(jax.jacfwd(lambda eta, s=x[row]: helix(eta, s)[1]))(0.0)
        # The rotation vector η κ s has no component of second order.
        np.testing.assert_allclose(fields.nodes[row, 2, 3:], 0.0, atol=1e-12)
        np.testing.assert_allclose(rotated, rotated.T, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("omega", [1, 4, 5])
def test_a_spinning_cantilever_gains_stiffness(omega):
    own = spinning_frequencies(unit_beam(), [0.0, 0.0, omega])
    expected = np.sort([FLAP[omega], np.sqrt(FLAP[omega] ** 2 - omega**2)])
    np.testing.assert_allclose(own[:2], expected, rtol=1e-3)


@pytest.mark.long
def test_without_stiffening_it_loses_stiffness():
    K = unit_beam(8, 6, stiffening=False)
    # In the plane of the spin, ω² = 3.516² - 4² = -3.64.
    assert CANTILEVER[0] ** 2 - 16.0 == pytest.approx(-3.64, abs=0.01)
    with pytest.raises(AssertionError):
        spinning_frequencies(K, [0.0, 0.0, 4.0])


@pytest.mark.long
def test_a_twisted_blade_turns_into_the_plane_of_its_spin():
    """Propeller moment: a spin Ω about z adds Ω² (Iy - Iz) / (Iy + Iz) to the square of the
    frequency of torsion, which stiffening by the axial load does not contain."""
    section = flexible.General(A=1e-3, Iy=1e-8, Iz=4e-8, J=1e-9)
    body = flexible.beam(1.0, 1e11, 1e8, 1000.0, section, 8, 1, "bernoulli")
    still = frequencies(body)[0]
    omega = 40.0
    # The frequency of torsion is the lowest one.
    assert still == pytest.approx(0.5 * np.pi * np.sqrt(1e8 * 1e-9 / (1000.0 * 5e-8)), rel=1e-2)
    own = spinning_frequencies(body, [0.0, 0.0, omega])[0]
    # The section lies flat if its larger extent, along y, is in the plane of the spin: stiffer.
    assert own**2 - still**2 == pytest.approx(omega**2 * (4 - 1) / 5, rel=0.02)


@pytest.mark.long
def test_a_column_buckles_under_its_tip_load():
    """Euler's load π² E I / 4 L² on the tip of a cantilever, through the displacement of nodes."""
    body = unit_beam(8, 6, interfaces=("base",))
    load = np.pi**2 / 4.0

    def energy(eta, P):
        shift = body.coefficients(eta)[1:] @ body.translations[-1]
        return body.elastic_energy(eta) + P * shift[0]

    def lowest(P):
        K = jax.hessian(lambda eta: energy(eta, P))(jnp.zeros(body.n_elastic))
        return float(jnp.linalg.eigvalsh(K)[0])

    assert lowest(0.99 * load) > 0 > lowest(1.01 * load)


@pytest.mark.long
def test_a_deep_cantilever_buckles_sideways():
    """Lateral buckling: P = 4.013 √(E Iz G J) / L² at the tip of a deep cantilever."""
    section = flexible.General(A=1e-2, Iy=1e-4, Iz=1e-7, J=1e-7)
    body = flexible.beam(2.0, 1e11, 4e10, 1000.0, section, 12, 10, "bernoulli")
    load = 4.013 * np.sqrt(1e11 * 1e-7 * 4e10 * 1e-7) / 2.0**2

    def energy(eta, P):
        shift = body.coefficients(eta)[1:] @ body.translations[-1]
        return body.elastic_energy(eta) + P * shift[2]

    def lowest(P):
        K = jax.hessian(lambda eta: energy(eta, P))(jnp.zeros(body.n_elastic))
        D = 1.0 / jnp.sqrt(jnp.diagonal(body.stiffness))
        return float(jnp.linalg.eigvalsh(K * D[:, None] * D[None])[0])

    assert lowest(0.97 * load) > 0 > lowest(1.03 * load)


@pytest.mark.long
@pytest.mark.parametrize("frame", ["clamped", "chord", "mean-axis"])
def test_kinds_of_motion_are_uncoupled(frame):
    """Each mode shape is an elongation, a torsion or a bending in one plane, without rounding
    errors of other kinds, which would hold back a mechanism that moves in a plane."""
    body = thick_beam(frame=frame, stiffening=False)
    moved = np.abs(np.concatenate([body.translations, body.rotations], axis=2)).max(axis=0) > 0
    kinds = {tuple(row) for row in moved}
    assert kinds <= {tuple(i in kind for i in range(6)) for kind in ((0,), (3,), (1, 5), (2, 4))}


@pytest.mark.thorough
def test_strains_are_those_of_a_tip_load():
    body = thick_beam(n_modes=0, stiffening=False)
    s = flexible.Rectangle(0.04, 0.02).properties()
    load = 10.0 * body.translations[-1, :, 2]
    eta = np.linalg.solve(body.stiffness, load)
    assert body.strains is not None
    strains = eta @ np.asarray(body.strains)
    x = np.asarray(body.positions[:, 0])
    # The bending moment about y is -F (L - x).
    np.testing.assert_allclose(strains[:, 4], -10.0 * (0.5 - x) / (7e10 * s.Iy), atol=1e-12)
    np.testing.assert_allclose(strains[:, 2], 10.0 / (5 / 6 * 2.6e10 * s.A), rtol=1e-6)


def smallest(body):
    """The lowest frequency, and a measure of the fields of second order."""
    return jnp.stack([body.frequencies()[0], jnp.sum(body.second**2), body.damping[0, 0]])


def build(theta, **options):
    length, E, density, width, ratio = theta
    section = flexible.Rectangle(width, 0.02)
    return flexible.beam(length, E, 0.4 * E, density, section, 3, 2, damping=ratio, **options)


THETA = np.array([0.5, 7e10, 2700.0, 0.04, 0.02])


@pytest.mark.thorough
@pytest.mark.parametrize("basis", ["moving", "frozen"])
def test_derivatives_by_dimensions_and_material(basis):
    """Also for batches. With a frozen basis, differences have the same mode shapes."""
    fixed = build(THETA)
    given = fixed if basis == "frozen" else "moving"
    function = jax.jit(lambda theta: smallest(build(theta, basis=given)))
    J = jax.jacfwd(lambda theta: smallest(build(theta, basis=basis)))(jnp.asarray(THETA))
    for i, value in enumerate(THETA):
        step = np.zeros(5)
        step[i] = 1e-4 * value
        difference = (function(THETA + step) - function(THETA - step)) / 2e-4
        error = np.abs(J[:, i] * value - difference)
        bound = 1e-6 * np.abs(difference) + 1e-8 * np.abs(function(THETA))
        assert np.all(error < bound), (i, error / bound)
    batch = np.stack([THETA, 1.1 * THETA])
    of_batch = jax.vmap(jax.jacrev(lambda theta: smallest(build(theta, basis=basis))))(batch)
    np.testing.assert_allclose(of_batch[0] * THETA[None], J * THETA[None], rtol=1e-8, atol=1e-8)


@pytest.mark.long
def test_repeated_modes_have_finite_derivatives():
    def lowest(radius, basis):
        body = flexible.beam(1.0, 7e10, 2.6e10, 2700.0, flexible.Round(radius), 3, 2, basis=basis)
        return jnp.sum(jnp.diagonal(body.stiffness)) / jnp.sum(jnp.diagonal(body.modal_mass()))

    for basis in ("frozen", "moving"):
        slope = jax.grad(lambda r, basis=basis: lowest(r, basis))(0.01)
        difference = (lowest(0.01001, "moving") - lowest(0.00999, "moving")) / 2e-5
        np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.long
def test_float32():
    beam = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), THETA[:3].tolist())
    length, E, density = beam
    section = flexible.Round(jnp.float32(0.02))
    body = flexible.beam(length, E, 0.4 * E, density, section, 3, 2)
    assert {x.dtype for x in jax.tree.leaves(body)} == {np.dtype(np.float32)}
    assert body.validate() is None
    flat = flexible.Rectangle(jnp.float32(0.03), jnp.float32(0.02))
    bent = flexible.beam(length, E, 0.4 * E, density, flat, 3, 4).translations[-1, :4]
    assert np.count_nonzero(bent, axis=1).tolist() == [1, 1, 1, 1]


@pytest.mark.long
def test_messages():
    def make(**options):
        given = {"length": 1.0, "E": 2.1e11, "G": 8e10, "density": 7850.0, "section": ROUND}
        return flexible.beam(**{**given, "n_elements": 3, "n_modes": 2, **options})

    for match, options in (
        ("length must be positive", {"length": -1.0}),
        ("5.17 m/s, which no material has; convert them to Pa", {"E": 2.1e5}),
        ("unknown node 'end'; known are 'base', 'tip'", {"interfaces": ("end",)}),
        ("interfaces must name at least one node", {"interfaces": ()}),
        ("modes 3 and 4 have the same frequency.* choose n_modes=4 or 2", {"n_modes": 3}),
        ("n_modes must be from 0 to 18, got 19", {"n_modes": 19}),
        ("theory must be", {"theory": "euler"}),
        ("method must be", {"method": "guyan"}),
        ("frame must be", {"frame": "tangent"}),
        ("basis must be 'frozen', 'moving' or an array", {"basis": "fixed"}),
        ("basis must have 24 rows", {"basis": np.zeros((3, 2))}),
        ("frame='chord' needs two interfaces", {"frame": "chord"}),
        ("attachment modes repeat", {"interfaces": ("base", "tip"), "attachments": ("tip",)}),
        ("n_elements must be a whole number from 1 on", {"n_elements": 0}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            make(**options)
    with pytest.raises(mbd.ModelError, match="Tube: thickness must be less than the radius"):
        flexible.Tube(0.01, 0.02)
    with pytest.raises(mbd.ModelError, match="Round: radius must be positive"):
        flexible.Round(0.0)


def test_sections_have_known_constants():
    tube = flexible.Tube(0.05, 0.01).properties()
    solid, hole = (flexible.Round(r).properties() for r in (0.05, 0.04))
    for name in ("A", "Iy", "Iz", "J"):
        expected = getattr(solid, name) - getattr(hole, name)
        np.testing.assert_allclose(getattr(tube, name), expected, rtol=1e-12)
    # Torsion of a square: 0.1406 a⁴; of a rectangle 1 : 2, 0.2287 a³ b (Timoshenko).
    square, flat = (flexible.Rectangle(b, 1.0).properties() for b in (1.0, 2.0))
    np.testing.assert_allclose(square.J, 0.1406, rtol=1e-3)
    np.testing.assert_allclose(flat.J, 0.2287 * 2.0, rtol=1e-3)
    np.testing.assert_allclose([flat.Iy, flat.Iz], [2 / 12, 8 / 12], rtol=1e-12)


@pytest.mark.thorough
def test_default_amplitude_of_elastic_modes():
    """The nodes of a clamped beam without frames move by a tenth of its length at most."""
    rod = mbd.flexible.beam(
        length=2.0,
        E=7e9,
        G=2.8e9,
        density=2700.0,
        section=mbd.flexible.Rectangle(0.03, 0.02),
        n_elements=3,
        n_modes=2,
    )
    clamp = mbd.joints.Fixed("ground", mbd.Frame("rod", node="base"))
    system = mbd.formulate(mbd.Model({"rod": rod}, {"clamp": clamp}))
    motion = mbd.linearize(system, 0.0, mbd.assemble(system)).modes().motion(0)
    elastic = np.einsum("nai,ta->tni", rod.translations[:, :2], motion.states.q)
    np.testing.assert_allclose(np.abs(elastic).max(), 0.2, rtol=1e-6)


@pytest.mark.long
def test_inspect_lists_the_kinds_of_modes_and_those_without_one():
    def said(**options):
        section = flexible.Rectangle(0.03, 0.02)
        rod = flexible.beam(0.5, 7e9, 2.8e9, 2700.0, section, 4, 2, **options)
        weld = mbd.joints.Fixed("ground", mbd.Frame("rod", node="base"))
        system = mbd.formulate(mbd.Model({"rod": rod}, {"weld": weld}))
        return rod, " ".join(mbd.inspect(system).report.split())

    rod, text = said()
    low, high = np.asarray(rod.frequencies()) / (2 * np.pi)
    expected = f"bending about y at {low:.4g} Hz, bending about z at {high:.4g} Hz"
    assert f"rod: 0.81 kg; elastic: {expected}; without elongation, twist" in text
    rod, text = said(attachments=["tip"])
    assert "elongation at" in text
    assert "twist at" in text
    assert "without" not in text.partition("joint tree")[0]
    # A pull of 1 N at the tip elongates the rod by F L / (E A).
    along = np.asarray(rod.translations[rod.node_row("tip"), : rod.n_elastic, 0])
    stretch = along @ np.linalg.solve(np.asarray(rod.stiffness), along)
    np.testing.assert_allclose(stretch, 0.5 / (7e9 * 0.03 * 0.02), rtol=1e-6)


@pytest.mark.long
def test_signs_of_modes_are_those_of_similar_beams():
    """Displacements weigh more in millimetres, rotations in kilometres."""

    def tip(length):
        section = mbd.flexible.General(
            A=1e-4 * length**2, Iy=1e-9 * length**4, Iz=2e-9 * length**4, J=3e-9 * length**4
        )
        body = mbd.flexible.beam(length, 2.1e11, 8e10, 7800.0, section, 4, n_modes=2)
        return np.sign(np.asarray(body.translations[-1]).sum(axis=1))

    np.testing.assert_array_equal(tip(2.0**-20), tip(1.0))
    np.testing.assert_array_equal(tip(2.0**10), tip(1.0))
