"""Searches memories and passages: reads candidates from the index, joins them with the store, ranks and selects
them."""
