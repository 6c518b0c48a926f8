"""Closed forms of batching: capacity, waiting and the gain of one policy over another.

    lengths       laws of token counts, as probabilities of 0, 1, 2... tokens
    expected_max  the longest of B: what a static batch waits for
    static        fill time, batch time, waiting for a full batch
    dynamic       batches that start when they are not full; time windows
    continuous    ceilings of the rate, step time, residents
    sharing       the same with a limit of slots; bursts
    queues        M/G/1, M/M/c, M/D/c and their kin
    gain          continuous over static
    overhead      the host that schedules
    slo           the largest batch that keeps an objective

Plain functions of numbers and arrays.  Times in seconds, rates per second, lengths in tokens;
arrivals are Poisson unless a function says otherwise.  Where there is no steady state they raise
InputError.  Every formula is held against the simulator or against brute force by a test.
"""
