"""Flexible bodies from meshes: against matrices assembled by scikit-fem, and closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import meshio
import numpy as np
import pytest
import scipy.linalg
import skfem
from skfem.models.elasticity import lame_parameters, linear_elasticity

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible.mesh import rigid_motions
from jaxmbd.flexible.mode_shapes import eigen
from jaxmbd.mechanism.groups import rigid_part

SIZE = (0.4, 0.05, 0.03)
MATERIAL = {"E": 7e10, "nu": 0.3, "density": 2700.0}


def left(x):
    return x[:, 0] < 1e-6


def right(x):
    return x[:, 0] > SIZE[0] - 1e-6


ENDS = {"left": left, "right": right}


def block(kind=skfem.MeshTet, cells=(4, 1, 1), size=SIZE):
    return kind.init_tensor(*(np.linspace(0.0, a, n + 1) for a, n in zip(size, cells, strict=True)))


def of_block(mesh=None, **options):
    given = {"interfaces": ENDS, "n_modes": 3, "unit": 1.0, **MATERIAL}
    return flexible.from_mesh(block() if mesh is None else mesh, **{**given, **options})


@pytest.fixture(scope="module")
def body():
    return of_block()


@pytest.fixture(scope="module")
def full():
    """K, M (node by node) and positions of the block, assembled by scikit-fem's own forms."""
    basis = skfem.Basis(block(), skfem.ElementVector(skfem.ElementTetP2()), intorder=4)
    K = linear_elasticity(*lame_parameters(MATERIAL["E"], MATERIAL["nu"])).assemble(basis)
    M = skfem.BilinearForm(lambda u, v, w: sum(a * b for a, b in zip(u, v, strict=True)))
    M = MATERIAL["density"] * M.assemble(basis)
    order = np.concatenate([basis.nodal_dofs.T.ravel(), basis.edge_dofs.T.ravel()])
    return K.toarray()[order][:, order], M.toarray()[order][:, order], basis.doflocs.T[order[::3]]


def held_and_tied(positions, rigid):
    """u = T q with the left end held, and the motion d = C q of the right end."""
    free = np.flatnonzero(~left(positions))
    end = np.flatnonzero(right(positions))
    R = rigid_motions(positions[end], positions[end].mean(axis=0))
    dofs = (3 * end[:, None] + np.arange(3)).ravel()
    T = np.eye(3 * len(positions))
    C = np.zeros((6, len(T)))
    C[:, dofs] = np.linalg.pinv(R)
    if rigid:
        inner = (3 * np.setdiff1d(free, end)[:, None] + np.arange(3)).ravel()
        tied = np.zeros((len(T), 6))
        tied[dofs] = R
        T = np.concatenate([T[:, inner], tied], axis=1)
    else:
        T = T[:, (3 * free[:, None] + np.arange(3)).ravel()]
    return T, C @ T


@pytest.mark.long
@pytest.mark.parametrize("coupling", ["rigid", "averaged"])
def test_deflections_by_loads_at_interfaces_are_those_of_the_full_model(body, full, coupling):
    if coupling == "averaged":
        body = of_block(interfaces={**ENDS, "right": flexible.Interface(right, "averaged")})
    K, _, positions = full
    T, C = held_and_tied(positions, coupling == "rigid")
    expected = C @ np.linalg.solve(T.T @ K @ T, C.T)
    row = dict(body.nodes)["right"]
    motion = np.concatenate([body.translations[row], body.rotations[row]], axis=1)
    found = motion.T @ np.linalg.solve(body.stiffness, motion)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


@pytest.mark.long
def test_lowest_frequencies_are_those_of_the_full_model(body, full):
    K, M, positions = full
    T, _ = held_and_tied(positions, rigid=True)
    values = scipy.linalg.eigvalsh(T.T @ K @ T, T.T @ M @ T)
    found = np.asarray(body.frequencies())
    np.testing.assert_allclose(found[:3], np.sqrt(values[:3]), rtol=2e-3)
    # From above, as by any restriction of displacements.
    assert np.all(found >= np.sqrt(values[: len(found)]) * (1 - 1e-9))
    modal = np.asarray(body.modal_mass())
    np.testing.assert_allclose(modal, np.eye(len(modal)), atol=1e-9)


