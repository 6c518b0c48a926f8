"""Real models behind the batch: the same policies, on a real clock.

engine     what an engine must offer: run one step, tell the time
sequence   a request with its token ids
work       one step, as the policy left it
live       the driver: the moves of the simulator, on an engine
"""
