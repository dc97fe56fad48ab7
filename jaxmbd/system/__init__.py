"""Equations of motion of a mechanism: the interface between formulations, integrators, analyses."""
