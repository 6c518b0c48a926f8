"""What a server's GPU memory holds: `batchwright kv`.

asked    the flags, as vLLM names them
plan     what they come to: limits, memory, blocks, whether the server starts
changes  what each flag would change
words    the same for people
"""

from batchwright.kv_report.asked import Asked as Asked
from batchwright.kv_report.changes import Change as Change
from batchwright.kv_report.changes import changes as changes
from batchwright.kv_report.plan import Plan as Plan
from batchwright.kv_report.plan import plan as plan
