"""GPU health without a shell: NVIDIA's and AMD's exporters, and what the nodes say of themselves."""
