"""Models made from other models: components by name, and values by path."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints
from jaxmbd.lie import Pose, so3
from jaxmbd.model.values import as_direction, directions_of


def geared():
    """Two rods with one component of every kind."""
    return mbd.Model(
        bodies={name: inertia.rod(1.0, 1.0) for name in ("left", "right")},
        joints={
            "a": joints.Revolute(mbd.ground, "left", [0, 1, 0]),
            "b": joints.Revolute(mbd.ground.at([1.0, 0, 0]), "right", [0, 1, 0]),
        },
        forces={"gravity": forces.Gravity(), "push": forces.JointTorque("a", 1.0)},
        frames={"tip": mbd.Frame("left", [0.5, 0, 0])},
        couplings={"gear": joints.Coupling("b", "a", -2.0)},
        drivers={"motor": joints.Driver("a", mbd.signals.Sine(0.1, 1.0))},
        rotors={"armature": mbd.Rotor("a", 0.1)},
    )


NEW = {
    "bodies": inertia.sphere(1.0, 0.1),
    "joints": joints.Spherical("left", "right"),
    "forces": forces.ViscousFriction("a", 0.1),
    "frames": "right",
    "couplings": joints.Coupling("a", "b", 1.0),
    "drivers": joints.Driver("b", 0.1),
    "rotors": mbd.Rotor("b", 0.2),
}
OLD = {
    "bodies": "left",
    "joints": "a",
    "forces": "push",
    "frames": "tip",
    "couplings": "gear",
    "drivers": "motor",
    "rotors": "armature",
}


def names(model):
    return {kind: set(getattr(model, kind)) for kind in NEW}


def test_models_without_changes_are_equal():
    model = geared()
    assert jax.tree.structure(model.with_()) == jax.tree.structure(model)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, model.with_(), model))


@pytest.mark.parametrize("kind", NEW)
def test_one_kind_changes_and_all_others_stay(kind):
    model = geared()
    added = model.with_(**{kind: {"new": NEW[kind]}})
    assert names(added) == names(model) | {kind: names(model)[kind] | {"new"}}
    removed = added.with_(**{kind: {"new": None}})
    assert jax.tree.structure(removed) == jax.tree.structure(model)
    if kind != "bodies":
        other = model.with_(**{kind: {OLD[kind]: NEW[kind]}})
        assert names(other) == names(model)
        assert jax.tree.structure(getattr(other, kind)) != jax.tree.structure(getattr(model, kind))


@pytest.mark.parametrize("kind", NEW)
def test_what_is_not_there_cannot_be_removed(kind):
    noun = "body" if kind == "bodies" else kind[:-1]
    with pytest.raises(mbd.ModelError, match=f"no {noun} 'none'; known are .*{OLD[kind]}"):
        geared().with_(**{kind: {"none": None}})
    with pytest.raises(mbd.ModelError, match=f"with_: {kind} must be a dict"):
        geared().with_(**{kind: [NEW[kind]]})


def test_changes_are_checked_as_a_model():
    with pytest.raises(mbd.ModelError, match="unknown joint 'a'"):
        geared().with_(joints={"a": None})
    with pytest.raises(mbd.ModelError, match="force 'x' is the class"):
        geared().with_(forces={"x": forces.Gravity})


def test_a_model_is_changed_under_transformations():
    def half_square(mass):
        model = geared().with_(bodies={"left": inertia.rod(mass, 1.0)})
        return 0.5 * model.bodies["left"].mass ** 2

    masses = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(half_square)))(masses), masses)


def test_replace_says_what_adds_and_removes():
    brake = forces.ViscousFriction("a", 0.1)
    for values in ({"forces.new": brake}, {"forces": {"new": brake}}, {"forces.push": None}):
        with pytest.raises(mbd.ModelError, match=r"`with_` .*s components"):
            geared().replace(values)


OTHER = {"RollingDisc": {"radius": 0.4}, "Screw": {"pitch": 0.2}}
DIRECTED = {
    name: [getattr(joints, name)("ground", "left", **OTHER.get(name, {})), directions]
    for name in joints.__all__
    if (directions := directions_of(getattr(joints, name)))
}


@pytest.mark.long
@pytest.mark.parametrize("name", DIRECTED)
def test_the_length_of_a_direction_does_not_matter(name):
    joint, directions = DIRECTED[name]
    model = mbd.Model({"left": inertia.rod(1.0, 1.0)}, {"j": joint})
    X = Pose(jnp.array([0.1, 0.2, 0.3]), so3.to_matrix(so3.exp(jnp.array([0.3, 0.2, 0.1]))))
    for field in directions:
        n = getattr(joint, field)
        longer = model.replace({f"joints.j.{field}": 3.7 * n}).joints["j"]
        np.testing.assert_allclose(getattr(longer, field), n, rtol=1e-15)
        moved = eqx.tree_at(lambda j, f=field: getattr(j, f), joint, 3.7 * n)  # As by a fit.
        np.testing.assert_allclose(moved.residual(X), joint.residual(X), rtol=1e-14, atol=1e-15)
        V = jnp.arange(6.0)
        np.testing.assert_allclose(moved.nonholonomic(X, V), joint.nonholonomic(X, V), rtol=1e-14)
        if joint.can_be_tree_joint:
            q = 0.1 + joint.zero()
            np.testing.assert_allclose(moved.pose(q).R, joint.pose(q).R, rtol=1e-14, atol=1e-15)
            np.testing.assert_allclose(moved.motion(q), joint.motion(q), rtol=1e-14, atol=1e-15)
        with pytest.raises(mbd.ModelError, match=f"'joints.j.{field}' must not be the zero vector"):
            model.replace({f"joints.j.{field}": 0.0 * n})
        zero = eqx.tree_at(lambda m, f=field: getattr(m.joints["j"], f), model, 0.0 * n)
        with pytest.raises(mbd.ModelError, match=f"joint 'j': {field} must not be the zero vector"):
            mbd.formulate(zero)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_directions_of_extreme_lengths(dtype):
    small, large = 2 * float(jnp.finfo(dtype).tiny), float(jnp.finfo(dtype).max)
    for scale in (small, 1e-20, 1.0, 1e20, large):
        n = as_direction(jnp.array([0.6, 0.0, -0.8], dtype) * scale, "n")
        np.testing.assert_allclose(n, [0.6, 0.0, -0.8], rtol=4 * float(jnp.finfo(dtype).eps))
        assert jnp.array_equal(as_direction(n, "n"), n)
    slope = jax.jacobian(lambda x: as_direction(x, "n"))(jnp.array([0.0, 2.0, 0.0], dtype))
    np.testing.assert_allclose(slope, np.diag([0.5, 0.0, 0.5]), atol=1e-7)


def test_frames_relative_to_frames():
    at = mbd.Frame(mbd.ground, [1.0, 2.0, 3.0], quat=[1.0, 1.0, 0.0, 0.0])
    assert at.body == "ground"
    assert jnp.array_equal(at.p, jnp.array([1.0, 2.0, 3.0]))
    assert jnp.array_equal(at.quat, jnp.array([1.0, 1.0, 0.0, 0.0]))
    turned = mbd.Frame(at, [0.0, 1.0, 0.0])  # y of the frame is z of the ground.
    np.testing.assert_allclose(turned.p, [1.0, 2.0, 4.0], atol=1e-15)
    with pytest.raises(mbd.ModelError, match="a node needs the name of its body"):
        mbd.Frame(mbd.ground, node=0)


def test_results_in_words():
    promoted = mbd.RESULTS.promote(diffrax.RESULTS.successful)
    assert repr(promoted) == "jaxmbd.motion.results.RESULTS<success>"
    assert repr(promoted) == repr(mbd.RESULTS.successful)
    assert promoted == mbd.RESULTS.successful
    assert all(mbd.RESULTS[getattr(mbd.RESULTS, x)] for x in ("max_steps_reached", "not_finite"))


@pytest.mark.parametrize("length", [0.0, 1e-200, 1e200])
def test_quaternions_without_a_rotation(length):
    with pytest.raises(mbd.ModelError, match="frame on 'left': quat must"):
        mbd.Frame("left", quat=[length, 0, 0, 0])
    frames = ("joints.a.predecessor", "frames.tip")
    for path in frames:
        with pytest.raises(mbd.ModelError, match=r"frame on .*: quat must"):
            geared().replace({f"{path}.quat": [length, 0, 0, 0]})


def test_a_batch_of_models():
    model = geared()
    many = jax.vmap(lambda mass: model.replace({"bodies.left.mass": mass}))(jnp.ones(3))
    with pytest.raises(mbd.ModelError, match=r"body 'left': mass has shape \(3,\).*jax.vmap"):
        mbd.formulate(many)
