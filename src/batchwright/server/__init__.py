"""An OpenAI-compatible server on the live driver.

bodies     what a client may send; what is not supported is refused by name
asked      from a body to a sequence: prompt ids, prefix keys, stops, sampling
worker     the thread in which the engine steps
desk       the other side of it, in the event loop: who is answered, with which tokens, until when
replies    the JSON of answers and streams
metrics    Prometheus text under vLLM's names
app        the routes
run        the socket, the signals, the end
nonsense   text for the mock engine, which has no model

Two threads share nothing but a queue of commands (loop to engine) and one call per step (engine
to loop).  Text is made in the loop, while the engine computes; only a request with stop strings has it
made where they end it: in the engine's thread.
"""
