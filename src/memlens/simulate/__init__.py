"""Run PyTorch code on a GPU that is not there."""

from memlens.simulate.context import simulate
from memlens.simulate.session import Simulation

__all__ = ["Simulation", "simulate"]
