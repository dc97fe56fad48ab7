"""Lowering of a model to stacked groups and static rows, the input of every formulation."""
