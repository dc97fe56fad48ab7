"""The joint graph with loops: where they are cut, and which of them are independent."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.mechanism.loops import Block, blocks, cycles
from jaxmbd.mechanism.lowering import lower
from jaxmbd.system import constraints
from tests import models
from tests.system import linkages

FOUR_BAR = linkages.four_bar()


def six_bar():
    """A second four-bar that the rocker of the first drives."""
    parts = linkages.together(FOUR_BAR, linkages.four_bar("next ", at=2.0))
    del parts["bars"]["next crank"], parts["pins"]["next left"]
    at = parts["pins"]["next crank pin"][2]
    parts["pins"]["next crank pin"] = ("rocker", "next coupler", at)
    return parts


def found(model, cut=()):
    return blocks(lower(model, cut))


def test_cycles_go_from_the_predecessor_to_the_successor():
    mechanism = lower(linkages.hinged(**FOUR_BAR))
    assert cycles(mechanism) == {"rocker pin": ("crank pin", "left", "right")}
    turned = FOUR_BAR["pins"] | {"rocker pin": ("rocker", "coupler", (2.1, 0, 1.2))}
    mechanism = lower(linkages.hinged(FOUR_BAR["bars"], turned))
    assert cycles(mechanism) == {"rocker pin": ("right", "left", "crank pin")}


def test_a_tree_has_no_blocks():
    assert found(models.random_tree(5)) == ()
    assert found(models.floating_tree()) == ()
    assert cycles(lower(models.chain(3))) == {}


def test_loops_that_share_nothing_are_kept_apart():
    parts = linkages.together(FOUR_BAR, linkages.four_bar("other ", at=3.0))
    first, second = found(linkages.hinged(**parts))
    assert first == Block(("left", "crank pin", "right"), ("rocker pin",), ())
    joints_of_other = ("other left", "other crank pin", "other right")
    assert second == Block(joints_of_other, ("other rocker pin",), ())


def test_loops_that_share_a_joint_are_one_block():
    model = linkages.hinged(**six_bar())
    (block,) = found(model)
    assert len(block.loop_constraints) == 2
    assert {*block.joints, *block.loop_constraints} == set(model.joints)


def test_loops_on_one_moving_body_are_kept_apart():
    """They share a body, and no joint."""
    parts = linkages.together(
        linkages.four_bar(frame="cart"), linkages.four_bar("other ", at=3.0, frame="cart")
    )
    pins = {name: (joints.Revolute, *pin) for name, pin in parts["pins"].items()}
    pins["track"] = (joints.Prismatic, "ground", "cart", (0, 0, 0))
    model = linkages.drawing(parts["bars"] | {"cart": ((0, 0, 0), (1, 0, 0))}, pins)
    first, second = found(model)
    assert "track" not in (*first.joints, *second.joints)
    assert {*first.loop_constraints, *second.loop_constraints} == {"rocker pin", "other rocker pin"}


def test_a_joint_that_cannot_move_relates_nothing():
    """Both loops go to the ground through the frame, one over its fixed joint."""
    parts = linkages.together(
        linkages.four_bar(frame="frame"), linkages.four_bar("other ", at=3.0, frame="frame")
    )
    pins = {name: (joints.Revolute, *pin) for name, pin in parts["pins"].items()}
    pins |= {
        name: (joints.Revolute, "ground", *pins[name][2:]) for name in ("right", "other right")
    }
    pins["feet"] = (joints.Fixed, "ground", "frame", (0, 0, 0))
    mechanism = lower(linkages.drawing(parts["bars"] | {"frame": ((0, 0, 0), (1, 0, 0))}, pins))
    assert all("feet" in cycle for cycle in cycles(mechanism).values())
    first, second = blocks(mechanism)
    assert "feet" not in (*first.joints, *second.joints)


def test_couplings_relate_their_joints():
    two = linkages.hinged(**linkages.together(FOUR_BAR, linkages.four_bar("other ", at=3.0)))
    gear = joints.Coupling("other left", "left", ratio=-2.0)
    model = mbd.Model(two.bodies, two.joints, couplings={"gear": gear})
    (block,) = found(model)
    assert block.couplings == ("gear",)
    assert set(block.loop_constraints) == {"rocker pin", "other rocker pin"}
    # Also where a joint closes a loop, and in a tree.
    gear = joints.Coupling("other left", "rocker pin")
    (block,) = found(mbd.Model(two.bodies, two.joints, couplings={"gear": gear}))
    assert len(block.joints) == 6
    chain = models.chain(4)
    gear = joints.Coupling("jlink0003", "jlink0001")
    coupled = found(mbd.Model(chain.bodies, chain.joints, couplings={"gear": gear}))
    assert coupled == (Block(("jlink0001", "jlink0003"), (), ("gear",)),)


def test_cutting_another_joint_moves_the_closure():
    model = linkages.hinged(**FOUR_BAR)
    for cut in ("left", "crank pin", "right"):
        (block,) = found(model, (cut,))
        assert block.loop_constraints == (cut,)
        assert set(block.joints) == set(model.joints) - {cut}


def test_a_name_alone_is_a_choice_of_cuts():
    model = linkages.hinged(**FOUR_BAR)
    for cut in ("left", ["left"], ("left",)):
        assert mbd.JointCoordinates(cut).cut == ("left",)
        system = mbd.formulate(model, mbd.JointCoordinates(cut=cut))
        assert system.mechanism.topology.loops == ("left",)


@pytest.mark.thorough
def test_reactions_do_not_depend_on_the_cut():
    model = linkages.slider_crank(forces={"gravity": forces.Gravity()})
    held = []
    for cut in ((), "guide"):
        system = mbd.formulate(model, mbd.JointCoordinates(cut))
        held.append(mbd.reactions(system, 0.0, linkages.drawn(system)))
    assert abs(held[0]["cross"][2]) > 1.0
    for name, wrench in held[0].items():
        np.testing.assert_allclose(held[1][name], wrench, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ("rightt", r"cut: unknown joint 'rightt'; known are 'crank pin', 'left', 'right'"),
        ("tail", r"cut: joint 'tail' closes no loop: .* body 'tip' would float"),
        (("left", "right"), r"cut: joint 'left' closes no loop: .* body 'crank' would float"),
    ],
    ids=["unknown", "no loop", "twice in one loop"],
)
def test_cuts_that_make_no_sense_are_refused(cut, message):
    pins = FOUR_BAR["pins"] | {"tail": ("coupler", "tip", (1, 0, 1))}
    model = linkages.hinged(FOUR_BAR["bars"] | {"tip": ((1, 0, 1), (1, 0, 2))}, pins)
    with pytest.raises(mbd.ModelError, match=message):
        mbd.formulate(model, mbd.JointCoordinates(cut=cut))


def test_joints_without_coordinates_carry_no_body():
    """A body on rods floats, and each rod closes a loop through its free joint."""
    corners = np.array([(1.0, 0, 0), (-1, 0, 0), (0, 1, 0)])
    rods = {
        f"rod{k}": joints.Distance(Frame("ground", 2 * p), Frame("plate", p), 1.0)
        for k, p in enumerate(corners)
    }
    model = mbd.Model({"plate": mbd.inertia.sphere(1.0, 0.5)}, rods)
    mechanism = lower(model)
    assert mechanism.topology.floating == ("plate",)
    assert mechanism.topology.loops == ("rod0", "rod1", "rod2")
    assert cycles(mechanism) == dict.fromkeys(rods, ("plate",))
    assert blocks(mechanism) == (Block(("plate",), ("rod0", "rod1", "rod2"), ()),)
    # Cutting what is no edge anyway changes nothing.
    assert lower(model, ("rod1",)).topology == mechanism.topology


def test_two_floating_bodies_on_a_rod_float_both():
    ball = mbd.inertia.sphere(1.0, 0.5)
    rod = {"rod": joints.Distance("a", "b", 1.0)}
    mechanism = lower(mbd.Model({"a": ball, "b": ball}, rod))
    assert mechanism.topology.floating == ("a", "b")
    assert cycles(mechanism) == {"rod": ("a", "b")}


@pytest.mark.parametrize("cut", [(), ("left",), ("crank pin", "next right")])
def test_jacobian_is_the_transpose_of_the_velocity_maps(cut):
    """Of loops within a branch and between branches, also where joints are open."""
    system = mbd.formulate(linkages.hinged(**six_bar()), mbd.JointCoordinates(cut))
    q = jnp.asarray(np.random.default_rng(0).normal(size=system.nq))
    c = system.configuration(jnp.zeros(()), q)
    G = constraints.jacobian(system, c)
    np.testing.assert_allclose(G, constraints.general_jacobian(system, c), rtol=0, atol=1e-14)


@pytest.mark.long
def test_ladders_of_any_length_are_one_block():
    """Many loops that share joints with their neighbours."""
    n = 100
    bars = {f"left{k}": ((0, 0, k), (0, 0, k + 1)) for k in range(n)}
    bars |= {f"right{k}": ((1, 0, k), (1, 0, k + 1)) for k in range(n)}
    pins = {}
    for side in ("left", "right"):
        x = float(side == "right")
        pins[f"{side} pin0"] = ("ground", f"{side}0", (x, 0, 0))
        pins |= {f"{side} pin{k}": (f"{side}{k - 1}", f"{side}{k}", (x, 0, k)) for k in range(1, n)}
    pins |= {f"rung{k}": (f"left{k}", f"right{k}", (0.5, 0, k + 1)) for k in range(n)}
    (block,) = found(linkages.hinged(bars, pins))
    assert len(block.loop_constraints) == n
    assert len(block.joints) == 2 * n
