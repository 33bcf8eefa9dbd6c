"""Calls and waits that several verbs are made of."""
