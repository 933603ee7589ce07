"""Reads the model's answers: finds the JSON, repairs it, and converts it to operations."""
