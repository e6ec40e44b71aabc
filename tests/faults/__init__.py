"""The fault suite: workloads with one injected cause each, and what `gputop explain` says of them.

``scenario``   what a scenario is, and the ranges from which its parameters are drawn
``single``, ``loading``, ``waiting``, ``mixed``, ``controls``   the scenarios
``programs/``  the interpreter that runs a scenario's script, in C and in Python; it keeps a diary
``diary``      the truth: the simulated GPU's idle time, by what the program did meanwhile
``bench``      runs programs under one recording; ``explained`` asks gputop
``judge``      compares the two; ``robust`` damages recordings and programs; ``__main__`` prints the table
"""
