"""A Kubernetes API over HTTP with its controllers, in one process and in memory.

It behaves as a real kube-apiserver was measured to behave; `tests/sandbox/kubernetes` holds it to that, and runs
against any real cluster too. What the bot does not use is not there.
"""
