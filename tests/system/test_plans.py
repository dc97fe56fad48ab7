"""Static layout before tracing: rows, the spanning tree, groups, ports."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, joints
from jaxmbd.mechanism.groups import IndexSet, inverse
from jaxmbd.mechanism.topology import find_topology
from tests import models

INDICES = {
    "empty": [],
    "one run": [3, 4, 5],
    "few runs": [7, 0, 1, 4, 5],
    "repeated": [2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
    "scattered": [9, 1, 7, 0, 4, 2, 2],
}


@pytest.mark.parametrize("name", INDICES)
def test_rows_are_fancy_indexing(name):
    index = INDICES[name]
    rows, x = IndexSet.of(index), np.random.default_rng(0).normal(size=(10, 2))
    np.testing.assert_array_equal(rows.take(jnp.asarray(x)), x[index].reshape(-1, 2))
    total, part = x.copy(), np.random.default_rng(1).normal(size=(len(index), 2))
    np.add.at(total, np.asarray(index, dtype=int), part)
    np.testing.assert_allclose(rows.add_to(jnp.asarray(x), jnp.asarray(part)), total, rtol=1e-14)
    assert len(rows) == len(index)


def test_inverse_rows_undo_a_split():
    parts = [IndexSet.of([4, 1]), IndexSet.of([0, 2, 3])]
    x = jnp.arange(5.0)
    together = jnp.concatenate([rows.take(x) for rows in parts])
    np.testing.assert_array_equal(inverse(parts, 5).take(together), x)


def topology_of(*edges: tuple[str, str, str], bodies: str = "abcd"):
    links = {name: joints.Revolute(first, second) for name, first, second in edges}
    return find_topology(dict.fromkeys(bodies), links)


def test_tree_takes_the_shortest_path_in_order_of_joint_names():
    topology = topology_of(
        ("j1", "ground", "a"),
        ("j2", "a", "b"),
        ("j3", "b", "ground"),
        ("j4", "c", "a"),
        bodies="abc",
    )
    assert topology.loops == ("j2",)
    edges = dict(zip(topology.bodies[1:], topology.edges, strict=True))
    assert {body: edge.joint for body, edge in edges.items()} == {"a": "j1", "b": "j3", "c": "j4"}
    assert [body for body, edge in edges.items() if edge.reversed] == ["c", "b"]


def test_subtrees_are_runs_of_rows():
    topology = topology_of(
        ("j1", "ground", "a"), ("j2", "a", "b"), ("j3", "a", "c"), ("j4", "ground", "d")
    )
    assert topology.bodies == ("ground", "a", "b", "c", "d")
    np.testing.assert_array_equal(topology.parents, [0, 1, 1, 0])
    np.testing.assert_array_equal(topology.depths, [0, 1, 2, 2, 1])
    np.testing.assert_array_equal(topology.subtree_ends, [4, 3, 4, 5])


def test_a_part_that_nothing_holds_floats_on_the_body_that_carries_it():
    topology = topology_of(("j1", "ground", "a"), ("j2", "d", "c"), bodies="acd")
    assert topology.floating == ("d",)
    assert topology.bodies == ("ground", "a", "d", "c")


def test_order_of_names_does_not_matter():
    """The same model written in another order is the same system."""
    model = models.random_tree(37)

    def backwards(components):
        return dict(reversed(components.items()))

    other = mbd.Model(*(backwards(getattr(model, kind)) for kind in ("bodies", "joints", "forces")))
    first, second = (
        mbd.formulate(m, mbd.JointCoordinates()).mechanism.topology for m in (model, other)
    )
    assert first == second
    assert hash(first) == hash(second)


@pytest.fixture(scope="module")
def pendulum():
    model = mbd.Model(
        bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), (0.5, 0, 0))},
        joints={"hinge": joints.Revolute(Frame("ground", (0, 0, 2.0)), "rod", axis=(0, 1, 0))},
        frames={"tip": Frame("rod", (1.0, 0, 0))},
    )
    return mbd.formulate(model, mbd.MaximalCoordinates())


def test_frames_have_names(pendulum):
    """Bodies, marker frames and the two frames of every joint."""
    state = mbd.assemble(pendulum, {"hinge": 0.5}, rates={"hinge": 2.0})
    frames = pendulum.frames(0.0, state.q)
    names = ["ground", "rod", "tip", "hinge.predecessor", "hinge.successor"]
    assert sorted(frames.keys()) == sorted(names)
    np.testing.assert_allclose(frames["tip"].p, [np.cos(0.5), 0.0, 2.0 - np.sin(0.5)], atol=1e-15)
    twists = pendulum.twists(0.0, state.q, state.v)
    assert sorted(twists.keys()) == sorted(names)
    np.testing.assert_allclose(twists["tip"], [0, 0, -2.0, 0, 2.0, 0], atol=1e-14)
    for named in (frames, twists):
        with pytest.raises(KeyError, match=r"unknown frame 'rood'; known are .*'rod'"):
            named["rood"]


def test_joint_states_have_names(pendulum):
    state = mbd.assemble(pendulum, {"hinge": 0.5}, rates={"hinge": 2.0})
    hinge = mbd.joint_states(pendulum, 0.0, state)["hinge"]
    assert hinge.q.shape == hinge.v.shape == ()
    assert hinge.q == pytest.approx(0.5, abs=1e-14)
    assert hinge.v == pytest.approx(2.0, abs=1e-14)
