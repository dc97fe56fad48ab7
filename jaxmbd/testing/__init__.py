"""Contract checks for custom joints, forces, formulations and integrators.

Each check evaluates a component at random states and compares related methods. If they are
inconsistent it **raises** `AssertionError`, with every violated statement and its error. Checks run
in any test framework.

Tolerances are smallest in float64: `jax.config.update("jax_enable_x64", True)`.
"""

from .forces import check_field as check_field
from .forces import check_frame_force as check_frame_force
from .forces import check_joint_force as check_joint_force
from .integrators import check_integrator_order as check_integrator_order
from .joints import check_joint as check_joint
from .systems import check_system as check_system

__all__ = [
    "check_field",
    "check_frame_force",
    "check_integrator_order",
    "check_joint",
    "check_joint_force",
    "check_system",
]
