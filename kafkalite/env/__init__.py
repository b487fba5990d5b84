"""The seams: everything that is not deterministic enters the node through an `Env`.

A real run and a simulated run differ only in the Env and the event loop; the node code is the same.
No other module opens a socket or a file, reads a clock or draws a random number.
"""

from kafkalite.env.seams import Clock, Disk, Env, File, Listener, Network

__all__ = ["Clock", "Disk", "Env", "File", "Listener", "Network"]
