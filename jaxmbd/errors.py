"""The exceptions that jaxmbd raises, by what went wrong."""


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


class ArtificialEnergyWarning(UserWarning):
    """Springs that stand in for rigidity hold much energy; says how much and what to change."""
