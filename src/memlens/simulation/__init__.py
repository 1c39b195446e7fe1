"""Run PyTorch code on a GPU that is not there."""

from memlens.simulation.context import simulate
from memlens.simulation.core.session import Simulation

__all__ = ["Simulation", "simulate"]
