"""Wrong calls of the public interface, made from valid ones by wrong values of one argument.

`CALLS` lists functions and constructors, valid arguments, and the kind of each argument. `WRONG`
has the wrong values of each kind. Every wrong call must be an error of the package that names the
argument or the component.
"""

from tests.bad_calls.analyses import ANALYSES, INSTANT
from tests.bad_calls.components import BODIES, JOINTS
from tests.bad_calls.contact_and_flexible import CONTACT, FLEXIBLE
from tests.bad_calls.forces_and_signals import FORCES, SIGNALS
from tests.bad_calls.methods import FILES, INTEGRATORS
from tests.bad_calls.values import Call

CALLS: dict[str, Call] = {
    **BODIES,
    **JOINTS,
    **FORCES,
    **CONTACT,
    **FLEXIBLE,
    **SIGNALS,
    **INSTANT,
    **ANALYSES,
    **INTEGRATORS,
    **FILES,
}

# Calls whose valid form needs a file, or a model of its own.
WITHOUT_VALID_CALL = {
    "ArcLength",
    "buckling",
    "load_path",
    "flexible.reduce",
    "flexible.from_mesh",
    "flexible.read_mbdyn",
    "flexible.read_matrices",
    "root_locus",
    *FILES,
}
# Calls that compile, and wait for a thorough run.
SLOW: set[str] = set()
