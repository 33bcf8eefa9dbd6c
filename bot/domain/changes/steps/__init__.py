"""Calls and waits that several verbs share."""
