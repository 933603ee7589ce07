"""The pages, one module for each subject of the contract."""
