"""Stresses of bodies from meshes: against the full model of scikit-fem, and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import skfem
from skfem.helpers import sym_grad
from skfem.models.elasticity import lame_parameters, linear_elasticity, linear_stress

import jaxmbd as mbd
from jaxmbd import Frame, flexible, joints
from tests.flexible.test_mesh import MATERIAL, SIZE, block, held_and_tied, of_block

KINDS = {
    "tetrahedra": (skfem.MeshTet, skfem.ElementTetP2()),
    "hexahedra": (skfem.MeshHex, skfem.ElementHex2()),
}


def deflected(body, node, load):
    """Elastic coordinates at rest under a force [N] and a moment [N m] at a node."""
    row = body.node_row(node)
    motion = jnp.concatenate([body.translations[row], body.rotations[row]], axis=1)
    return jnp.linalg.solve(body.stiffness, motion @ jnp.asarray(load))


def stress_of_full_model(kind, load):
    """Vertices of the mesh, and the stress there of the whole mesh under a load at its right end.

    By scikit-fem: assembly, gradients and Hooke's law.
    """
    mesh, element = block(KINDS[kind][0]), KINDS[kind][1]
    lame = lame_parameters(MATERIAL["E"], MATERIAL["nu"])
    basis = skfem.Basis(mesh, skfem.ElementVector(element), intorder=5)
    # Degrees of freedom x, y, z of a node follow each other in all groups of the numbering.
    order = np.concatenate(
        [
            x.reshape(-1, 3, x.shape[1]).swapaxes(1, 2).reshape(-1)
            for x in (basis.nodal_dofs, basis.edge_dofs, basis.facet_dofs, basis.interior_dofs)
            if x.size
        ]
    )
    K = linear_elasticity(*lame).assemble(basis).toarray()[order][:, order]
    positions = basis.doflocs.T[order[::3]]
    T, C = held_and_tied(positions, rigid=True)
    u = np.zeros(basis.N)
    u[order] = T @ np.linalg.solve(T.T @ K @ T, C.T @ load)
    corners = mesh.elem.refdom.p
    weights = np.ones(corners.shape[1])
    at = skfem.Basis(mesh, skfem.ElementVector(element), quadrature=(corners, weights))
    stress = np.asarray(linear_stress(*lame)(sym_grad(at.interpolate(u))))
    volumes = basis.dx.sum(axis=1)
    found = np.zeros((mesh.p.shape[1], 3, 3))
    total = np.zeros(mesh.p.shape[1])
    for cell, own in enumerate(mesh.t.T):
        for corner, vertex in enumerate(own):
            found[vertex] += volumes[cell] * stress[:, :, cell, corner]
            total[vertex] += volumes[cell]
    return mesh.p.T, found / total[:, None, None]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_stress_is_that_of_the_full_model(kind):
    """At all vertices, with stress concentrations at the ends."""
    load = np.array([50.0, -20.0, 10.0, 1.0, 2.0, -3.0])
    body = of_block(block(KINDS[kind][0]))
    vertices, expected = stress_of_full_model(kind, load)
    found = np.asarray(deflected(body, "right", load) @ body.stresses)
    rows = np.arange(len(body.nodes), len(body.positions))
    distance = np.linalg.norm(vertices[:, None] - np.asarray(body.positions)[None, rows], axis=2)
    assert distance.min(axis=1).max() < 1e-12
    found = found[rows[distance.argmin(axis=1)]]
    x, y, z = 0, 1, 2
    components = np.stack(
        [expected[:, i, j] for i, j in ((x, x), (y, y), (z, z), (y, z), (z, x), (x, y))], axis=1
    )
    np.testing.assert_allclose(found, components, atol=1e-8 * np.abs(components).max())
    deviator = expected - np.trace(expected, axis1=1, axis2=2)[:, None, None] * np.eye(3) / 3.0
    equivalent = np.sqrt(1.5 * np.sum(deviator**2, axis=(1, 2)))
    np.testing.assert_allclose(flexible.von_mises(jnp.asarray(found)), equivalent, rtol=1e-8)


def bent():
    """A block without lateral contraction, so that its clamped end is that of a beam."""
    return of_block(block(skfem.MeshHex, (4, 2, 1)), nu=0.0, n_modes=2)


@pytest.mark.long
def test_bending_tension_and_torsion_of_a_block():
    """σ = N / A + M c / I, and in a section with a transverse force M = F (L - x)."""
    body = bent()
    a, b = SIZE[1:]
    area, inertia = a * b, a**3 * b / 12.0
    N, F, M = 1000.0, -30.0, 20.0
    eta = deflected(body, "right", [N, F, 0.0, 0.0, 0.0, M])
    stress = np.asarray(eta @ body.stresses)
    p = np.asarray(body.positions)
    # An edge in the middle, far from the ends, whose sections stay plane by force.
    middle = np.flatnonzero((np.abs(p[:, 0] - 0.5 * SIZE[0]) < 1e-9) & (p[:, 1] > a - 1e-9))
    assert len(middle) == 2
    moment = M + F * (SIZE[0] - p[middle, 0])
    expected = N / area - moment * (p[middle, 1] - 0.5 * a) / inertia
    np.testing.assert_allclose(stress[middle, 0], expected, rtol=1e-3)
    # Without a transverse force quadratic displacements are exact, and so is the stress everywhere.
    eta = deflected(body, "right", [N, 0.0, 0.0, 0.0, 0.0, M])
    stress = np.asarray(eta @ body.stresses)
    expected = N / area - M * (p[:, 1] - 0.5 * a) / inertia
    np.testing.assert_allclose(stress[:, 0], expected, rtol=1e-8)
    assert np.abs(stress[:, 1:]).max() < 1e-8 * np.abs(expected).max()


def test_von_mises_of_uniaxial_stress_and_of_shear():
    stress = jnp.array([[3.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 2.0, 0], [5.0, 5.0, 5.0, 0, 0, 0]])
    expected = [3.0, 2.0 * np.sqrt(3.0), 0.0]
    np.testing.assert_allclose(flexible.von_mises(stress), expected, atol=1e-14)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = turn @ np.diag([3.0, 0.0, 0.0]) @ turn.T
    components = turned[[0, 1, 2, 1, 2, 0], [0, 1, 2, 2, 0, 1]]
    np.testing.assert_allclose(flexible.von_mises(jnp.asarray(components)), 3.0, rtol=1e-12)


def clamped(body):
    return mbd.Model(
        {"block": body}, {"clamp": joints.Fixed("ground", Frame("block", node="left"))}
    )


@pytest.mark.long
def test_sensor_reads_stress_and_its_derivative_by_the_modulus():
    body = bent()
    eta = deflected(body, "right", [0.0, 0.0, 0.0, 0.0, 0.0, 20.0])
    row = int(np.flatnonzero(np.abs(np.asarray(body.positions)[:, 1]) < 1e-9)[-1])
    sensor = mbd.sensors.Stress("block", row)
    system = mbd.formulate(clamped(body), mbd.MaximalCoordinates())
    state = mbd.assemble(system, elastic={"block": eta})
    a, b = SIZE[1:]
    expected = 20.0 * 0.5 * a / (a**3 * b / 12.0)
    found = sensor(system, jnp.zeros(()), state)
    np.testing.assert_allclose(found, expected * np.eye(6)[0], atol=1e-8 * expected)

    def at_given_strain(E):
        made = of_block(block(skfem.MeshHex, (4, 2, 1)), nu=0.0, E=E, n_modes=2)
        return (eta @ made.stresses)[row, 0]

    slope = jax.grad(at_given_strain)(MATERIAL["E"])
    np.testing.assert_allclose(slope * MATERIAL["E"], expected, rtol=1e-7)


@pytest.mark.long
def test_messages():
    section = flexible.Rectangle(0.03, 0.02)
    beam = flexible.beam(0.5, 7e9, 2.8e9, 2700.0, section, 2, n_modes=1)
    model = mbd.Model({"rod": beam}, {"clamp": joints.Fixed("ground", Frame("rod", node="base"))})
    system = mbd.formulate(model)
    state = mbd.assemble(system)
    with pytest.raises(mbd.ModelError, match="'rod' has no recovery of stresses"):
        mbd.sensors.Stress("rod", "tip")(system, jnp.zeros(()), state)
    with pytest.raises(mbd.ModelError, match="unknown flexible body 'block'"):
        mbd.sensors.Stress("block", 0)(system, jnp.zeros(()), state)


@pytest.mark.long
def test_named_nodes_have_the_mean_of_their_nodes():
    """A section of a block under tension and bending: N / A, the mean of N / A - M y / I."""
    a, b = SIZE[1:]
    body = of_block(
        block(skfem.MeshHex, (4, 2, 1)), nu=0.0, n_modes=2, nodes={"middle": in_the_middle}
    )
    eta = deflected(body, "right", [1000.0, 0.0, 0.0, 0.0, 0.0, 20.0])
    found = eta @ body.stresses[body.node_row("middle")]
    np.testing.assert_allclose(found, 1000.0 / (a * b) * np.eye(6)[0], atol=1e-8 * 1000.0 / (a * b))


def in_the_middle(x):
    return np.abs(x[:, 0] - 0.5 * SIZE[0]) < 1e-9
