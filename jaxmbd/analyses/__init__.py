"""Verbs on a system: assemble, simulate, identify, …"""
