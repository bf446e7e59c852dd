"""What all front ends share, whatever framework their tensors belong to.

Nothing here imports a framework. A front end supplies an adapter, which passes its tensors to the
engine and back, and gets collectives in return.

# Layout

- ``job``: this process's place in its job; ``process_sets``: subsets of its ranks.
- ``operations``: reductions, and which of them are possible; ``names``: names of requests.
- ``adapter``: what a framework has to supply; ``collectives``: what it gets in return.
- ``handle``: waiting for what was submitted.
- ``views``: the smallest adapter, for plain bytes; ``objects``: anything that can be pickled.
- ``elastic``: state that survives failures; ``sampler``: the rest of an epoch, dealt out.
- ``capabilities``: questions that scripts ask about their communication library.
"""
