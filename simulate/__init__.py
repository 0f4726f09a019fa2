"""A small world in which the controller's and the ledger's rules live through thousands of seeded schedules.

It uses the platform's pure functions and nothing else of it; logs, stores, workers, sinks, clients and their faults are its
own, made of dictionaries. What must hold is written in `simulate/checks` from the design's invariants, not from the code.

    python -m simulate --seconds 60        any number of schedules, seeds printed
    python -m simulate --seed 4711         one schedule again, step by step
    python -m simulate --bugs              every planted bug must be found
"""
