"""Analyses of a system: assemble, simulate, identify, …"""
