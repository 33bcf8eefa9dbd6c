"""What the flow needs from the outside, as Protocols.

The docstrings are the contract that every adapter and every fake implements.
"""
