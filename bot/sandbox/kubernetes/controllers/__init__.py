"""The controllers: each reconciles one object at a time and moves the cluster one step towards the desired state."""
