"""The brands: each module or package speaks to one outside product and keeps one port's promise."""