@pytest.mark.long
def test_modes_of_a_body_whose_only_interface_is_averaged(full):
    """They are modes of the full model with the mean motion of the end held."""
    K, M, positions = full
    ends = np.flatnonzero(left(positions))
    C = np.zeros((6, len(K)))
    dofs = (3 * ends[:, None] + np.arange(3)).ravel()
    C[:, dofs] = np.linalg.pinv(rigid_motions(positions[ends], positions[ends].mean(axis=0)))
    N = scipy.linalg.null_space(C)
    values = scipy.linalg.eigvalsh(N.T @ K @ N, N.T @ M @ N)
    body = of_block(interfaces={"left": flexible.Interface(left, "averaged")})
    np.testing.assert_allclose(body.frequencies(), np.sqrt(values[:3]), rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("kind", [skfem.MeshTet, skfem.MeshHex])
@pytest.mark.parametrize("frame", ["clamped", "chord", "mean-axis"])
def test_mass_centre_and_inertia_are_those_of_the_block(kind, frame):
    found = rigid_part(of_block(block(kind), frame=frame))
    mass = MATERIAL["density"] * np.prod(SIZE)
    squares = np.square(SIZE)
    np.testing.assert_allclose(found.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(found.com, 0.5 * np.asarray(SIZE), rtol=1e-12)
    expected = np.diag(mass / 12.0 * (squares.sum() - squares))
    np.testing.assert_allclose(found.inertia, expected, rtol=1e-11, atol=1e-12 * expected.max())


@pytest.mark.long
def test_bending_frequency_of_a_cantilever():
    """Against a Timoshenko beam; without lateral contraction the clamped end is that of a beam."""
    steel = {"E": 2.1e11, "density": 7850.0}
    size = (1.0, 0.06, 0.04)
    options = {**steel, "nu": 0.0, "interfaces": {"left": left}, "n_modes": 2}
    section = flexible.Rectangle(size[1], size[2])
    beam = flexible.beam(1.0, G=0.5 * steel["E"], section=section, n_modes=2, **steel)
    exact = beam.frequencies()
    for kind, n in ((skfem.MeshTet, 8), (skfem.MeshHex, 4)):
        coarse, fine = (
            of_block(block(kind, (m, 1, 1), size), **options).frequencies() / exact - 1.0
            for m in (n, 2 * n)
        )
        assert np.all((fine > 0.0) & (fine < 2e-3) & (fine < 0.3 * coarse)), (coarse, fine)


@pytest.mark.long
def test_derivatives_by_material(body):
    """ω ∝ √(E/ρ), and by ν against differences in the same basis."""

    def lowest(values):
        made = of_block(E=values[0], nu=values[1], density=values[2], basis_nu=0.3)
        return made.frequencies()[0]

    at = jnp.array([MATERIAL["E"], MATERIAL["nu"], MATERIAL["density"]])
    value, slope = jax.value_and_grad(lowest)(at)
    np.testing.assert_allclose(value, body.frequencies()[0], rtol=1e-9)
    np.testing.assert_allclose(slope[0], 0.5 * value / at[0], rtol=1e-9)
    np.testing.assert_allclose(slope[2], -0.5 * value / at[2], rtol=1e-9)
    h = 1e-4
    step = jnp.array([0.0, h, 0.0])
    difference = (lowest(at + step) - lowest(at - step)) / (2 * h)
    np.testing.assert_allclose(slope[1], difference, rtol=1e-5)


def test_nodes_of_the_surface_move_and_turn_with_the_interface(body):
    """The rigid interface at the right moves its vertices rigidly, and they turn with it."""
    row = dict(body.nodes)["right"]
    at_end = np.flatnonzero(right(np.asarray(body.positions)))
    at_end = at_end[at_end > max(dict(body.nodes).values())]
    assert len(at_end) == 4
    positions, theta = np.asarray(body.positions), np.asarray(body.rotations[row])
    arms = positions[at_end] - positions[row]
    expected = np.asarray(body.translations[row])[None] + np.cross(theta[None], arms[:, None])
    np.testing.assert_allclose(body.translations[at_end], expected, atol=1e-9)


def test_rotations_of_vertices_are_exact_for_uniform_rotation():
    from jaxmbd.flexible.mesh import _surface_motions

    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    triangles = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    turn = rigid_motions(corners, np.array([0.3, 0.2, 0.1])).reshape(4, 3, 6)
    found = _surface_motions(corners, turn, triangles)[..., 3:]
    expected = np.broadcast_to(np.eye(6)[:, 3:], (4, 6, 3))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.long
def test_surface_points_outwards(body):
    """The volume inside the triangles is that of the block."""
    rows, triangles = body.skin.rows, body.skin.triangles
    a, b, c = np.asarray(body.positions)[rows[triangles.T]]
    np.testing.assert_allclose(np.sum(a * np.cross(b, c)) / 6.0, np.prod(SIZE), rtol=1e-12)
    points = body.skin_points(body.skin, jnp.zeros(body.n_elastic))
    np.testing.assert_allclose(points, body.positions[rows], atol=1e-15)


def in_file(path, mesh, kind, file_format=None, **options):
    """Write a mesh of mm to a file of meshio."""
    cells = [(kind, mesh.t.T), *options.pop("cells", [])]
    meshio.write(path, meshio.Mesh(1e3 * mesh.p.T, cells, **options), file_format)
    return path


def test_mesh_files(tmp_path, body):
    """In mm, with sets of nodes, or with physical groups of triangles."""
    mesh = block()
    sets = {"a": np.flatnonzero(left(mesh.p.T)), "b": np.flatnonzero(right(mesh.p.T))}
    path = in_file(tmp_path / "block.inp", mesh, "tetra", point_sets=sets)
    ends = {"left": "a", "right": sets["b"]}
    found = of_block(str(path), interfaces=ends, unit=1e-3, total_mass=1.62)
    np.testing.assert_allclose(found.frequencies(), body.frequencies(), rtol=1e-7)

    surface = mesh.facets[:, mesh.boundary_facets()].T
    sides = np.concatenate([surface[np.isin(surface, own).all(axis=1)] for own in sets.values()])
    tags = np.repeat([1, 2], len(sides) // 2)
    data = [np.full(mesh.t.shape[1], 3), tags]
    path = in_file(
        tmp_path / "block.msh",
        mesh,
        "tetra",
        file_format="gmsh22",
        cells=[("triangle", sides)],
        cell_data={"gmsh:physical": data, "gmsh:geometrical": data},
        field_data={"a": np.array([1, 2]), "b": np.array([2, 2]), "body": np.array([3, 3])},
    )
    found = of_block(path, interfaces={"left": "a", "right": "b"}, unit=1e-3)
    np.testing.assert_allclose(found.frequencies(), body.frequencies(), rtol=1e-7)


def test_quadratic_cells(tmp_path, body):
    """Facets whose first three nodes are vertices."""
    mesh = skfem.MeshTet2.from_mesh(block())
    mesh.save(tmp_path / "block.vtk")
    for given in (mesh, tmp_path / "block.vtk"):
        found = of_block(given)
        np.testing.assert_allclose(found.frequencies(), body.frequencies(), rtol=1e-7)


def test_stiff_bodies_approach_the_rigid_one():
    """The frequency of a hanging pendulum, with an error that is proportional to 1/E."""

    @jax.jit
    def lowest(E):
        """√ of the lowest eigenvalue in the angle of the hinge and the elastic coordinates."""
        bar = of_block(E=E, interfaces={"left": left}, n_modes=2)
        hinge = bar.positions[dict(bar.nodes)["left"]]
        axis = jnp.array([0.0, 1.0, 0.0])
        zeros = jnp.zeros(1 + bar.n_elastic)

        def kinetic(rates):
            V = rates[0] * jnp.concatenate([jnp.cross(hinge, axis), axis])
            return bar.kinetic_energy(zeros[1:], V, rates[1:])

        def potential(x):
            # The bar hangs along x.
            sums = jnp.concatenate([jnp.ones(1), x[1:]]) @ bar.first - bar.mass * hinge
            along = sums[0] * jnp.cos(x[0]) + sums[2] * jnp.sin(x[0])
            return bar.elastic_energy(x[1:]) - 9.81 * along

        M, K = (jax.hessian(f)(zeros) for f in (kinetic, potential))
        return jnp.sqrt(eigen(K, M)[0][0])

    inertia = (SIZE[0] ** 2 + SIZE[2] ** 2) / 12.0 + 0.25 * SIZE[0] ** 2
    rigid = np.sqrt(9.81 * 0.5 * SIZE[0] / inertia)
    found = [float(lowest(E)) for E in (1e8, 1e9, 1e10)]
    errors = np.abs(np.divide(found, rigid) - 1.0)
    ratios = np.divide(errors[:-1], errors[1:])
    np.testing.assert_allclose(ratios, 10.0, rtol=0.03)
    assert errors[-1] < 1e-4


def test_messages(tmp_path):
    mesh = block()
    folded = mesh.p.copy()
    folded[:, 0] = [0.3, 0.1, 0.1]
    hexes = block(skfem.MeshHex)
    twisted = hexes.t.copy()
    twisted[[0, 1], 0] = twisted[[1, 0], 0]
    two = mesh + mesh.translated((1.0, 0.0, 0.0))
    hinged = mesh + block(size=(0.4, 0.05, 0.03)).translated((0.4, 0.05, 0.0))
    (tmp_path / "empty.msh").write_text("")
    for match, options in (
        ("E must be positive", {"E": -1.0}),
        ("density must be positive", {"density": 0.0}),
        ("which no material has", {"E": 7e4}),
        ("Poisson's ratio must be above -1 and below 0.5, got 0.5", {"nu": 0.5}),
        (r"unit \[m\] must be positive", {"unit": 0.0}),
        ("the mesh has a mass of 1.62 kg, but .*check unit", {"total_mass": 1.62e-9}),
        ("interface 'top' selects no node", {"interfaces": {"top": lambda x: x[:, 2] > 1.0}}),
        ("unknown set 'rihgt'", {"interfaces": {"end": "rihgt"}}),
        ("must return booleans", {"interfaces": {"end": lambda x: x[:, 0]}}),
        ("rows outside of the 20 points", {"interfaces": {"end": [20]}}),
        ("has 2 nodes on a line", {"interfaces": {"end": [0, 1]}}),
        (
            "'left' and 'all' have .* nodes in common",
            {"interfaces": {"left": left, "all": lambda x: x[:, 0] > -1}},
        ),
        ("n_modes must be from 0 to", {"n_modes": 1000}),
        ("MeshTri1 has cells of dimension 2", {"mesh": skfem.MeshTri()}),
        ("float has no mesh", {"mesh": 1.0}),
        ("degree must be 1 or 2", {"degree": 3}),
        ("elements are flat or inverted", {"mesh": dataclasses.replace(mesh, doflocs=folded)}),
        ("1 elements are flat or inverted", {"mesh": dataclasses.replace(hexes, t=twisted)}),
        ("has 2 parts that share no nodes", {"mesh": two}),
        ("moves without elastic energy", {"mesh": hinged, "interfaces": {"left": left}}),
        ("no file", {"mesh": "nowhere.msh"}),
        ("meshio cannot read", {"mesh": tmp_path / "empty.msh"}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            of_block(**options)
    with pytest.raises(mbd.ModelError, match="coupling must be 'rigid' or"):
        flexible.Interface(left, "stiff")
    with pytest.raises(mbd.ModelError, match=r"nu is traced.*pass basis_nu"):
        jax.jit(lambda nu: of_block(nu=nu).stiffness)(0.3)
