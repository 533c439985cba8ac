"""The named worlds."""

from world import *  # noqa: F403
from world import World, LOOKED, WATCHED

WORLDS = (
    World("first", workers=(WATCHED,), faults=1),
    World("lookup", faults=2),
)
