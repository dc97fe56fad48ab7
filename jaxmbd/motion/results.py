"""The result codes of motions, equilibria and fits."""

import warnings

import diffrax

with warnings.catch_warnings():
    # Equinox warns of another text of an inherited item, and that of diffrax for success is empty.
    warnings.simplefilter("ignore", UserWarning)

    class RESULTS(diffrax.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
        """The result codes of diffrax, those of `simulate`'s checks of saved states, and those of
        `equilibrium` and `identify`.

        For example:

            motion = mbd.simulate(model, {"hinge": 0.3}, t1=0.5, throw=False)
            motion.result == mbd.RESULTS.successful
        """

        successful = "success"
        not_finite = (
            "The motion is no longer finite. The step may be too large: take a smaller one, or "
            "an implicit integrator such as BDF()."
        )
        constraints_violated = (
            "Saved states violate constraints by more than the tolerance. Take smaller steps or"
            " tolerances, a stronger stabilization, or an integrator that holds constraints "
            "after every step, such as GeneralizedAlpha() or BDF()."
        )
        joint_reversed = (
            "A joint is closed the wrong way round, half a turn from its own rotations. The "
            "step is too large, or the first state is closed like that already."
        )
        contact_persists = (
            "A contact closes and stays closed, after impacts that follow one another ever "
            "faster or from the start. Impacts as events end there: simulate without `impacts`,"
            " with the compliant forces of the contacts."
        )
        impacts_exhausted = (
            "The largest number of impacts was reached: raise max_impacts of Restitution, or "
            "simulate without `impacts`, with the compliant forces of the contacts."
        )
        impact_unsolved = (
            "An impact has no impulse that satisfies Newton's law of restitution and Coulomb's "
            "law without a gain of energy: reduce friction or restitution, or simulate without "
            "`impacts`, with the compliant forces of the contacts."
        )
        equilibrium_unstable = "The equilibrium is unstable: a small disturbance moves it away."
        no_equilibrium = (
            "No equilibrium was reached. Start from a state nearer to it, allow more steps, or "
            "check that the loads can be in balance."
        )
        unbounded_motion = (
            "No equilibrium was reached: the loads move the mechanism along a direction without"
            " stiffness. Add a support, a spring, or hold a joint."
        )
        at_bound = "The fit converged at bounds of its parameters: see `Fit.bounds`."
        no_minimum = (
            "The fit ended before a minimum: a body, a motion or an equilibrium that further steps "
            "need does not exist, or there were too few steps. Start from another model."
        )
