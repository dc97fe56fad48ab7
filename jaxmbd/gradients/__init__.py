"""Reliability of gradients: both modes against differences, and growth over a motion."""

from .check import GradientReport as GradientReport
from .check import check_gradients as check_gradients
from .growth import TrajectoryGrowth as TrajectoryGrowth
from .growth import trajectory_growth as trajectory_growth

__all__ = ["GradientReport", "TrajectoryGrowth", "check_gradients", "trajectory_growth"]
