"""Text and fields of the report of `inspect`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from tests import models
from tests.marks import thorough_but
from tests.system import linkages

FOUR_BAR = linkages.hinged(**linkages.four_bar())
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "springs": mbd.NaturalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
    "plane": mbd.PointCoordinates(plane="zx"),
    "reduced": mbd.VelocityTransformation(mbd.PointCoordinates()),
}
REPORT = """\
3 bodies
  crank: 1 kg
  coupler: 1 kg
  rocker: 1 kg
joint tree
  ground
    left: Revolute, 1 dof, carries crank
      crank pin: Revolute, 1 dof, carries coupler
    right: Revolute, 1 dof, carries rocker
loops
  left, crank pin, right: closed by rocker pin (Revolute, 5 constraints)
coordinates: 3, velocities: 3
  q and v: of each joint of the tree, in the order of their child bodies
  left: q[0], v[0]: [rad]
  crank pin: q[1], v[1]: [rad]
  right: q[2], v[2]: [rad]
5 constraints
  rank: 2
  degrees of freedom: 1
  3 of 5 constraints are redundant (in rocker pin): reactions there are minimum-norm ones
accelerations: generated machine code
"""


def look(model, formulation=FORMULATIONS["joint"]):
    """At zero coordinates."""
    system = mbd.formulate(model, formulation)
    return mbd.inspect(system, linkages.drawn(system))


@pytest.mark.long
def test_a_four_bar_in_words(capsys):
    found = look(FOUR_BAR)
    assert capsys.readouterr().out == ""  # `print` would repeat it.
    assert f"{found}\n" == f"{found!r}\n" == f"{found.report}\n" == REPORT


@pytest.mark.long
def test_a_four_bar_in_numbers():
    found = look(FOUR_BAR)
    assert found.bodies == ("crank", "coupler", "rocker")
    assert found.joints == dict.fromkeys(FOUR_BAR.joints, "Revolute")
    assert found.tree == {"left": "crank", "crank pin": "coupler", "right": "rocker"}
    (block,) = found.blocks
    assert (block.joints, block.loop_constraints) == (
        ("left", "crank pin", "right"),
        ("rocker pin",),
    )
    assert (found.nq, found.nv, found.n_constraints, found.rank, found.dof) == (3, 3, 5, 2, 1)
    assert found.redundant == {"rocker pin": 3}
    assert found.singular is False
    assert found.problem is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(["joint", "maximal", "natural"], FORMULATIONS))
def test_every_formulation_has_the_same_freedoms(name):
    found = look(FOUR_BAR, FORMULATIONS[name])
    assert found.dof == 1
    assert "\n  degrees of freedom: 1" in found.report
    meaning = {
        "joint": "left: q[0], v[0]: [rad]",
        "maximal": "coupler: q[7:14], v[6:12]",
        "springs": "q: 6 points and vectors",
        "natural": "q: 6 points and vectors",
        "points": "q: 8 particles",
        "plane": "q: 5 particles",
        "reduced": "left: q[0], v[0]: [rad]",
    }
    assert f"\n  {meaning[name]}" in found.report
    if name == "springs":
        assert "degrees of freedom: 1; 13 where springs stand in for rigidity" in found.report
    if name == "plane":  # What hinges keep across the plane is nothing there.
        assert found.redundant == {}


@pytest.mark.thorough
def test_without_a_state_it_assembles_one():
    found = mbd.inspect(mbd.formulate(linkages.slider_crank(), mbd.JointCoordinates()))
    assert (found.dof, found.redundant, found.singular) == (1, {}, False)
    assert "repeat" not in found.report


@pytest.mark.thorough
def test_where_nothing_can_be_assembled_it_says_why():
    model = linkages.slider_crank()
    far = eqx.tree_at(lambda model: model.joints["ball"].successor.p, model, jnp.array([9.0, 0, 0]))
    found = mbd.inspect(mbd.formulate(far, mbd.JointCoordinates()))
    assert found.rank is found.dof is found.redundant is found.singular is None
    assert "stay open" in found.problem
    assert "bearing: Revolute, 1 dof, carries crank" in found.report
    assert "not evaluated: assemble: these joints stay open" in found.report


@pytest.mark.long
def test_open_joints_are_reported():
    bars = {"crank": ((0, 0, 0), (0, 0, 1)), "rod": ((0, 0, 1), (0, 0, 2))}
    pins = {"a": ("ground", "crank", (0, 0, 0)), "b": ("crank", "rod", (0, 0, 1))}
    model = linkages.hinged(bars, pins | {"c": ("rod", "ground", (0, 0, 2))})
    far = eqx.tree_at(lambda m: m.joints["c"].successor.p, model, jnp.array([5.0, 0, 0]))
    assert "the joints are open" in look(far).report


@pytest.mark.long
def test_singular_positions_are_pointed_out():
    found = look(linkages.parallelogram(0.0))
    assert found.singular
    assert "singular position: the rank is 3 nearby" in found.report
    assert "change point of the loop of 'foot0', 'tip0'" in found.report
    found = look(linkages.parallelogram(3e-3))
    assert not found.singular
    assert "near a change point of the loop of 'foot0', 'tip0'" in found.report
    for model in (linkages.parallelogram(0.1), linkages.bennett(), linkages.slider_crank()):
        assert "change point" not in look(model).report
    bars = {"a": ((0, 0, 0), (1, 0, 0)), "b": ((1, 0, 0), (2, 0, 0))}
    pins = {"p": ("ground", "a", (0, 0, 0)), "q": ("a", "b", (1, 0, 0))}
    toggle = linkages.hinged(bars, pins | {"r": ("b", "ground", (2, 0, 0))})
    assert "no position nearby closes" in look(toggle).report


@pytest.mark.long
def test_couplings_and_drivers():
    bars = {"a": ((0, 0, 0), (1, 0, 0)), "b": ((2, 0, 0), (3, 0, 0))}
    pins = {"p": ("ground", "a", (0, 0, 0)), "q": ("ground", "b", (2, 0, 0))}
    found = look(
        linkages.hinged(
            bars,
            pins,
            couplings={"gear": joints.Coupling("p", "q", ratio=-2.0)},
            drivers={"motor": joints.Driver("p", 0.0)},
        )
    )
    assert found.drivers == ("motor",)
    assert "\nloops and couplings\n  p, q: coupled by gear\n" in found.report
    assert "\ndrivers\n  motor prescribes p\n" in found.report
    assert "degrees of freedom: 0; 1 without the drivers" in found.report


@pytest.mark.long
def test_rolling_and_floating():
    disc = mbd.inertia.cylinder(1.0, 0.5, 0.1, axis=(0, 1, 0))
    above = Frame("ground", (0, 0, -0.5))
    found = look(mbd.Model({"disc": disc}, {"roll": joints.RollingDisc(above, "disc", 0.5)}))
    assert "disc: Free, 6 dof, carries disc, which floats" in found.report
    assert "disc: q[0:7], v[0:6]: x [m], y [m], z [m], qw [1]," in found.report
    assert "degrees of freedom: 3 of velocities, 5 of positions" in found.report


@pytest.mark.thorough
def test_rotors_and_fixed_joints():
    """In the tree of all kinds of joints."""
    found = look(models.random_tree(5), mbd.MaximalCoordinates())
    assert "\n  rotor rotor " in found.report
    found = look(models.random_tree(5))
    assert "Fixed, 0 dof, carries" in found.report
    assert ": : " not in found.report


@pytest.mark.long
def test_long_models_are_shortened_and_long_lines_wrapped():
    found = look(models.chain(150))
    lines = found.report.splitlines()
    assert len(lines) < 140
    assert lines.count("  and 110 more") == 1  # Bodies; joints and coordinates have a heading.
    assert lines.count("  and 111 more") == 2
    assert f"{'  ' * 17}[20] jlink0019: Revolute, 1 dof, carries link0019" in lines
    assert len(found.tree) == 150
    names = {f"a body whose name is long, number {k}": f"{k}" for k in range(14)}
    bars = {name: ((0, 0, int(k)), (0, 0, int(k) + 1)) for name, k in names.items()}
    ends = ["ground", *bars, "ground"]
    pins = {
        f"a hinge with a name that is longer still, number {k}": (*ends[k : k + 2], (0, 0, k))
        for k in range(15)
    }
    found = look(linkages.hinged(bars, pins))
    assert max(map(len, found.report.splitlines())) <= 100
    assert "and 2 more: closed by" in " ".join(found.report.split())


def test_it_cannot_be_traced():
    system = mbd.formulate(FOUR_BAR, mbd.JointCoordinates())
    with pytest.raises(mbd.ModelError, match="inspect needs concrete numbers"):
        jax.jit(lambda state: mbd.inspect(system, state).rank)(linkages.drawn(system))


@pytest.mark.thorough
def test_elastic_coordinates_under_gravity():
    """Fields have no law of their own at bodies that are not rigid."""
    rope = mbd.bodies.ANCFCable(1.0, EA=1e3, EI=1.0, mass_per_length=1.0, n_elements=1)
    hinge = joints.Revolute("ground", Frame("rope", node="base"), axis=[0, 1, 0])
    model = mbd.Model({"rope": rope}, {"hinge": hinge}, {"gravity": mbd.forces.Gravity()})
    assert "rope" in str(mbd.inspect(mbd.formulate(model, mbd.JointCoordinates())))
