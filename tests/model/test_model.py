"""Models made from other models: components by name, and values by path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints


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
