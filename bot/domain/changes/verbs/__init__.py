"""The verbs: each turns a situation into a plan, or declines with its reason."""
