"""A network beside the physics, fitted with a prior of its weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd


class Residual(eqx.Module):
    """A torque [N m] from the angle of a joint, by a network with one hidden layer."""

    network: eqx.nn.MLP

    def __init__(self, key):
        network = eqx.nn.MLP(2, "scalar", 3, 1, jnp.tanh, key=key)
        # No torque at the start: the fit adds what the physics lack.
        self.network = eqx.tree_at(lambda n: n.layers[-1].weight, network, jnp.zeros((1, 3)))

    def __call__(self, t, angle):
        return self.network(jnp.stack([jnp.sin(angle), jnp.cos(angle)]))


def with_residual(model, joint, deviation=1.0):
    """The model with a network on a joint, and its weights as parameters with a prior."""
    law = Residual(jax.random.key(0))
    residual = mbd.Controller(mbd.sensors.JointPosition(joint), law, joint)
    small = mbd.priors.Normal(0.0, deviation)  # Regularization: weights are small.
    select = {
        f"{kind} {i}": mbd.Parameter(
            lambda m, i=i, kind=kind: getattr(m.forces["residual"].law.network.layers[i], kind),
            prior=small,
        )
        for i in (0, 1)
        for kind in ("weight", "bias")
    }
    return model.with_(forces={"residual": residual}), select


def checks():
    """A pendulum with a spring that its model lacks, and a record that was not fitted."""
    jax.config.update("jax_enable_x64", True)
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0, 0, -0.25])
    hinge = mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])
    plain = mbd.Model({"rod": rod}, {"hinge": hinge}, {"gravity": mbd.forces.Gravity()})
    truth = plain.with_(forces={"spring": mbd.forces.TorsionalSpringDamper("hinge", 0.6)})
    ts, rng, records = np.linspace(0.0, 1.0, 41), np.random.default_rng(0), []
    for angle in (0.8, -0.6, 0.5):
        exact = np.asarray(mbd.predict(truth, ts, {"hinge": angle})["hinge"])
        noisy = exact + 1e-3 * rng.normal(size=ts.shape)
        records.append(mbd.Experiment(ts, {"hinge": noisy}, guess={"hinge": angle}))
    model, select = with_residual(plain, "hinge")
    fit = mbd.identify(model, records[:2], select, noise={"hinge": 1e-3}, throw=False)
    error = fit.validate(records[2])["hinge"]
    without = np.asarray(mbd.predict(plain, records[2])["hinge"] - records[2].measurements["hinge"])
    assert error < 3e-3 < 0.1 * np.sqrt(np.mean(without**2))
