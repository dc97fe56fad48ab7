"""Contract checks for whoever writes a joint, a force, a formulation or an integrator of their own.

Each check evaluates a component at random places and compares what it says in different ways. Where
these do not fit together it **raises** `AssertionError`, with every statement that fails and by how
much. They need no test framework; call them from whichever one is in use.

They are sharpest in float64, which is the caller's to turn on:
`jax.config.update("jax_enable_x64", True)`.
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
