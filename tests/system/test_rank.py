"""Rank of the constraints: freedoms, what repeats others, and singular positions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.lie import so3
from jaxmbd.system.abstract import reference_values
from jaxmbd.system.rank import constraint_rank
from tests import models
from tests.marks import thorough_but
from tests.system import linkages

JOINT, MAXIMAL = mbd.JointCoordinates(), mbd.MaximalCoordinates()
FORMULATIONS = {
    "joint": JOINT,
    "maximal": MAXIMAL,
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
    "reduced": mbd.VelocityTransformation(mbd.NaturalCoordinates(rigid=True)),
}
FOUR_BAR = linkages.hinged(**linkages.four_bar())


def rank_of(model, formulation):
    """At zero coordinates."""
    system = mbd.formulate(model, formulation)
    return constraint_rank(system, 0.0, system.from_tree(reference_values(system.mechanism)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", thorough_but([x for x in FORMULATIONS if x not in ("points", "natural")], FORMULATIONS)
)
def test_a_four_bar_of_hinges_repeats_three_constraints(name):
    found = rank_of(FOUR_BAR, FORMULATIONS[name])
    assert found.dof == found.position_dof == found.undriven_dof == 1
    assert found.n_redundant == 3
    assert not found.singular
    assert found.closes
    assert found.n_nearby > 0
    rows = {"joint": 5, "maximal": 20, "natural": 20, "points": 26, "reduced": 5}
    assert (found.n_rows, found.rank) == (rows[name], rows[name] - 3)
    if name == "maximal":  # Each hinge keeps one position and two angles of the plane.
        assert found.redundant == dict.fromkeys(FOUR_BAR.joints, 3)
    if name in ("joint", "reduced"):
        assert found.redundant == {"rocker pin": 3}


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_a_slider_crank_with_a_ball_and_a_cross_repeats_nothing(name):
    found = rank_of(linkages.slider_crank(), FORMULATIONS[name])
    assert found.dof == 1
    assert found.rank == found.n_rows
    assert found.redundant == {}
    assert not found.singular


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_a_folded_parallelogram_is_singular(name):
    """The third crank repeats in every position; in the folded one the bar might as well turn."""
    moving = rank_of(linkages.parallelogram(0.7), FORMULATIONS[name])
    assert moving.dof == 1
    assert moving.n_redundant == 7
    assert not moving.singular
    folded = rank_of(linkages.parallelogram(0.0), FORMULATIONS[name])
    assert folded.singular
    assert folded.dof == 2
    assert folded.generic_rank == moving.rank == folded.rank + 1
    assert set(folded.redundant) == set(moving.redundant)


@pytest.mark.long
def test_near_a_singular_position_the_rank_is_full():
    assert rank_of(linkages.parallelogram(1e-3), JOINT).dof == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_what_only_its_proportions_let_move_is_no_singular_position(name):
    found = rank_of(linkages.bennett(), FORMULATIONS[name])
    assert found.dof == 1
    assert found.n_redundant == 3
    assert not found.singular
    assert found.n_nearby > 0


@pytest.mark.long
def test_a_stretched_toggle_has_no_position_nearby():
    """To first order its middle may move, to second order it may not."""
    bars = {"a": ((0, 0, 0), (1, 0, 0)), "b": ((1, 0, 0), (2, 0, 0))}
    pins = {"p": ("ground", "a", (0, 0, 0)), "q": ("a", "b", (1, 0, 0))}
    pins["r"] = ("b", "ground", (2, 0, 0))
    found = rank_of(linkages.hinged(bars, pins), JOINT)
    assert found.dof == 1
    assert found.n_nearby == 0


@pytest.mark.long
def test_independent_loops_add_up():
    parts = linkages.together(linkages.four_bar(), linkages.four_bar("other ", at=3.0))
    found = rank_of(linkages.hinged(**parts), JOINT)
    assert (found.dof, found.n_redundant) == (2, 6)


@pytest.mark.parametrize("formulation", thorough_but([JOINT], [JOINT, MAXIMAL]), ids=models.name_of)
def test_trees_have_the_freedoms_of_their_joints(formulation):
    model = models.random_tree(5)
    found = rank_of(model, formulation)
    assert found.dof == 6 + sum(joint.sizes()[1] for joint in model.joints.values())
    assert found.n_redundant == found.n_nearby == 0
    assert found.redundant == {}


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", "maximal"])
def test_planes_may_lie_anyhow(name):
    """Rows across the plane are rounding then, and not zero, in coordinates of joints."""
    R = so3.exp_matrix(jnp.array([0.4, -0.9, 0.7]))
    links = dict(FOUR_BAR.joints)
    for hinge in ("left", "right"):
        foot = Frame("ground", R @ links[hinge].predecessor.p + jnp.array([30.0, 7.0, -9.0]), R)
        links[hinge] = joints.Revolute(foot, links[hinge].successor, (0, 1, 0))
    found = rank_of(mbd.Model(FOUR_BAR.bodies, links), FORMULATIONS[name])
    assert (found.dof, found.n_redundant, found.singular) == (1, 3, False)
    assert found.n_nearby > 0


@pytest.mark.long
@pytest.mark.parametrize(("size", "mass"), [(1e-5, 1.0), (1e4, 1e-6), (1.0, 1e12)])
def test_units_do_not_matter(size, mass):
    parts = linkages.four_bar(size=size)
    pins = {name: (joints.Revolute, *pin) for name, pin in parts["pins"].items()}
    found = rank_of(linkages.drawing(parts["bars"], pins, mass), MAXIMAL)
    assert (found.rank, found.generic_rank, found.closes) == (17, 17, True)
    assert found.n_nearby > 0


@pytest.mark.long
def test_heavy_and_light_parts_together():
    parts = linkages.together(linkages.four_bar(), linkages.four_bar("tiny ", at=0.0, size=1e-3))
    model = linkages.hinged(**parts)
    light = {
        name: mbd.RigidBody(1e-6 * body.mass, 1e-6 * body.inertia, body.com)
        if name.startswith("tiny")
        else body
        for name, body in model.bodies.items()
    }
    found = rank_of(mbd.Model(light, model.joints), MAXIMAL)
    assert (found.dof, found.n_redundant) == (2, 6)


@pytest.mark.thorough
def test_float32_sees_the_same():
    for angle, is_singular in ((0.7, False), (0.0, True)):
        model = jax.tree.map(lambda x: x.astype(jnp.float32), linkages.parallelogram(angle))
        found = rank_of(model, MAXIMAL)
        assert (found.n_redundant, found.singular, found.closes) == (7, is_singular, True)


@pytest.mark.long
def test_joints_that_have_drifted_apart_are_closed_first():
    """Open by a little, no row would repeat another one."""
    system = mbd.formulate(FOUR_BAR, MAXIMAL)
    q = linkages.drawn(system).q
    drifted = system.retract(q, 1e-5 * jnp.asarray(np.random.default_rng(0).normal(size=system.nv)))
    found = constraint_rank(system, 0.0, drifted)
    assert (found.rank, found.generic_rank, found.closes) == (17, 17, True)


@pytest.mark.long
def test_joints_that_cannot_be_closed():
    short = linkages.four_bar()
    bars = short["bars"] | {"coupler": ((0.3, 0, 0.4), (0.4, 0, 0.4))}
    model = linkages.hinged(bars, short["pins"])
    apart = model.joints["rocker pin"]
    moved = eqx.tree_at(lambda joint: joint.predecessor.p, apart, jnp.array([0.05, 0, 0]))
    system = mbd.formulate(mbd.Model(model.bodies, model.joints | {"rocker pin": moved}), JOINT)
    found = constraint_rank(system, 0.0, linkages.drawn(system).q)
    assert not found.closes


@pytest.mark.long
def test_drivers_take_freedoms():
    motor = {"motor": joints.Driver("left", 0.3)}
    found = rank_of(mbd.Model(FOUR_BAR.bodies, FOUR_BAR.joints, drivers=motor), JOINT)
    assert (found.dof, found.undriven_dof) == (0, 1)
    assert "motor" not in found.redundant
    # Positions nearby are those that the driver could prescribe.
    assert found.n_nearby > 0


@pytest.mark.long
def test_a_second_driver_repeats_the_first():
    motors = {"motor": joints.Driver("left", 0.0), "second": joints.Driver("right", 0.0)}
    found = rank_of(mbd.Model(FOUR_BAR.bodies, FOUR_BAR.joints, drivers=motors), JOINT)
    assert (found.dof, found.n_redundant) == (0, 4)
    assert {"motor", "second"} <= set(found.redundant)


@pytest.mark.long
def test_couplings_take_freedoms():
    parts = linkages.together(linkages.four_bar(), linkages.four_bar("other ", at=3.0))
    two = linkages.hinged(**parts)
    gear = {"gear": joints.Coupling("other left", "left")}
    found = rank_of(mbd.Model(two.bodies, two.joints, couplings=gear), JOINT)
    assert (found.dof, found.n_redundant) == (1, 6)


@pytest.mark.long
@pytest.mark.parametrize("formulation", [JOINT, MAXIMAL], ids=models.name_of)
def test_rolling_leaves_more_positions_than_velocities(formulation):
    disc = mbd.inertia.cylinder(1.0, 0.5, 0.1, axis=(0, 1, 0))
    above = Frame("ground", (0, 0, -0.5))
    model = mbd.Model({"disc": disc}, {"roll": joints.RollingDisc(above, "disc", 0.5)})
    found = rank_of(model, formulation)
    assert (found.dof, found.position_dof) == (3, 5)
    assert found.redundant == {}


@pytest.mark.long
def test_a_second_weld_repeats_the_first():
    welds = {name: joints.Fixed("ground", "a") for name in ("first", "second")}
    model = mbd.Model({"a": mbd.inertia.sphere(1.0, 0.1)}, welds)
    for formulation, rows in ((JOINT, 6), (MAXIMAL, 12)):
        found = rank_of(model, formulation)
        assert (found.n_rows, found.rank, found.dof) == (rows, rows - 6, 0)
        assert not found.singular


@pytest.mark.long
def test_long_chains_take_no_singular_values(monkeypatch):
    """They would take minutes: a chain in maximal coordinates is known to be independent before."""

    def refuse(*args, **kwargs):
        raise AssertionError("singular values of a large matrix")

    monkeypatch.setattr(np.linalg, "svd", refuse)
    assert rank_of(models.chain(200), MAXIMAL).dof == 200


def test_traced_numbers_are_refused():
    system = mbd.formulate(FOUR_BAR, JOINT)
    with pytest.raises(mbd.ModelError, match="concrete numbers"):
        jax.jit(lambda q: constraint_rank(system, 0.0, q).rank)(linkages.drawn(system).q)
