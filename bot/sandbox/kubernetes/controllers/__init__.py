"""The controllers: each looks at one object at a time and moves the cluster one step towards what is wanted."""
