"""How much friction a bearing may have whose friction is hardly seen: a posterior density.

    python examples/posterior.py [--png PLOT]

Needs `pip install "jaxmbd[bayes]"`. A pendulum is pushed by known torques, and its angle is read
twice, with noise; stiffness, friction and inertia are unknown. The confidence interval of the
friction reaches below zero, since it is symmetric; its posterior density does not. That is sampled
by Hamiltonian Monte Carlo of blackjax, many short chains at once. They start near the fit, and
their mass matrix is made of its covariance, so that they need hardly any warm-up.
"""

import argparse

import jaxmbd as mbd  # Before blackjax, which starts JAX.

# isort: split
import blackjax
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from jaxmbd import forces, inertia, joints

jax.config.update("jax_enable_x64", True)

TRUTH = {"stiffness": 2.0, "friction": 0.004, "inertia": 0.03}
UNITS = {"stiffness": "N m/rad", "friction": "N m s/rad", "inertia": "kg m²"}
NOISE = {"hinge": 0.02}  # [rad]
TORQUES = (1.0, -0.6)  # Of the motor in each record [N m].
ACROSS = 0.11  # Moments of inertia about x and z [kg m²].
METHOD = diffrax.Bosh3()
SELECT = {
    "stiffness": mbd.Parameter("forces.spring.stiffness", mbd.transforms.Positive()),
    "friction": mbd.Parameter("forces.bearing.coefficient", mbd.transforms.Positive()),
    # Within what a body can have beside the moments about x and z, wherever the sampler looks.
    "inertia": mbd.Parameter(
        "bodies.rod.inertia",
        mbd.transforms.Entries((1, 1), inner=mbd.transforms.Bounded(1e-3, 0.2)),
    ),
}


def pendulum(stiffness, friction, inertia_about_y):
    """A rod on a hinge about y, with a spring and a bearing."""
    moments = [ACROSS, inertia_about_y, ACROSS]
    return mbd.Model(
        bodies={"rod": inertia.principal(0.8, moments, com=[0.0, 0.0, -0.3])},
        joints={"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": forces.Gravity(),
            "bearing": forces.ViscousFriction("hinge", friction),
            "spring": forces.TorsionalSpringDamper("hinge", stiffness),
        },
    )


def records(n=40, seed=0):
    """Readings every 50 ms, with noise, of a motion that begins at rest."""
    rng, ts, found = np.random.default_rng(seed), 0.05 * np.arange(n), []
    for torque in TORQUES:
        own = {"motor": forces.JointTorque("hinge", torque)}
        blank = mbd.Experiment(ts, {"hinge": np.zeros(n)}, forces=own)
        true = np.asarray(mbd.predict(pendulum(*TRUTH.values()), blank)["hinge"])
        readings = true + NOISE["hinge"] * rng.normal(size=n)
        found.append(mbd.Experiment(ts, {"hinge": readings}, forces=own))
    return found


@eqx.filter_jit
def sample(density, covariance, key, n_chains, n_warmup, n_draws):
    """Draws of the reported numbers, shape `(n_chains, n_draws, k)`, and shares of steps taken.

    **Arguments:** the `density`, made of the fitted model, and the `covariance` of its free
    numbers, nearly.
    """
    kernel = blackjax.hmc(
        density, step_size=0.5, inverse_mass_matrix=covariance, num_integration_steps=4
    )

    def chain(key, start):
        def step(state, key):
            state, info = kernel.step(key, state)
            return state, (density.report(state.position), info.acceptance_rate)

        keys = jax.random.split(key, n_warmup + n_draws)
        draws, rates = jax.lax.scan(step, kernel.init(start), keys)[1]
        return draws[n_warmup:], jnp.mean(rates[n_warmup:])

    first, *keys = jax.random.split(key, n_chains + 1)
    # Farther apart than the density, for chains that agree to mean something.
    starts = jax.random.multivariate_normal(first, density.start, 2 * covariance, (n_chains,))
    return jax.vmap(chain)(jnp.stack(keys), starts)


def covariance_of(fit, density):
    """Covariance of the free numbers, of that of the reported ones."""
    D = np.linalg.inv(jax.jacfwd(density.report)(density.start))
    return jnp.asarray(D @ fit.covariance @ D.T)


def plot(draws, fit):
    """Histograms of the numbers beside what the fit says of them."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    flat = np.asarray(draws).reshape(-1, draws.shape[-1])
    rows = zip(figure.subplots(1, flat.shape[1]), TRUTH.items(), flat.T, strict=True)
    for axes, (name, true), x in rows:
        axes.hist(x, bins=30, density=True, alpha=0.5, label="posterior")
        law = stats.norm(fit[name], fit.standard_error(name))
        at = np.linspace(min(x.min(), law.ppf(1e-3)), max(x.max(), law.ppf(1 - 1e-3)), 200)
        axes.plot(at, law.pdf(at), "C1", label="estimate and standard error")
        axes.axvline(true, color="k", lw=1, ls="--", label="truth")
        axes.set(xlabel=f"{name} [{UNITS[name]}]", yticks=[])
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def main(png=None, n_chains=16, n_warmup=20, n_draws=100):
    """Fit, sample, and compare."""
    measured = records()
    start = pendulum(1.8, 0.01, 0.035)
    fit = mbd.identify(start, measured, SELECT, noise=NOISE, integrator=METHOD)
    density = mbd.log_posterior(fit.model, measured, SELECT, noise=NOISE, integrator=METHOD)
    near = covariance_of(fit, density)
    draws, rates = sample(density, near, jax.random.key(0), n_chains, n_warmup, n_draws)
    print(f"{n_chains} chains of {n_draws} draws, {np.mean(rates):.0%} of the steps taken")
    agreement = blackjax.diagnostics.potential_scale_reduction(draws)
    size = blackjax.diagnostics.effective_sample_size(draws)
    print(f"{'':<10}{'truth':>9}{'95 % of identify':>22}{'95 % of the density':>22}", end="")
    print(f"{'R̂':>8}{'draws':>8}")
    for k, (name, true) in enumerate(TRUTH.items()):
        ends = fit.interval(name), np.quantile(draws[..., k], [0.025, 0.975])
        said = [f"{low:.4f} to {high:.4f}" for low, high in ends]
        print(f"{name:<10}{true:9.4f}{said[0]:>22}{said[1]:>22}", end="")
        print(f"{agreement[k]:8.3f}{size[k]:8.0f}")
    if png is not None:
        plot(draws, fit).savefig(png, dpi=120)
    return draws, density, fit


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
