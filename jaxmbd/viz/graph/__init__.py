"""Pictures of joint graphs."""

from .drawing import plot_graph as plot_graph

__all__ = ["plot_graph"]
