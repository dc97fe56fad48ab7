"""The exceptions that jaxmbd raises, by what went wrong, and the result codes of a motion."""

import diffrax


class RESULTS(diffrax.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """The result codes of diffrax, and those of what `simulate` finds out about saved states."""

    not_finite = (
        "The motion is no longer finite. The step may be too large: take a smaller one, or an "
        "implicit integrator such as BDF()."
    )
    constraints_violated = (
        "Saved states violate constraints by more than the tolerance. Take smaller steps or "
        "tolerances, a stronger stabilization, or an integrator that holds constraints after "
        "every step, such as GeneralizedAlpha() or BDF()."
    )
    joint_reversed = (
        "A joint is closed the wrong way round, half a turn from its own rotations. The step is too"
        " large, or the first state is closed like that already."
    )


class ModelError(ValueError):
    """A model, a formulation of it, or a request about it makes no sense; names the component."""


class IncompatibleIntegrator(ModelError):
    """The integrator cannot move this system; names both and says what would fit."""


class AssemblyError(RuntimeError):
    """No position or velocity satisfies the joints; names the joints that stay open and by how
    much."""


class SimulationError(RuntimeError):
    """A simulation ended early or left the finite numbers; names the time."""


class DataError(ValueError):
    """A measured record cannot be used as it is; names the record, the column and the row."""


class DamagedFileWarning(UserWarning):
    """A file of results is not as it was written; names the file and what is computed again."""


class FloatTypeWarning(UserWarning):
    """A model mixes float types; names the leaves of narrower types and the type chosen."""


class EnergyGainWarning(UserWarning):
    """The energy of a motion grows where nothing can add any; says by how much and until when."""


class ArtificialEnergyWarning(UserWarning):
    """Springs that stand in for rigidity hold much energy; says how much and what to change."""
