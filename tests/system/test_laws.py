"""Laws of controllers with functions among their leaves, nested sensors and vectors of readings."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.sensors import JointPosition, JointVelocity

READ = {"q": JointPosition("hinge"), "v": JointVelocity("hinge")}
ROD = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])


class Policy(eqx.Module):
    net: eqx.nn.MLP
    times: int  # No array, and no static field.

    def __call__(self, t, r):
        x = jnp.stack([r["q"], r["v"]])
        for _ in range(self.times):
            x = self.net(x)
        return x[0]


def policy(depth, activation, seed=0, times=1):
    net = eqx.nn.MLP(2, 2, 4, depth, activation, key=jax.random.key(seed), dtype=jnp.float64)
    return Policy(net, times)


OLD, NEW = policy(1, jax.nn.relu), policy(2, jnp.tanh, 1, times=2)


def model_of(law, sensors=READ):
    hinge = mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])
    return mbd.Model(
        {"rod": ROD}, {"hinge": hinge}, {"control": mbd.Controller(sensors, law, "hinge")}
    )


def law_of(model):
    return model.forces["control"].law


def proportional(t, r):
    return -2.0 * r["q"]


AT = {"q": jnp.asarray(0.3), "v": jnp.asarray(0.7)}


def command(model, readings=AT):
    """The command of the law in the equations of a system."""
    (group,) = mbd.formulate(model, mbd.JointCoordinates()).mechanism.elements
    controller = jax.tree.map(lambda x: x[0], group.element)
    return controller.evaluate(jnp.zeros(()), readings, None)[0]


@pytest.mark.parametrize("start", [OLD, proportional], ids=["network", "function"])
@pytest.mark.parametrize("law", [OLD, NEW, proportional], ids=["same", "deeper", "function"])
def test_a_law_is_replaced_by_any_other(start, law):
    changed = [eqx.tree_at(law_of, model_of(start), law)]
    if start is proportional or law is not proportional:
        changed.append(model_of(start).replace({"forces.control.law": law}))
    for model in changed:
        assert command(model) == pytest.approx(float(law(0.0, AT)), rel=1e-12)


def test_parts_of_a_law_are_replaced():
    deeper = eqx.tree_at(lambda m: law_of(m).net, model_of(OLD), NEW.net)
    assert command(deeper) == pytest.approx(float(Policy(NEW.net, 1)(0.0, AT)), rel=1e-12)
    bias = jnp.array([1.0, 2.0, 3.0, 4.0])
    path = "forces.control.law.net.layers.0.bias"
    moved = model_of(OLD).replace({path: bias})
    wanted = eqx.tree_at(lambda law: law.net.layers[0].bias, OLD, bias)
    assert command(moved) == pytest.approx(float(wanted(0.0, AT)), rel=1e-12)
    with pytest.raises(mbd.ModelError, match=r"no '7'; known are '0', '1'"):
        moved.replace({"forces.control.law.net.layers.7.bias": bias})


def test_a_changed_law_has_derivatives_under_jit():
    """By the law that is put into the model, and by the model itself."""

    def value(law):
        return command(eqx.tree_at(law_of, model_of(OLD), law))

    wanted = eqx.filter_grad(lambda law: law(0.0, AT))(NEW).net.layers[0].weight
    slope = eqx.filter_jit(eqx.filter_grad(value))(NEW).net.layers[0].weight
    np.testing.assert_allclose(slope, wanted, rtol=1e-10)
    by_model = jax.jit(jax.grad(command))(model_of(NEW))
    np.testing.assert_allclose(law_of(by_model).net.layers[0].weight, wanted, rtol=1e-10)


def test_sensors_are_nested_and_several_joints_are_one_vector():
    sensors = {"both": [READ["q"], {"v": READ["v"]}], "vector": JointPosition(["hinge", "hinge"])}
    model = model_of(lambda t, r: r["both"][0] + r["both"][1]["v"] * r["vector"][1], sensors)
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.7})
    inertia = 1.0 / 3.0
    (rate,), _ = mbd.accelerations(system, 0.0, state)
    assert rate == pytest.approx((0.3 + 0.7 * 0.3) / inertia, rel=1e-6)
    assert READ["q"](system, 0.0, state) == pytest.approx(0.3)
    assert JointVelocity(["hinge"])(system, 0.0, state).tolist() == pytest.approx([0.7])
    with pytest.raises(mbd.ModelError, match="is not a sensor"):
        model_of(proportional, {"q": [READ["q"], {"v": 1.0}]})


def test_a_vector_of_angles_is_compared_modulo_turns():
    """Joint by joint: the angle of a hinge up to turns, the length of a slider as a number."""
    hinge = mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])
    slider = mbd.joints.Prismatic("rod", "tip", axis=[1, 0, 0])
    model = mbd.Model({"rod": ROD, "tip": ROD}, {"hinge": hinge, "slider": slider})
    reading, measured = jnp.array([[6.4, 6.4]]), jnp.array([[0.1, 0.1]])
    nearest = JointPosition(["hinge", "slider"]).nearest(model, reading, measured)
    np.testing.assert_allclose(nearest, [[6.4 - 2 * np.pi, 6.4]])
