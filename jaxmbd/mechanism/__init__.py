"""From a model to stacked groups and static rows: what every formulation starts from."""
