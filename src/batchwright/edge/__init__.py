"""Where batching goes wrong: four edge cases, each as what happens, why, and what to do.

    short_flood    very short requests: the scheduler beside the step
    long_prompt    rare long prompts that block short requests
    max_num_seqs   more requests than seats, and the wall of the KV cache
    max_model_len  KV that is set aside for the longest request

Every number is computed when it is asked for: the simulator's beside the formula's.
"""
