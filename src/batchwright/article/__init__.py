"""An article on batching claims +94% for continuous batching, and +80 to 100% in general.

Its workload and its two formulas are computed here again, beside the same workload run step by
step.  Nothing is stored but what it claims (`claims`): every number of ours is made when it is
asked for, so seeds, workload and policies can be changed and looked at.
"""

from batchwright.article.study import Study, recompute
from batchwright.article.text import as_json, full_text, short_text

__all__ = ["Study", "as_json", "full_text", "recompute", "short_text"]
