"""A Kubernetes API over HTTP with its controllers, in one process and in memory.

It follows the measured behaviour of a real kube-apiserver; `tests/sandbox/kubernetes` verifies that, and runs against
any real cluster too. Features that the bot does not use are missing.
"""
