"""The seam between formulations and everything that uses them."""
