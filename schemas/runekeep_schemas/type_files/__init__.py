"""Reads memory types from YAML files."""
